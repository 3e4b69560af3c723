"""BucketMirror: a node's copy of files. Their contents are in a bucket, their names in the database.

Contents are stored before the rows that name them. So a node that dies in between loses nothing that it reported as
stored, but leaves objects that no row names (`housekeeping.py`).
"""

import logging
import secrets
import shutil
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from datetime import datetime
from functools import partial
from pathlib import Path

import anyio
import anyio.to_thread
from typing_extensions import override

from store.errors import FilesUnavailable, ObjectMissing
from store.files import transfers
from store.files.bucket import Bucket
from store.files.comparison import FetchPlan, LocalChanges, find_changes, plan_fetch
from store.files.index import AreaIndex, IndexFiles, KnownFile
from store.files.mirror import KEYS, THREADS, FileArea, FileMirror
from store.files.rows import AreaFiles, StoredFile, StoredFileRows
from store.files.tree import LocalFile, list_tree
from store.transaction import T

TRANSFERS = 16
"""Maximum number of files copied at the same time, in all areas together."""

SETTLED_NS = 10_000_000
"""Two changes to a file have different modification times if they are further apart than this, nanoseconds."""

CHECK_S = 5.0
"""How long to reuse the result of a check, seconds."""

INDEX_FOLDER = ".index"
RECEIVED_FOLDER = ".received"

log = logging.getLogger(__name__)


