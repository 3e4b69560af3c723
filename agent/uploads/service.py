"""Upload service: receives, lists and deletes files, and converts documents to text."""

import errno
import logging
import os
import threading
import time
from collections.abc import AsyncIterable, AsyncIterator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime

import anyio
import anyio.to_thread

from agent.errors import ConversionFailed, UploadError, UploadNotAllowed, UploadNotFound
from agent.thread_storage import SpaceMeter, ThreadFolders, ThreadStorage
from agent.uploads.batch import IncomingFile, ReceivedFile, UploadBatch, UploadRequestLimits
from agent.uploads.converter import TOO_SLOW, DocumentConverter
from agent.uploads.images import ModelImages
from agent.uploads.names import CONVERTIBLE, is_basename, suffix_of
from agent.uploads.snapshot import UploadSnapshot
from agent.uploads.store import ConversionRecord, UploadEntry, UploadStore
from store.errors import StoreError
from store.files.mirror import FileMirror, SharedFolder, stored_after, thread_area

log = logging.getLogger(__name__)

CLOCK_TICK_S = 0.1
"""How far modification times may lag behind the clock, seconds."""

ALL_CONVERTED_S = 75.0
"""Time limit for converting all documents of one request, seconds. The rest get no text version. It is below the bus's
timeout of 90 s of silence."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredUpload:
    """An uploaded file.

    Attributes:
        original_name: The name under which it was sent, if different.
        markdown: The name of its text version.
        markdown_error: Why a document has no text version.
    """

    name: str
    size: int
    modified: datetime
    original_name: str | None = None
    markdown: str | None = None
    markdown_error: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class UploadResult:
    """Result of a request: stored files, and the names of files that were skipped."""

    files: tuple[StoredUpload, ...]
    skipped: tuple[str, ...] = ()


class UploadService:
    """The uploads of all threads.

    Args:
        folders: Threads' folders.
        mirror: Copies the files between nodes.
        converts: Returns whether to convert documents. Called for each request.
        converter: Converts documents.
        limits: Limits of one request.
    """

    def __init__(
        self,
        folders: ThreadStorage,
        mirror: FileMirror | None = None,
        *,
        converts: Callable[[], bool],
        converter: DocumentConverter | None = None,
        limits: UploadRequestLimits | None = None,
    ) -> None:
        self._folders = folders
        self._meters: dict[str, tuple[SpaceMeter | None, int]] = {}
        self._mirror = mirror or SharedFolder()
        self._converts = converts
        self._converter = converter or DocumentConverter()
        self.limits = limits or UploadRequestLimits()
        self.images = ModelImages()
        self._opened_at = time.time()
        self._lock = threading.Lock()  # held briefly by worker threads

    async def accept(self, thread_id: str, files: AsyncIterable[IncomingFile]) -> UploadResult:
        """Store the files of one request. Receives all of them before the first one gets its final name.

        Files without a safe name are skipped.

        Raises:
            ThreadIdInvalid: The id cannot be a folder name.
            UploadTooLarge: Too many or too large. None of the request's files are stored, and older files stay
                unchanged.
            UploadError: A file cannot be written. The remaining files are not stored.
        """
        store = self._store(thread_id)
        async with self._shared(thread_id):
            with self._metered(thread_id) as meter:
                return await self._accept(UploadBatch(store, self.limits, meter), store, files)

    @contextmanager
    def _metered(self, thread_id: str) -> Iterator[SpaceMeter | None]:
        """Yield the meter of a thread. Concurrent requests share it, so that the limit applies to their sum."""
        if thread_id not in self._meters:
            self._meters[thread_id] = self._folders.open_meter(thread_id), 0
        meter, users = self._meters[thread_id]
        self._meters[thread_id] = meter, users + 1
        try:
            yield meter
        finally:
            _, users = self._meters.pop(thread_id)
            if users > 1:
                self._meters[thread_id] = meter, users - 1

    async def _accept(
        self, batch: UploadBatch, store: UploadStore, files: AsyncIterable[IncomingFile]
    ) -> UploadResult:
        try:
            with _os_errors_explained():
                async for file in files:
                    await batch.receive(file)
                kept, skipped = await anyio.to_thread.run_sync(self._commit, store, batch.received)
        finally:
            with anyio.CancelScope(shield=True):
                await anyio.to_thread.run_sync(batch.discard)
        if self._converts():
            kept = await self._convert_all(store, kept)
        return UploadResult(files=tuple(kept), skipped=(*batch.skipped, *skipped))

    def sweep(self) -> None:
        """Remove what interrupted uploads of an earlier process left in any thread. Blocking."""
        try:
            for folders in self._folders.all_folders():
                self._sweep(folders)
        except OSError as error:
            log.warning("cannot remove interrupted uploads: %s", error)

    def _sweep(self, folders: ThreadFolders) -> None:
        try:
            UploadStore(folders).sweep(time.time() - self._opened_at + CLOCK_TICK_S)
        except OSError as error:
            log.warning("cannot remove interrupted uploads: %s", error)

    def snapshot(self, thread_id: str) -> UploadSnapshot:
        """Take a snapshot of a thread's uploads, for the model. Blocking.

        Raises:
            ThreadIdInvalid: The id cannot be a folder name.
        """
        return UploadSnapshot(self._store(thread_id), self.images)

    async def list_files(self, thread_id: str) -> list[StoredUpload]:
        """Return a thread's files by name, including text versions; empty if it has no folder.

        Raises:
            ThreadIdInvalid: The id cannot be a folder name.
        """
        store = self._store(thread_id)
        await self._mirror.fetch(thread_area(thread_id))
        return await anyio.to_thread.run_sync(_list_store, store)

    async def delete(self, thread_id: str, filename: str) -> None:
        """Delete a file, and the text version made from it.

        Raises:
            ThreadIdInvalid: The id cannot be a folder name.
            UploadNotAllowed: The name is a path.
            UploadNotFound: The file does not exist.
        """
        if not is_basename(filename):
            raise UploadNotAllowed("This is a path, not a file name.")
        store = self._store(thread_id)
        async with self._shared(thread_id):
            with _os_errors_explained():
                await anyio.to_thread.run_sync(self._delete, store, filename)

    @asynccontextmanager
    async def _shared(self, thread_id: str) -> AsyncIterator[None]:
        """Update the local files before the block, and store the block's changes afterwards. Raises UploadError."""
        try:
            async with stored_after(self._mirror, thread_area(thread_id)):
                yield
        except StoreError as error:
            log.warning("cannot store uploads: %s", error)
            text = "The files could not be saved: the file storage cannot be reached."
            raise UploadError(text) from error

    def _store(self, thread_id: str) -> UploadStore:
        return UploadStore(self._folders.folders(thread_id))

    def _commit(
        self, store: UploadStore, arrived: Sequence[ReceivedFile]
    ) -> tuple[list[StoredUpload], list[str]]:
        kept, skipped = [], []
        if not arrived:
            return [], []
        with self._lock:
            for file in arrived:
                try:
                    store.commit(file.staged, file.name)
                except UploadNotAllowed as error:
                    log.warning("upload skipped: %s", error)
                    skipped.append(file.name)
                    continue
                store.remove_text_version(file.name)
                store.forget_text_version(file.name)
                kept.append(file)
            store.sweep()
            entries = store.entries()
        stored = [
            replace(_stored_upload(entries[file.name]), original_name=file.original)
            for file in kept
            if file.name in entries
        ]
        return stored, skipped

    def _delete(self, store: UploadStore, name: str) -> None:
        with self._lock:
            if not store.remove(name):
                raise UploadNotFound(f"There is no uploaded file with this name: {name}")
            store.remove_text_version(name)
            store.forget_text_version(name)

    async def _convert_all(
        self, store: UploadStore, files: Sequence[StoredUpload]
    ) -> list[StoredUpload]:
        """Convert the documents among the files. Keeps documents that cannot be converted."""
        done = {f.name: f for f in files}

        async def convert(file: StoredUpload) -> None:
            made = await self._convert(store, file.name)
            done[file.name] = replace(file, markdown=made.markdown, markdown_error=made.error)

        documents = [file for file in files if suffix_of(file.name) in CONVERTIBLE]
        for file in documents:
            done[file.name] = replace(file, markdown_error=TOO_SLOW)
        with anyio.move_on_after(ALL_CONVERTED_S):
            async with anyio.create_task_group() as group:
                for file in documents:
                    group.start_soon(convert, file)
        return list(done.values())

    async def _convert(self, store: UploadStore, name: str) -> ConversionRecord:
        try:
            descriptor, entry = await anyio.to_thread.run_sync(store.open_document, name)
        except FileNotFoundError:
            return ConversionRecord(error="the document was removed")
        try:
            text = await self._converter.convert(descriptor, suffix_of(name))
        except ConversionFailed as error:
            log.warning("document not converted: %s", error)
            return await anyio.to_thread.run_sync(self._save_failure, store, entry, str(error))
        finally:
            os.close(descriptor)
        return await anyio.to_thread.run_sync(self._store_text, store, entry, text)

    def _save_failure(self, store: UploadStore, entry: UploadEntry, error: str) -> ConversionRecord:
        made = ConversionRecord(error=error)
        with self._lock:
            if _is_unchanged(store, entry):
                store.save_conversion(entry.name, made)
        return made

    def _store_text(self, store: UploadStore, entry: UploadEntry, text: str) -> ConversionRecord:
        with self._lock:
            if not _is_unchanged(store, entry):
                return ConversionRecord(error="the document was replaced in the meantime")
            try:
                made = ConversionRecord(markdown=store.store_text(text, entry.name))
            except (OSError, UploadNotAllowed) as error:
                log.warning("text version not stored: %s", error)
                return ConversionRecord(error="its text version could not be saved")
            store.save_conversion(entry.name, made)
        return made


@contextmanager
def _os_errors_explained() -> Iterator[None]:
    """Turn an OSError into an UploadError without host paths."""
    try:
        yield
    except OSError as error:
        full = error.errno in (errno.ENOSPC, errno.EDQUOT)
        reason = "no space is left" if full else "the folder cannot be used"
        log.exception("cannot write uploads")
        raise UploadError(f"The files could not be saved: {reason}.") from error


def _is_unchanged(store: UploadStore, entry: UploadEntry) -> bool:
    now = store.entries().get(entry.name)
    return now is not None and now.version == entry.version


def _list_store(store: UploadStore) -> list[StoredUpload]:
    record = store.conversions()
    return [
        replace(
            _stored_upload(entry),
            markdown=record[name].markdown if name in record else None,
            markdown_error=record[name].error if name in record else None,
        )
        for name, entry in store.entries().items()
    ]


def _stored_upload(entry: UploadEntry) -> StoredUpload:
    modified = datetime.fromtimestamp(entry.modified_s, UTC)
    return StoredUpload(name=entry.name, size=entry.size, modified=modified)
