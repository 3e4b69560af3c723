"""Receives the files of one request: enforces limits and stores them under temporary names."""

import os
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path

import anyio
import anyio.to_thread

from agent.errors import SandboxError, UploadTooLarge
from agent.thread_storage import SpaceMeter
from agent.uploads.names import numbered, safe_name
from agent.uploads.store import StagedFile, UploadStore
from agent.user_messages import printable_character

CHUNK_BYTES = 256 * 1024

SHOWN_CHARS = 80
"""Longest name of a skipped file, characters."""

NO_ROOM = (
    "There is no room for the files: this conversation has reached its limit, or the disk is nearly full. "
    "Delete files that you do not need."
)


@dataclass(frozen=True, slots=True, kw_only=True)
class IncomingFile:
    """A file to receive. `chunks` is read once, before the next file is requested."""

    filename: str
    chunks: AsyncIterator[bytes]


def file_from_path(path: Path, filename: str | None = None) -> IncomingFile:
    """Return a file on this machine as an IncomingFile. Reading it may raise OSError."""

    async def chunks() -> AsyncIterator[bytes]:
        # Close it without awaiting: a canceled task cannot await, and would leave the file open.
        with await anyio.to_thread.run_sync(path.open, "rb") as file:
            while chunk := await anyio.to_thread.run_sync(file.read, CHUNK_BYTES):
                yield chunk

    return IncomingFile(filename=filename or path.name, chunks=chunks())


@dataclass(frozen=True, slots=True, kw_only=True)
class UploadRequestLimits:
    """Limits of one request; sizes in bytes."""

    max_files: int = 10
    max_file_size: int = 50 * 1024 * 1024
    max_total_size: int = 100 * 1024 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class ReceivedFile:
    """A received file with its future name, and its original name if that is different."""

    name: str
    original: str | None
    staged: StagedFile


class UploadBatch:
    """Receives the files of one request, one after another.

    Args:
        store: Stores the files.
        limits: Limits of the request.
        meter: Enforces the limits of the thread and of the disk.
    """

    def __init__(
        self, store: UploadStore, limits: UploadRequestLimits, meter: SpaceMeter | None = None
    ) -> None:
        self._store = store
        self._limits = limits
        self._meter = meter
        self._staged: list[StagedFile] = []
        self._count = 0
        self._size = 0
        self.received: list[ReceivedFile] = []
        self.skipped: list[str] = []

    async def receive(self, file: IncomingFile) -> None:
        """Receive one file. A file without a safe name is skipped and not read.

        Raises:
            UploadTooLarge: The request exceeds a limit.
            OSError: The file cannot be written.
        """
        self._count += 1
        if self._count > self._limits.max_files:
            raise UploadTooLarge(f"You can send at most {self._limits.max_files} files at once.")
        name = safe_name(file.filename)
        if name is None:
            shown = "".join(map(printable_character, file.filename))[:SHOWN_CHARS]
            self.skipped.append(shown or "(no name)")
            return
        staged = await anyio.to_thread.run_sync(self._stage)
        try:
            await self._write(staged.descriptor, file)
        finally:
            os.close(staged.descriptor)
        free = self._free_name(name)
        original = None if free == name else name
        self.received.append(ReceivedFile(name=free, original=original, staged=staged))

    def discard(self) -> None:
        """Remove all files that did not get their final name. Blocking."""
        for staged in self._staged:
            self._store.discard(staged)

    def _stage(self) -> StagedFile:
        # Record it inside the worker thread, so that it is removed even if the request is canceled.
        staged = self._store.stage()
        self._staged.append(staged)
        return staged

    async def _write(self, descriptor: int, file: IncomingFile) -> None:
        size = 0
        async for chunk in file.chunks:
            size += len(chunk)
            self._size += len(chunk)
            if size > self._limits.max_file_size:
                raise UploadTooLarge(
                    f"A file can have at most {_megabytes(self._limits.max_file_size)}."
                )
            if self._size > self._limits.max_total_size:
                raise UploadTooLarge(
                    f"Files sent at once can have at most {_megabytes(self._limits.max_total_size)} in total."
                )
            await anyio.to_thread.run_sync(self._write_chunk, descriptor, chunk)

    def _write_chunk(self, descriptor: int, chunk: bytes) -> None:
        if self._meter is not None:
            try:
                self._meter.require_space(len(chunk))
            except SandboxError as error:
                raise UploadTooLarge(NO_ROOM) from error
        _write_all(descriptor, chunk)

    def _free_name(self, name: str) -> str:
        taken = {other.name for other in self.received}
        number = 0
        while numbered(name, number) in taken:
            number += 1
        return numbered(name, number)


def _write_all(descriptor: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(descriptor, view) :]


def _megabytes(size: int) -> str:
    return f"{size / 1024 / 1024:g} MB"