class BucketMirror(FileMirror):
    """Copies areas between a folder and a bucket.

    Args:
        files: The folder of the local copies.
        rows: The names of the files.
        bucket: Their contents.
        probe: The bucket, for checks that do not wait.
    """

    is_remote = True

    def __init__(self, files: Path, rows: StoredFileRows, bucket: Bucket, probe: Bucket) -> None:
        self._files = files
        self._rows = rows
        self._bucket = bucket
        self._probe = probe
        self._indexes = IndexFiles(files / INDEX_FOLDER)
        self._received = files / RECEIVED_FOLDER
        self._process = secrets.token_hex(8)
        self._limiter = anyio.CapacityLimiter(TRANSFERS)
        self._locks: dict[str, tuple[anyio.Lock, int]] = {}
        self._checked = (0.0, "")

    @override
    async def fetch(self, area: FileArea) -> None:
        async with self.locked(area.name):
            await self._fetch(area)

    @override
    async def store(self, area: FileArea) -> None:
        async with self.locked(area.name):
            index = await self._fetch(area)
            await self._store(area, index)

    @override
    async def store_if_latest(self, area: FileArea) -> bool:
        async with self.locked(area.name):
            index = await anyio.to_thread.run_sync(self._indexes.load, area.name)
            is_stored = await self._store(area, index, is_next=True)
            if not is_stored:
                await self._fetch(area, drops_changes=True)
            return is_stored

    @override
    async def remove(self, area: FileArea) -> None:
        async with self.locked(area.name):
            unused = await self._rows.remove_area(area.name)
            await anyio.to_thread.run_sync(self._save_index, area, 0, {})
            await self._delete(unused)

    @override
    async def list_areas(self, prefix: str) -> list[str]:
        return await self._rows.list_areas(prefix)

    @override
    async def check(self) -> None:
        checked_at, problem = self._checked
        if time.monotonic() - checked_at > CHECK_S:
            problem = await anyio.to_thread.run_sync(self._find_problem, limiter=self._limiter)
            self._checked = (time.monotonic(), problem)
        if problem:
            raise FilesUnavailable(problem)

    @asynccontextmanager
    async def locked(self, area: str) -> AsyncIterator[None]:
        """Let one task at a time compare and copy an area."""
        lock, users = self._locks.get(area, (anyio.Lock(), 0))
        self._locks[area] = (lock, users + 1)
        try:
            async with lock:
                yield
        except OSError as error:
            log.exception("the local copy of %s cannot be used", area)
            text = f"the local copy cannot be written ({error.strerror})"
            raise FilesUnavailable(text) from error
        finally:
            users = self._locks[area][1] - 1
            self._locks[area] = (lock, users)
            if not users:
                del self._locks[area]

    # ---- cleaning up ---------------------------------------------------------------------------

    async def delete_unnamed(self, before: datetime) -> int:
        """Delete objects that were stored before a time and that no row names; return their number.

        Nodes that are killed between an upload and the change of the rows leave such objects behind.

        Raises:
            StoreError: Some could not be checked.
        """
        count = 0
        parts = self._bucket.list_older(before)
        while (names := await self._in_thread(partial(next, parts, None))) is not None:
            unnamed = await self._find_unnamed(names)
            await self._in_thread(partial(self._bucket.delete, unnamed))
            count += len(unnamed)
        return count

    async def _find_unnamed(self, names: Iterable[str]) -> list[str]:
        by_area: dict[str, set[str]] = {}
        for name in names:
            area = name.rpartition("/")[0]
            if area and area != KEYS:
                by_area.setdefault(area, set()).add(name)
        unnamed: list[str] = []
        for area, found in by_area.items():
            stored = await self._rows.list_files(area)
            unnamed += found - {file.object for file in stored.files.values()}
        return unnamed

    async def drop_unused(self, before_s: float) -> int:
        """Delete this node's copies of threads that were last used before a time, Unix seconds; return their number."""
        unused = await anyio.to_thread.run_sync(self._indexes.unused_since, before_s)
        threads = [area for area in unused if area.startswith(THREADS)]
        for area in threads:
            async with self.locked(area):
                await anyio.to_thread.run_sync(self._drop, area)
        return len(threads)

    def _drop(self, area: str) -> None:
        # A file that cannot be deleted is compared when the thread is used again.
        self._indexes.remove(area)
        shutil.rmtree(self._files / area, ignore_errors=True)

    def _find_problem(self) -> str:
        try:
            self._probe.check()
        except FilesUnavailable as error:
            return str(error)
        return ""

    # ---- from the bucket -----------------------------------------------------------------------

    async def _fetch(self, area: FileArea, *, drops_changes: bool = False) -> AreaIndex:
        """Update the local copy; return its index."""
        version = await self._rows.version(area.name)
        index = await anyio.to_thread.run_sync(self._indexes.load, area.name)
        if (index.process, index.version) == (self._process, version):
            return index
        # Drops changes that an earlier process did not store.
        drops = drops_changes or index.process != self._process
        try:
            return await self._copy(area, index, drops_changes=drops)
        except ObjectMissing:
            # Replaced after its name was read.
            return await self._copy(area, index, drops_changes=drops, skips_missing=True)

    async def _copy(
        self, area: FileArea, index: AreaIndex, *, drops_changes: bool, skips_missing: bool = False
    ) -> AreaIndex:
        stored = await self._rows.list_files(area.name)
        work = partial(self._plan, area, index, stored, drops_changes=drops_changes)
        plan = await anyio.to_thread.run_sync(work)
        received: dict[str, Path] = {}
        try:
            await self._receive(plan.wanted, received, skips_missing=skips_missing)
            return await anyio.to_thread.run_sync(self._apply, area, stored.version, plan, received)
        finally:
            with anyio.CancelScope(shield=True):
                await anyio.to_thread.run_sync(_remove_all, received.values())

    def _plan(
        self, area: FileArea, index: AreaIndex, stored: AreaFiles, *, drops_changes: bool
    ) -> FetchPlan:
        return plan_fetch(self._list(area), index.files, stored.files, drops_changes=drops_changes)

    async def _receive(
        self, wanted: Iterable[StoredFile], received: dict[str, Path], *, skips_missing: bool
    ) -> None:
        """Copy the contents of files into new files and add these to `received` by path."""

        async def receive(file: StoredFile) -> None:
            work = partial(transfers.download, self._bucket, file, self._received)
            try:
                received[file.path] = await self._in_thread(work)
            except ObjectMissing as error:
                if not skips_missing:
                    raise
                log.error("The content of %s is lost: %s (%s)", file.path, error, file.object)  # noqa: TRY400

        await _run_all([partial(receive, file) for file in wanted if file.kind == "file"])

    def _apply(
        self, area: FileArea, version: int, plan: FetchPlan, received: Mapping[str, Path]
    ) -> AreaIndex:
        known = transfers.apply(self._root(area), plan, received)
        return self._save_index(area, version, known)

    # ---- to the bucket -------------------------------------------------------------------------

    async def _settle(self, changes: LocalChanges) -> None:
        """Wait until any further change to the files would get a later modification time."""
        latest = max((file.changed_ns for file in changes.changed.values()), default=0)
        wait_ns = min(latest + SETTLED_NS - time.time_ns(), SETTLED_NS)
        if wait_ns > 0:
            await anyio.sleep(wait_ns / 1e9)

    async def _store(self, area: FileArea, index: AreaIndex, *, is_next: bool = False) -> bool:
        """Store changes on disk; with `is_next`, return False instead if the stored area differs from the index."""
        local = await anyio.to_thread.run_sync(self._list, area)
        changes = find_changes(local, index.files)
        if changes.is_empty:
            return True
        await self._settle(changes)
        uploaded = await self._upload(area, changes)
        stored = [known.stored for known in uploaded.values()]
        if not stored and not changes.removed:
            return True
        previous = max(index.version, 0)
        after = previous if is_next else None
        change = await self._rows.save(area.name, stored, changes.removed, after=after)
        with anyio.CancelScope(shield=True):
            if change is None:
                await self._delete(tuple(file.object for file in stored if file.object))
                return False
            known = {
                path: file for path, file in index.files.items() if path not in changes.removed
            }
            # Another node may have stored changes since the copy was updated. They are fetched later.
            version = change.version if change.previous == previous else index.version
            save = partial(self._save_index, area, version, {**known, **uploaded})
            await anyio.to_thread.run_sync(save)
            await self._delete(change.unused)
        return True

    async def _upload(self, area: FileArea, changes: LocalChanges) -> dict[str, KnownFile]:
        """Store the contents of changed files; return those that still exist."""
        uploaded: dict[str, KnownFile] = {}

        async def upload(path: str, file: LocalFile) -> None:
            work = partial(transfers.upload, self._bucket, area.name, self._root(area), path, file)
            if (known := await self._in_thread(work)) is not None:
                uploaded[path] = known

        await _run_all([partial(upload, path, file) for path, file in changes.changed.items()])
        return uploaded

    async def _delete(self, unused: tuple[str, ...]) -> None:
        """Delete objects; the sweep finds those that cannot be deleted now."""
        try:
            await self._in_thread(partial(self._bucket.delete, unused))
        except FilesUnavailable as error:
            log.warning("%d objects will be deleted later: %s", len(unused), error)

    # ---- both ----------------------------------------------------------------------------------

    async def _in_thread(self, work: Callable[[], T]) -> T:
        """Run a call in a worker thread. A canceled caller does not wait for a bucket that does not answer."""
        return await anyio.to_thread.run_sync(work, abandon_on_cancel=True, limiter=self._limiter)

    def _root(self, area: FileArea) -> Path:
        return self._files / area.folder

    def _list(self, area: FileArea) -> dict[str, LocalFile]:
        return list_tree(self._root(area), area.only)

    def _save_index(
        self, area: FileArea, version: int, known: Mapping[str, KnownFile]
    ) -> AreaIndex:
        index = AreaIndex(process=self._process, version=version, files=known)
        self._indexes.save(area.name, index)
        return index


async def _run_all(jobs: Sequence[Callable[[], Awaitable[None]]]) -> None:
    """Run jobs concurrently; the first error ends the others and is raised."""
    errors: list[Exception] = []

    async def run(job: Callable[[], Awaitable[None]]) -> None:
        try:
            await job()
        except (FilesUnavailable, OSError) as error:
            errors.append(error)
            tasks.cancel_scope.cancel()

    async with anyio.create_task_group() as tasks:
        for job in jobs:
            tasks.start_soon(run, job)
    if errors:
        raise errors[0]


def _remove_all(paths: Iterable[Path]) -> None:
    """Delete received files that were not moved into place."""
    for path in paths:
        with suppress(OSError):
            path.unlink(missing_ok=True)
