"""Files that people attach in a terminal, kept until the agent has fetched them."""

import mimetypes
import re
import secrets
import shutil
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import anyio
from anyio import to_thread

from bots.common.attachments import attachment_kind, file_name
from bots.common.downloads import limit_size
from bus.errors import DeliveryError
from bus.messages import Attachment

FOLDER = ".attached"
"""Subfolder of a session's folder. Its name cannot collide with the agent's files or other sessions."""

KEPT_S = 7 * 86_400.0
"""How long to keep a file after it arrived, seconds."""

CHUNK_BYTES = 256 * 1024
_REF = re.compile(r"[0-9a-f]{32}")


class AttachedFileMissing(DeliveryError):
    """The attached file no longer exists."""

    def __init__(self) -> None:
        super().__init__(str(self.__doc__))


class ReceivedFiles:
    """The attached files of a session, each in its own folder.

    Args:
        folder: The session's folder.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder / FOLDER

    async def save(self, name: str, chunks: AsyncIterator[bytes], *, max_bytes: int) -> str:
        """Store a file. Return its reference for messages.

        Raises:
            FileTooLarge: The file has more than `max_bytes`.
            DeliveryError: The disk cannot store it.
        """
        ref = secrets.token_hex(16)
        folder = self._folder / ref
        limited = limit_size(chunks, max_bytes, errors=(), convert=_broken)
        is_whole = False
        try:
            await to_thread.run_sync(self._make, folder)
            async with await anyio.open_file(folder / file_name(name), "wb") as file:
                async for chunk in limited:
                    await file.write(chunk)
            is_whole = True
        except OSError as error:
            reason = f"The file could not be saved: {error.strerror}."
            raise DeliveryError(reason, retryable=True) from error
        finally:
            if not is_whole:
                with anyio.CancelScope(shield=True):
                    await to_thread.run_sync(lambda: shutil.rmtree(folder, ignore_errors=True))
        return ref

    async def attachment(self, ref: str) -> Attachment:
        """Return a stored file as an attachment. Raises AttachedFileMissing."""
        path = await to_thread.run_sync(self._find, ref)
        mime = mimetypes.guess_type(path.name)[0] or "application/octet-stream"
        size = await to_thread.run_sync(lambda: path.stat().st_size)
        kind = attachment_kind(mime)
        return Attachment(name=path.name, mime=mime, size_bytes=size, kind=kind, ref=ref)

    @asynccontextmanager
    async def open(self, ref: str, *, max_bytes: int) -> AsyncIterator[AsyncIterator[bytes]]:
        """Stream a stored file. Raises AttachedFileMissing."""
        path = await to_thread.run_sync(self._find, ref)
        async with await anyio.open_file(path, "rb") as file:

            async def chunks() -> AsyncIterator[bytes]:
                while chunk := await file.read(CHUNK_BYTES):
                    yield chunk

            yield limit_size(chunks(), max_bytes, errors=(OSError,), convert=_broken)

    def _make(self, folder: Path) -> None:
        """Create a folder for a file, and remove the folders of old files."""
        folder.mkdir(parents=True, mode=0o700)
        for other in self._folder.iterdir():
            if time.time() - other.stat().st_mtime > KEPT_S:
                shutil.rmtree(other, ignore_errors=True)

    def _find(self, ref: str) -> Path:
        folder = self._folder / ref
        found = list(folder.iterdir()) if _REF.fullmatch(ref) and folder.is_dir() else []
        if not found:
            raise AttachedFileMissing
        return found[0]


def _broken(error: Exception) -> DeliveryError:
    return DeliveryError(f"The attached file cannot be read: {error}.", retryable=True)
