"""Copies single files between a folder and the bucket. Blocking, for worker threads."""

import logging
import os
import secrets
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path

from store.files import tree
from store.files.bucket import CHUNK_BYTES, Bucket
from store.files.comparison import FetchPlan
from store.files.index import KnownFile
from store.files.rows import StoredFile
from store.files.tree import LocalFile

log = logging.getLogger(__name__)


def download(bucket: Bucket, file: StoredFile, folder: Path) -> Path:
    """Copy the content of a file into a new file in `folder`; return its path.

    Raises:
        FilesUnavailable, ObjectMissing: The content is not available.
        OSError: It cannot be written.
    """
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    path = folder / secrets.token_hex(16)
    with ExitStack() as stack:
        stack.callback(path.unlink, missing_ok=True)
        with path.open("xb") as target:
            if file.object:
                for chunk in bucket.chunks(file.object, file.size):
                    target.write(chunk)
        stack.pop_all()
    return path


def upload(bucket: Bucket, area: str, root: Path, path: str, local: LocalFile) -> KnownFile | None:
    """Store the content of a file; for a folder or link, only return its row.

    Each content is a new object, so the stored content stays unchanged until the row changes.

    Returns:
        The stored file; None if it is gone or must not be read.

    Raises:
        FilesUnavailable: It cannot be stored.
    """
    if local.kind != "file":
        stored = StoredFile(path=path, kind=local.kind, mode=local.mode, target=local.target)
        return KnownFile(stored=stored, changed_ns=0)
    try:
        descriptor = tree.open_file(root, path)
    except OSError as error:
        if not isinstance(error, FileNotFoundError):
            log.warning("%s: %s cannot be read and is not stored: %s", area, path, error.strerror)
        return None
    try:
        before = os.fstat(descriptor)
        content = _Content(descriptor)
        name = _put(bucket, area, content, before.st_size)
        after = os.fstat(descriptor)
    finally:
        os.close(descriptor)
    stored = StoredFile(
        path=path,
        kind="file",
        object=name,
        size=content.size,
        mode=before.st_mode & 0o7777,
        modified_ns=before.st_mtime_ns,
    )
    # A file that changed while it was read is stored again the next time.
    is_settled = before.st_ctime_ns == after.st_ctime_ns
    return KnownFile(stored=stored, changed_ns=before.st_ctime_ns if is_settled else 0)


class _Content:
    """The bytes of an open file, and how many of them were read."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self.size = 0

    def __iter__(self) -> Iterator[bytes]:
        while chunk := os.pread(self._descriptor, CHUNK_BYTES, self.size):
            self.size += len(chunk)
            yield chunk


def _put(bucket: Bucket, area: str, content: _Content, size: int) -> str:
    """Store content under a new name and return the name; "" for empty content."""
    chunks = iter(content)
    if size > CHUNK_BYTES:
        name = f"{area}/{secrets.token_hex(16)}"
        bucket.put(name, chunks)
        return name
    # The size now: the file may have grown.
    whole = next(chunks, b"")
    if not whole:
        return ""
    name = f"{area}/{secrets.token_hex(16)}"
    bucket.put(name, whole)
    return name


def apply(root: Path, plan: FetchPlan, received: Mapping[str, Path]) -> dict[str, KnownFile]:
    """Carry out a plan; return the entries of all stored files.

    Args:
        root: The folder of the area; created if needed.
        plan: The plan.
        received: The contents of files by path; files without one are skipped.
    """
    known = dict(plan.known)
    if plan.wanted:
        root.mkdir(mode=0o700, parents=True, exist_ok=True)
    for path in plan.removed:
        tree.remove(root, path)
    for file in sorted(plan.wanted, key=lambda wanted: wanted.path):
        content = received.get(file.path)
        if file.kind == "file" and content is None:
            continue
        placed = tree.place(root, file, content)
        if placed is not None:
            known[file.path] = KnownFile(stored=file, changed_ns=placed.changed_ns)
    for file in reversed(plan.wanted):
        if file.kind == "folder":
            tree.set_folder_mode(root, file.path, file.mode)
    return known
