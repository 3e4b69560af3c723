"""Store of one thread's uploads on disk. Blocking: runs in worker threads.

The agent can also write to this folder and create links in it. So this module opens the folder from the thread's root
without following links, and opens, replaces and removes files relative to the folder's descriptor.
"""

import json
import os
import stat
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from secrets import token_hex

from agent.errors import UploadNotAllowed
from agent.thread_storage import ThreadFolders
from agent.uploads.names import (
    MAX_NAME_BYTES,
    is_basename,
    is_staging,
    markdown_name,
    numbered,
)

RECORDS_FILE = "conversions.json"
"""File in the thread's root, which the agent does not see. Maps each document to its text version, or to the reason
why it has none."""

MAX_RECORD_BYTES = 1_000_000
STALE_S = 3600.0  # an upload without progress for this long was interrupted by a crash

_DIR = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_FILE = os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC  # NONBLOCK: opening a FIFO must not hang


@dataclass(frozen=True, slots=True, kw_only=True)
class UploadEntry:
    """A regular file in the folder. Its `version` changes with its content."""

    name: str
    size: int
    modified_s: float
    version: tuple[int, int, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class ConversionRecord:
    """Result of a conversion: the name of the text version, or why it failed."""

    markdown: str | None = None
    error: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class StagedFile:
    """A file with a temporary name in the thread's root."""

    staging: str
    descriptor: int


class UploadStore:
    """The uploads folder of one thread, and the results of its conversions."""

    def __init__(self, folders: ThreadFolders) -> None:
        self._folders = folders

    def stage(self) -> StagedFile:
        """Create a temporary file outside the folder that the agent sees. Creates the folders if necessary."""
        self._folders.create()
        name = f".upload-{token_hex(8)}.part"
        with self._root() as root:
            descriptor = os.open(
                name, os.O_WRONLY | os.O_CREAT | os.O_EXCL | _FILE, 0o644, dir_fd=root
            )
        return StagedFile(staging=name, descriptor=descriptor)

    def commit(self, staged: StagedFile, name: str) -> None:
        """Rename a temporary file to its final name. Replaces a regular file with that name.

        Raises:
            UploadNotAllowed: The name belongs to a link, a hard-linked file or a special file.
        """
        with self._root() as root, self._folder() as folder:
            _require_replaceable(name, folder)
            os.replace(staged.staging, name, src_dir_fd=root, dst_dir_fd=folder)

    def store_text(self, text: str, document: str) -> str:
        """Store the text version of a document under a free name. Return the name."""
        staged = self.stage()
        try:
            with os.fdopen(staged.descriptor, "wb") as file:
                file.write(text.encode("utf-8"))
            name = self._reserve_name(markdown_name(document))
            self.commit(staged, name)
        finally:
            self.discard(staged)
        return name

    def discard(self, staged: StagedFile) -> None:
        """Remove a temporary file. Does nothing if it was renamed."""
        with suppress(FileNotFoundError), self._root() as root:
            os.unlink(staged.staging, dir_fd=root)

    def sweep(self, stale_s: float = STALE_S) -> None:
        """Remove temporary files that have had no progress for this long."""
        with self._root() as root:
            for name in _names(root):
                if is_staging(name) and _age_s(name, root) >= stale_s:
                    with suppress(FileNotFoundError):
                        os.unlink(name, dir_fd=root)

    def _reserve_name(self, name: str) -> str:
        """Reserve a free name with an empty file. The name gets a number if necessary."""
        with self._folder() as folder:
            for number in range(1000):
                candidate = numbered(name, number)
                with suppress(FileExistsError):
                    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | _FILE
                    os.close(os.open(candidate, flags, 0o644, dir_fd=folder))
                    return candidate
        raise UploadNotAllowed(f"There is no free name for the text version: {name}")

    def entries(self) -> dict[str, UploadEntry]:
        """Return the regular files by name, sorted. Empty if the folder does not exist."""
        found = []
        with suppress(FileNotFoundError, NotADirectoryError), self._folder() as folder:
            for name in _names(folder):
                with suppress(FileNotFoundError):
                    status = os.stat(name, dir_fd=folder, follow_symlinks=False)
                    if stat.S_ISREG(status.st_mode) and not is_staging(name):
                        found.append(_entry(name, status))
        return {entry.name: entry for entry in sorted(found, key=lambda entry: entry.name)}

    @contextmanager
    def open_file(self, name: str) -> Iterator[int]:
        """Open a regular file for reading.

        Raises:
            FileNotFoundError: The file does not exist.
        """
        with self._folder() as folder:
            descriptor = _open_regular(name, folder)
        try:
            yield descriptor
        finally:
            os.close(descriptor)

    def open_document(self, name: str) -> tuple[int, UploadEntry]:
        """Open a regular file. The caller closes the descriptor.

        Raises:
            FileNotFoundError: The file does not exist.
        """
        with self._folder() as folder:
            descriptor = _open_regular(name, folder)
        return descriptor, _entry(name, os.fstat(descriptor))

    def read(self, name: str, max_bytes: int) -> bytes:
        """Return the first bytes of a file.

        Raises:
            FileNotFoundError: The file does not exist.
        """
        with self.open_file(name) as descriptor, os.fdopen(os.dup(descriptor), "rb") as file:
            return file.read(max_bytes)

    def remove(self, name: str) -> bool:
        """Remove a regular file. Return whether it existed."""
        if not is_basename(name) or len(name.encode("utf-8", "replace")) > MAX_NAME_BYTES:
            return False
        with suppress(FileNotFoundError, NotADirectoryError), self._folder() as folder:
            status = os.stat(name, dir_fd=folder, follow_symlinks=False)
            if stat.S_ISREG(status.st_mode):
                os.unlink(name, dir_fd=folder)
                return True
        return False

    def remove_text_version(self, document: str) -> None:
        """Remove the text version of a document and its conversion result."""
        record = self.conversions()
        known = record.pop(document, None)
        if known is None:
            return
        if known.markdown is not None:
            self.remove(known.markdown)
        self._write_conversions(record)

    def conversions(self) -> dict[str, ConversionRecord]:
        """Return the conversion results by document. An unreadable file counts as empty."""
        try:
            with self._root() as root:
                descriptor = _open_regular(RECORDS_FILE, root)
                with os.fdopen(descriptor, "rb") as file:
                    data = json.loads(file.read(MAX_RECORD_BYTES))
        except (OSError, ValueError):
            return {}
        return dict(_conversions(data))

    def save_conversion(self, document: str, conversion: ConversionRecord) -> None:
        """Save a conversion result."""
        self._write_conversions({**self.conversions(), document: conversion})

    def forget_text_version(self, name: str) -> None:
        """Forget that a file is a text version, because it was replaced or removed."""
        record = self.conversions()
        kept = {doc: made for doc, made in record.items() if made.markdown != name}
        if len(kept) != len(record):
            self._write_conversions(kept)

    def _write_conversions(self, record: Mapping[str, ConversionRecord]) -> None:
        data = {doc: {"markdown": c.markdown, "error": c.error} for doc, c in record.items()}
        staged = self.stage()
        try:
            with os.fdopen(staged.descriptor, "w", encoding="utf-8") as file:
                json.dump(data, file, ensure_ascii=False)
            with self._root() as root:
                os.replace(staged.staging, RECORDS_FILE, src_dir_fd=root, dst_dir_fd=root)
        finally:
            self.discard(staged)

    @contextmanager
    def _root(self) -> Iterator[int]:
        descriptor = os.open(self._folders.root, _DIR)
        try:
            yield descriptor
        finally:
            os.close(descriptor)

    @contextmanager
    def _folder(self) -> Iterator[int]:
        """Open the uploads folder. If its path contains a link, the folder counts as missing."""
        with self._root() as root:
            above = os.open(self._folders.user_data.name, _DIR, dir_fd=root)
            try:
                descriptor = os.open(self._folders.uploads.name, _DIR, dir_fd=above)
            finally:
                os.close(above)
        try:
            yield descriptor
        finally:
            os.close(descriptor)


def _names(folder: int) -> list[str]:
    with os.scandir(folder) as found:
        return [entry.name for entry in found]


def _entry(name: str, status: os.stat_result) -> UploadEntry:
    return UploadEntry(
        name=name,
        size=status.st_size,
        modified_s=status.st_mtime,
        version=(status.st_ino, status.st_mtime_ns, status.st_size),
    )


def _open_regular(name: str, folder: int) -> int:
    if not is_basename(name):
        raise FileNotFoundError(name)
    try:
        descriptor = os.open(name, os.O_RDONLY | _FILE, dir_fd=folder)
    except OSError as error:
        raise FileNotFoundError(name) from error
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise FileNotFoundError(name)
    return descriptor


def _require_replaceable(name: str, folder: int) -> None:
    try:
        status = os.stat(name, dir_fd=folder, follow_symlinks=False)
    except FileNotFoundError:
        return
    if not stat.S_ISREG(status.st_mode):
        raise UploadNotAllowed(f"This name belongs to something other than a regular file: {name}")
    if status.st_nlink > 1:
        raise UploadNotAllowed(f"The file with this name has other hard links: {name}")


def _age_s(name: str, folder: int) -> float:
    try:
        return time.time() - os.stat(name, dir_fd=folder, follow_symlinks=False).st_mtime
    except FileNotFoundError:
        return 0.0


def _conversions(data: object) -> Iterator[tuple[str, ConversionRecord]]:
    for name, made in data.items() if isinstance(data, dict) else ():
        if isinstance(made, dict):
            yield (
                str(name),
                ConversionRecord(markdown=made.get("markdown"), error=made.get("error")),
            )
