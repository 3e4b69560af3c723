"""FileForm: a form (RFC 7578) with one file, read from disk while it is sent."""

import secrets
from collections.abc import AsyncIterator, Mapping
from pathlib import Path

from anyio import to_thread

CHUNK_BYTES = 256 * 1024


class FileForm:
    """A form.

    Args:
        field: The name of the file's field.
        filename: The file's name for the receiver.
        source: The file. It must not change while it is sent.
        size_bytes: Its size. If given, the request has a Content-Length, which some servers require; None = it is sent
            in chunks.
        mime: The file's type.
        fields: Further fields: texts by name.
    """

    def __init__(
        self,
        field: str,
        filename: str,
        source: Path,
        *,
        size_bytes: int | None = None,
        mime: str = "application/octet-stream",
        fields: Mapping[str, str] | None = None,
    ) -> None:
        self._boundary = secrets.token_hex(16)
        self._source, self._size = source, size_bytes
        texts = [self._part(name) + f"\r\n{text}\r\n" for name, text in (fields or {}).items()]
        file = self._part(field, filename) + f"Content-Type: {mime}\r\n\r\n"
        self._head = "".join([*texts, file]).encode()
        self._tail = f"\r\n--{self._boundary}--\r\n".encode()

    @property
    def headers(self) -> dict[str, str]:
        """The headers of a request with the form."""
        named = {"Content-Type": f"multipart/form-data; boundary={self._boundary}"}
        if self._size is None:
            return named
        return {**named, "Content-Length": str(len(self._head) + self._size + len(self._tail))}

    async def chunks(self) -> AsyncIterator[bytes]:
        """Yield the bytes of the form. Each call starts from the beginning."""
        yield self._head
        sent = 0
        while chunk := await to_thread.run_sync(_read_at, self._source, sent):
            sent += len(chunk)
            yield chunk
        yield self._tail

    def _part(self, field: str, filename: str = "") -> str:
        file = f'; filename="{_quotable(filename)}"' if filename else ""
        disposition = f'Content-Disposition: form-data; name="{field}"{file}'
        return f"--{self._boundary}\r\n{disposition}\r\n"


def _quotable(name: str) -> str:
    return name.replace('"', "%22").replace("\r", " ").replace("\n", " ")


def _read_at(source: Path, offset: int) -> bytes:
    """Return the next bytes. The file is not kept open, because nothing would close it if the upload is canceled."""
    with source.open("rb") as file:
        file.seek(offset)
        return file.read(CHUNK_BYTES)
