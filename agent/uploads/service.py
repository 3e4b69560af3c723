"""Takes in what users send, lists it, deletes it, and has documents turned into text."""

import errno
import logging
import os
import threading
from collections.abc import AsyncIterable, Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime

import anyio
import anyio.to_thread

from agent.errors import ConversionFailed, UploadError, UploadNotAllowed, UploadNotFound
from agent.paths import UPLOADS
from agent.thread_storage import ThreadStorage
from agent.uploads.batch import ReceivedFile, UploadBatch, UploadRequestLimits
from agent.uploads.converter import TOO_SLOW, DocumentConverter
from agent.uploads.incoming import IncomingFile
from agent.uploads.names import CONVERTIBLE, is_basename, suffix_of
from agent.uploads.snapshot import UploadSnapshots
from agent.uploads.store import ConversionRecord, UploadEntry, UploadStore

logger = logging.getLogger(__name__)

ALL_CONVERTED_S = 75.0
"""How long the documents of one request may take together; those that are left stay without text. The bus waits
for 90 s of silence."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredUpload:
    """An uploaded file.

    Attributes:
        original_name: Under which name it came, where that is another.
        markdown: The name of its text version.
        markdown_error: Why it has none, where it should.
    """

    name: str
    size: int
    modified: datetime
    original_name: str | None = None
    markdown: str | None = None
    markdown_error: str | None = None

    @property
    def virtual_path(self) -> str:
        """Where the agent sees it."""
        return f"{UPLOADS}/{self.name}"


@dataclass(frozen=True, slots=True, kw_only=True)
class UploadResult:
    """What became of a request: files that are kept, and names whose place was not safe to write to."""

    files: tuple[StoredUpload, ...]
    skipped: tuple[str, ...] = ()


class UploadService:
    """The uploads of all threads.

    Args:
        folders: Where threads' files are.
        converts: Says whether documents are to be turned into text, asked anew for each request.
        converter: Does that.
        limits: What one request may bring.

    Attributes:
        snapshots: What the model is told of them.
    """

    def __init__(
        self,
        folders: ThreadStorage,
        *,
        converts: Callable[[], bool],
        converter: DocumentConverter | None = None,
        limits: UploadRequestLimits | None = None,
    ) -> None:
        self._folders = folders
        self._converts = converts
        self._converter = converter or DocumentConverter()
        self.limits = limits or UploadRequestLimits()
        self.snapshots = UploadSnapshots(folders)
        self._changing = threading.Lock()  # held by worker threads, for moments

    async def accept(self, thread_id: str, files: AsyncIterable[IncomingFile]) -> UploadResult:
        """Keep the files of one request; all have arrived before the first gets its name.

        Files without a safe name are left out without a word.

        Raises:
            ThreadIdInvalid: The id must not become a folder's name.
            UploadTooLarge: Too many or too large; nothing of this request is kept, older files are untouched.
            UploadError: The disk does not take them; nothing more is kept.
        """
        shelf = self._shelf(thread_id)
        batch = UploadBatch(shelf, self.limits)
        try:
            with _explained():
                async for file in files:
                    await batch.receive(file)
                kept, skipped = await anyio.to_thread.run_sync(self._place, shelf, batch.received)
        finally:
            with anyio.CancelScope(shield=True):
                await anyio.to_thread.run_sync(batch.discard)
        if self._converts():
            kept = await self._converted(shelf, kept)
        return UploadResult(files=tuple(kept), skipped=tuple(skipped))

    async def list_files(self, thread_id: str) -> list[StoredUpload]:
        """Return a thread's files by name, text versions included; none when the thread has no folder.

        Raises:
            ThreadIdInvalid: The id must not become a folder's name.
        """
        return await anyio.to_thread.run_sync(_listed, self._shelf(thread_id))

    async def delete(self, thread_id: str, filename: str) -> None:
        """Remove a file, and its text version if that was made from it.

        Raises:
            ThreadIdInvalid: The id must not become a folder's name.
            UploadNotAllowed: The name is a path.
            UploadNotFound: There is no such file.
        """
        if not is_basename(filename):
            raise UploadNotAllowed("This is a path, not the name of an uploaded file.")
        shelf = self._shelf(thread_id)
        with _explained():
            await anyio.to_thread.run_sync(self._delete, shelf, filename)

    def _shelf(self, thread_id: str) -> UploadStore:
        return UploadStore(self._folders.folders(thread_id))

    def _place(
        self, shelf: UploadStore, arrived: Sequence[ReceivedFile]
    ) -> tuple[list[StoredUpload], list[str]]:
        kept, skipped = [], []
        if not arrived:
            return [], []
        with self._changing:
            for file in arrived:
                try:
                    shelf.commit(file.staged, file.name)
                except UploadNotAllowed as error:
                    logger.warning("an upload was skipped: %s", error)
                    skipped.append(file.name)
                    continue
                shelf.remove_text_version(file.name)
                shelf.forget_text_version(file.name)
                kept.append(file)
            shelf.sweep()
            entries = shelf.entries()
        stored = [
            replace(_stored(entries[file.name]), original_name=file.original)
            for file in kept
            if file.name in entries
        ]
        return stored, skipped

    def _delete(self, shelf: UploadStore, name: str) -> None:
        with self._changing:
            if not shelf.remove(name):
                raise UploadNotFound(f"There is no uploaded file of this name: {name}")
            shelf.remove_text_version(name)
            shelf.forget_text_version(name)

    async def _converted(
        self, shelf: UploadStore, files: Sequence[StoredUpload]
    ) -> list[StoredUpload]:
        """Turn the documents among the files into text; a document that has none is kept all the same."""
        done = {f.name: f for f in files}

        async def convert(file: StoredUpload) -> None:
            made = await self._convert(shelf, file.name)
            done[file.name] = replace(file, markdown=made.markdown, markdown_error=made.error)

        documents = [file for file in files if suffix_of(file.name) in CONVERTIBLE]
        for file in documents:
            done[file.name] = replace(file, markdown_error=TOO_SLOW)
        with anyio.move_on_after(ALL_CONVERTED_S):
            async with anyio.create_task_group() as group:
                for file in documents:
                    group.start_soon(convert, file)
        return list(done.values())

    async def _convert(self, shelf: UploadStore, name: str) -> ConversionRecord:
        try:
            descriptor, entry = await anyio.to_thread.run_sync(shelf.open_document, name)
        except FileNotFoundError:
            return ConversionRecord(error="the document was removed")
        try:
            text = await self._converter.convert(descriptor, suffix_of(name))
        except ConversionFailed as error:
            logger.warning("a document was not converted: %s", error)
            return await anyio.to_thread.run_sync(self._note, shelf, entry, str(error))
        finally:
            os.close(descriptor)
        return await anyio.to_thread.run_sync(self._keep_text, shelf, entry, text)

    def _note(self, shelf: UploadStore, entry: UploadEntry, error: str) -> ConversionRecord:
        made = ConversionRecord(error=error)
        with self._changing:
            if _is_there(shelf, entry):
                shelf.save_conversion(entry.name, made)
        return made

    def _keep_text(self, shelf: UploadStore, entry: UploadEntry, text: str) -> ConversionRecord:
        with self._changing:
            if not _is_there(shelf, entry):
                return ConversionRecord(error="the document was replaced meanwhile")
            try:
                made = ConversionRecord(markdown=shelf.store_text(text, entry.name))
            except (OSError, UploadNotAllowed) as error:
                logger.warning("the text of a document was not kept: %s", error)
                return ConversionRecord(error="its text could not be saved")
            shelf.save_conversion(entry.name, made)
        return made


@contextmanager
def _explained() -> Iterator[None]:
    """Turn an OSError into an UploadError that names nothing of this machine."""
    try:
        yield
    except OSError as error:
        full = error.errno in (errno.ENOSPC, errno.EDQUOT)
        reason = "no space is left" if full else "the folder cannot be used"
        logger.exception("uploads: the disk refused")
        raise UploadError(f"The files could not be saved: {reason}.") from error


def _is_there(shelf: UploadStore, entry: UploadEntry) -> bool:
    now = shelf.entries().get(entry.name)
    return now is not None and now.version == entry.version


def _listed(shelf: UploadStore) -> list[StoredUpload]:
    record = shelf.conversions()
    return [
        replace(
            _stored(entry),
            markdown=record[name].markdown if name in record else None,
            markdown_error=record[name].error if name in record else None,
        )
        for name, entry in shelf.entries().items()
    ]


def _stored(entry: UploadEntry) -> StoredUpload:
    modified = datetime.fromtimestamp(entry.modified_s, UTC)
    return StoredUpload(name=entry.name, size=entry.size, modified=modified)
