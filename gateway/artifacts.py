"""Opening a thread's files for download: no path leads out, no link is followed."""

import io
import mimetypes
import os
import stat
from collections.abc import AsyncIterator, Mapping, Sequence
from pathlib import Path

from anyio import to_thread
from starlette.responses import StreamingResponse
from starlette.types import Receive, Scope, Send
from typing_extensions import override

CHUNK_BYTES = 256 * 1024

ACTIVE = frozenset(
    {"text/html", "application/xhtml+xml", "image/svg+xml", "text/xml", "application/xml"}
)
"""What a browser would run: always handed out as a download."""

_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


class OpenFile:
    """A regular file, opened for reading."""

    def __init__(self, descriptor: int, name: str, size_bytes: int) -> None:
        self._file = io.FileIO(descriptor)
        self.name = name
        self.size_bytes = size_bytes

    @property
    def mime(self) -> str:
        """The type that the name suggests."""
        return mimetypes.guess_type(self.name)[0] or "application/octet-stream"

    def close(self) -> None:
        """Close the file; closing it again does nothing."""
        self._file.close()

    async def read(self) -> AsyncIterator[bytes]:
        """Yield the bytes, at most as many as there were at opening."""
        left = self.size_bytes
        while left > 0:
            chunk = await to_thread.run_sync(self._file.read, min(CHUNK_BYTES, left))
            if not chunk:
                return
            left -= len(chunk)
            yield chunk


class OpenFileResponse(StreamingResponse):
    """Streams an open file, and closes it however the response ends."""

    def __init__(self, file: OpenFile, *, media_type: str, headers: Mapping[str, str]) -> None:
        super().__init__(file.read(), media_type=media_type, headers=headers)
        self._file = file

    @override
    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await super().__call__(scope, receive, send)
        finally:
            self._file.close()


def open_below(folder: Path, parts: Sequence[str]) -> OpenFile:
    """Open the regular file at `parts` below `folder`, following no link on the way. Blocking.

    Raises:
        FileNotFoundError: there is none, or a link stands in the way.
        IsADirectoryError: it is not a regular file.
    """
    if not parts:
        raise IsADirectoryError
    here = _step(os.fspath(folder), None, _FOLDER)
    try:
        for part in parts[:-1]:
            inner = _step(part, here, _FOLDER)
            os.close(here)
            here = inner
        descriptor = _step(parts[-1], here, _FILE)
    finally:
        os.close(here)
    status = os.fstat(descriptor)
    if not stat.S_ISREG(status.st_mode):
        os.close(descriptor)
        raise IsADirectoryError
    return OpenFile(descriptor, parts[-1], status.st_size)


def _step(name: str, folder: int | None, flags: int) -> int:
    try:
        return os.open(name, flags, dir_fd=folder)
    except OSError as error:
        raise FileNotFoundError from error
