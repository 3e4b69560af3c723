"""The files of one request while they arrive: counted, measured, under names that nobody sees yet."""

import os
from dataclasses import dataclass

import anyio.to_thread

from agent.errors import UploadTooLarge
from agent.uploads.incoming import IncomingFile
from agent.uploads.names import numbered, safe_name
from agent.uploads.store import StagedFile, UploadStore


@dataclass(frozen=True, slots=True, kw_only=True)
class UploadRequestLimits:
    """What one request may bring; sizes in bytes."""

    max_files: int = 10
    max_file_size: int = 50 * 1024 * 1024
    max_total_size: int = 100 * 1024 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class ReceivedFile:
    """A file that arrived: the name that it shall have, and the one it came with where that is another."""

    name: str
    original: str | None
    staged: StagedFile


class UploadBatch:
    """Takes in the files of one request, one after the other."""

    def __init__(self, shelf: UploadStore, limits: UploadRequestLimits) -> None:
        self._shelf = shelf
        self._limits = limits
        self._staged: list[StagedFile] = []
        self._count = 0
        self._size = 0
        self.received: list[ReceivedFile] = []

    async def receive(self, file: IncomingFile) -> None:
        """Take in one file; one without a safe name is left out, its bytes are not read.

        Raises:
            UploadTooLarge: The request brings too much.
            OSError: The disk does not take it.
        """
        self._count += 1
        if self._count > self._limits.max_files:
            raise UploadTooLarge(f"At most {self._limits.max_files} files can be sent at once.")
        name = safe_name(file.filename)
        if name is None:
            return
        staged = await anyio.to_thread.run_sync(self._stage)
        try:
            await self._write(staged.descriptor, file)
        finally:
            os.close(staged.descriptor)
        free = self._free(name)
        original = None if free == name else name
        self.received.append(ReceivedFile(name=free, original=original, staged=staged))

    def discard(self) -> None:
        """Remove whatever was given no name. Blocking."""
        for staged in self._staged:
            self._shelf.discard(staged)

    def _stage(self) -> StagedFile:
        # Noted inside the thread: it is removed also when the request is cancelled just then.
        staged = self._shelf.stage()
        self._staged.append(staged)
        return staged

    async def _write(self, descriptor: int, file: IncomingFile) -> None:
        size = 0
        async for chunk in file.chunks:
            size += len(chunk)
            self._size += len(chunk)
            if size > self._limits.max_file_size:
                raise UploadTooLarge(
                    f"One file may have at most {_mb(self._limits.max_file_size)}."
                )
            if self._size > self._limits.max_total_size:
                raise UploadTooLarge(
                    f"Files sent at once may have at most {_mb(self._limits.max_total_size)} together."
                )
            await anyio.to_thread.run_sync(_write_all, descriptor, chunk)

    def _free(self, name: str) -> str:
        taken = {other.name for other in self.received}
        number = 0
        while numbered(name, number) in taken:
            number += 1
        return numbered(name, number)


def _write_all(descriptor: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(descriptor, view) :]


def _mb(size: int) -> str:
    return f"{size / 1024 / 1024:g} MB"
