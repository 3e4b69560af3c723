"""File uploads to Feishu: images and files, streamed from disk."""

import secrets
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

import anyio
import anyio.to_thread

from bots.feishu.api import FeishuApi
from bots.feishu.capabilities import FILE_BYTES, IMAGE_BYTES
from bots.feishu.errors import FeishuError
from bots.feishu.rest import RequestBody
from bus.characters import clean_outbound
from bus.platform import OutgoingFile

_CHUNK_BYTES = 64 * 1024
_NAME_CHARS = 200

_PICTURES = frozenset({
    "image/jpeg", "image/png", "image/webp", "image/gif", "image/bmp", "image/tiff", "image/x-icon",
})  # fmt: skip

_TYPES: Mapping[str, str] = {
    ".pdf": "pdf", ".doc": "doc", ".docx": "doc", ".xls": "xls", ".xlsx": "xls", ".ppt": "ppt", ".pptx": "ppt",
}  # fmt: skip
"""`file_type` by suffix; all other files are `stream`.

Audio and video files are streams too: under their own types (opus, mp4), they can only be sent as `audio` or `media`,
    which require a length and a cover.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class FeishuUpload:
    """An uploaded file, ready to send: the message's type and content."""

    type: str
    value: Mapping[str, object]


class FeishuFileUploader:
    """Uploads files. They are invisible until a message with them is sent."""

    def __init__(self, api: FeishuApi, *, limit_s: float) -> None:
        self._api = api
        self._limit_s = limit_s

    async def upload(self, file: OutgoingFile) -> FeishuUpload:
        """Upload `file` as a picture if the platform accepts it as a picture, or else as a file.

        Raises:
            FeishuError: Never ambiguous, because an upload alone shows nothing.
        """
        try:
            return await self._upload(file)
        except OSError as error:
            raise FeishuError(f"{file.name} cannot be read ({type(error).__name__})") from error
        except FeishuError as error:
            error.ambiguous = False
            raise

    async def upload_text(self, name: str, text: str) -> FeishuUpload:
        """Upload a text as a file. Raises FeishuError, never ambiguous."""
        data = text.encode("utf-8", "replace")
        _check(name, len(data))
        before, after, headers = _multipart_parts(
            {"file_type": "stream", "file_name": name}, "file", len(data)
        )
        body = before + data + after
        try:
            form = RequestBody(open=lambda: body, headers=headers)
            key = await self._api.upload_file(form, limit_s=self._limit_s)
        except FeishuError as error:
            error.ambiguous = False
            raise
        return FeishuUpload(type="file", value={"file_key": key})

    async def _upload(self, file: OutgoingFile) -> FeishuUpload:
        size = (await anyio.Path(file.path).stat()).st_size
        _check(file.name, size)
        if file.mime in _PICTURES and size <= IMAGE_BYTES:
            try:
                return await self._picture(file.path, size)
            except FeishuError as error:
                if error.retryable:
                    raise
                # Feishu refused the picture (it is broken or has too many pixels), but accepts it as a file.
        return await self._file(file, size)

    async def _picture(self, path: Path, size: int) -> FeishuUpload:
        form = _multipart_stream({"image_type": "message"}, "image", path, size)
        key = await self._api.upload_image(form, limit_s=self._limit_s)
        return FeishuUpload(type="image", value={"image_key": key})

    async def _file(self, file: OutgoingFile, size: int) -> FeishuUpload:
        name = _safe_name(file.name)
        kind = _TYPES.get(PurePosixPath(name).suffix.lower(), "stream")
        form = _multipart_stream({"file_type": kind, "file_name": name}, "file", file.path, size)
        key = await self._api.upload_file(form, limit_s=self._limit_s)
        return FeishuUpload(type="file", value={"file_key": key})


def _check(name: str, size: int) -> None:
    if not size:
        raise FeishuError(f"{name} is empty, and Feishu does not accept empty files")
    if size > FILE_BYTES:
        raise FeishuError(f"{name} is larger than 30 MB, Feishu's limit")


def _safe_name(name: str) -> str:
    """Return the name without folders and control characters, shortened if necessary, with its suffix."""
    path = PurePosixPath(clean_outbound(name).replace("\n", " ").replace("\\", "/"))
    return f"{path.stem[: _NAME_CHARS - len(path.suffix[:20])]}{path.suffix[:20]}" or "file"


def _multipart_stream(fields: Mapping[str, str], field: str, path: Path, size: int) -> RequestBody:
    """Return a multipart form that streams `path`."""
    before, after, headers = _multipart_parts(fields, field, size)

    async def stream() -> AsyncIterator[bytes]:
        yield before
        # Close the file without awaiting, because a canceled task cannot await and would leave it open.
        with await anyio.to_thread.run_sync(path.open, "rb") as file:
            while chunk := await anyio.to_thread.run_sync(file.read, _CHUNK_BYTES):
                yield chunk
        yield after

    return RequestBody(open=stream, headers=headers)


def _multipart_parts(
    fields: Mapping[str, str], field: str, size: int
) -> tuple[bytes, bytes, Mapping[str, str]]:
    """Return the parts before and after a file in a multipart form, and the form's headers.

    The file's own name is a form field. It is never part of a header.
    """
    boundary = secrets.token_hex(16)
    head = "".join(
        f'--{boundary}\r\nContent-Disposition: form-data; name="{name}"\r\n\r\n{value}\r\n'
        for name, value in fields.items()
    )
    head += (
        f'--{boundary}\r\nContent-Disposition: form-data; name="{field}"; filename="{field}"\r\n'
        "Content-Type: application/octet-stream\r\n\r\n"
    )
    before, after = head.encode("utf-8", "replace"), f"\r\n--{boundary}--\r\n".encode()
    headers = {
        "content-type": f"multipart/form-data; boundary={boundary}",
        "content-length": str(len(before) + size + len(after)),
    }
    return before, after, headers
