"""Files on their way in, whoever brings them: a name and a stream of bytes."""

from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path

import anyio

CHUNK_BYTES = 256 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class IncomingFile:
    """One file. `chunks` is read once, before the next file is asked for."""

    filename: str
    chunks: AsyncIterator[bytes]


def file_from_bytes(filename: str, content: bytes) -> IncomingFile:
    """Return a file whose content is known."""

    async def chunks() -> AsyncIterator[bytes]:
        yield content

    return IncomingFile(filename=filename, chunks=chunks())


def file_from_path(path: Path, filename: str | None = None) -> IncomingFile:
    """Return a file of this machine; reading it raises OSError when that cannot be done."""

    async def chunks() -> AsyncIterator[bytes]:
        async with await anyio.open_file(path, "rb") as file:
            while chunk := await file.read(CHUNK_BYTES):
                yield chunk

    return IncomingFile(filename=filename or path.name, chunks=chunks())
