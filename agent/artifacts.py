"""Opens a thread's files for download, without following links."""

import codecs
import io
import lzma
import mimetypes
import os
import stat
import zipfile
import zlib
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import anyio
from anyio import to_thread

from agent.errors import ArchiveMemberTooLarge, PathNotAllowed
from agent.paths import USER_DATA, normalize_path, relative_parts
from agent.thread_storage import ThreadStorage
from agent.zip_limits import has_small_directory
from store.files.mirror import FileMirror, thread_area

mimetypes.init()  # at import, because it reads files and would block the event loop later

CHUNK_BYTES = 256 * 1024

_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


MAX_MEMBER_BYTES = 16 * 1024 * 1024
"""Largest archive member to unpack, bytes. Checked before unpacking."""

MAX_ARCHIVE_BYTES = 100 * 1024 * 1024

_UNREADABLE = (
    KeyError, zipfile.BadZipFile, zlib.error, lzma.LZMAError, NotImplementedError, RuntimeError, EOFError, OSError,
    ValueError,
)  # fmt: skip
"""Errors that zipfile raises for archives and members that it cannot read, including encrypted ones."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ArchiveMember:
    """An unpacked archive member."""

    name: str
    content: bytes

    @property
    def mime(self) -> str:
        """MIME type, guessed from the name."""
        return guess_mime_type(self.name)

    @property
    def charset(self) -> str:
        """Character set, if it is text."""
        return _charset(self.content[:4])


class ArtifactFile:
    """A regular file, opened for reading."""

    def __init__(self, descriptor: int, name: str, size_bytes: int) -> None:
        self._file = io.FileIO(descriptor)
        self.name = name
        self.size_bytes = size_bytes
        self.charset = _charset(os.pread(descriptor, 4, 0))

    @property
    def mime(self) -> str:
        """MIME type, guessed from the name."""
        return guess_mime_type(self.name)

    @property
    def raw(self) -> io.FileIO:
        """The underlying file. `close` closes it."""
        return self._file

    def close(self) -> None:
        """Close the file. Closing it again does nothing."""
        self._file.close()

    def member(self, name: str) -> "ArchiveMember":
        """Unpack a member of this archive. Blocking.

        Raises:
            FileNotFoundError: It is not an archive, or has no such member.
            ArchiveMemberTooLarge: The member or the archive is too large.
        """
        if self.size_bytes > MAX_ARCHIVE_BYTES or not has_small_directory(self._file):
            raise ArchiveMemberTooLarge
        try:
            with zipfile.ZipFile(self._file) as archive:
                part = archive.getinfo(_member_name(name, archive.namelist()))
                if part.is_dir():
                    raise FileNotFoundError(name)
                if part.file_size > MAX_MEMBER_BYTES:
                    raise ArchiveMemberTooLarge
                with archive.open(part) as file:
                    return ArchiveMember(
                        name=name.rpartition("/")[2], content=file.read(MAX_MEMBER_BYTES)
                    )
        except _UNREADABLE as error:
            raise FileNotFoundError(name) from error

    async def read(self) -> AsyncIterator[bytes]:
        """Yield the content, but not more than the file had when it was opened."""
        left = self.size_bytes
        while left > 0:
            chunk = await to_thread.run_sync(self._file.read, min(CHUNK_BYTES, left))
            if not chunk:
                return
            left -= len(chunk)
            yield chunk


async def fetch_artifact(
    folders: ThreadStorage, mirror: FileMirror, thread_id: str, path: str
) -> ArtifactFile | ArchiveMember:
    """Open the current version of a thread's file. Raises the errors of `open_artifact`, and StoreError."""
    folders.folders(thread_id)  # validates the id
    await mirror.fetch(thread_area(thread_id))
    # Shielded: if the caller were canceled during the call, nobody would close the file.
    with anyio.CancelScope(shield=True):
        found = await to_thread.run_sync(open_artifact, folders, thread_id, path)
    return found  # noqa: RET504 - mypy: a scope may end the block early


def open_artifact(
    folders: ThreadStorage, thread_id: str, path: str
) -> ArtifactFile | ArchiveMember:
    """Open a file of a thread, or unpack a member of a `.skill` file. Blocking.

    Args:
        folders: Threads' folders.
        thread_id: The thread.
        path: Virtual path below /mnt/user-data; for a member of a `.skill` file, the file's path and the member's.

    Raises:
        ThreadIdInvalid: The id is invalid.
        PathNotAllowed: The path is outside /mnt/user-data.
        FileNotFoundError: The file does not exist.
        IsADirectoryError: It is not a regular file.
        ArchiveMemberTooLarge: The member is too large.
    """
    parts = relative_parts(normalize_path(path), USER_DATA)
    if parts is None:
        raise PathNotAllowed(f"Only files below {USER_DATA} can be read.")
    return _open(folders.folders(thread_id).user_data, parts)


def _open(folder: Path, parts: tuple[str, ...]) -> ArtifactFile | ArchiveMember:
    try:
        return open_beneath(folder, parts)
    except FileNotFoundError:
        archive, inner = _split(parts)
        if not inner:
            raise
        file = open_beneath(folder, archive)
    try:
        return file.member("/".join(inner))
    finally:
        file.close()


def _split(parts: tuple[str, ...]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Split a path after its first `.skill` component; without one, the second part is empty.

    >>> _split(("outputs", "a.skill", "SKILL.md")), _split(("outputs", "a.skill"))
    ((('outputs', 'a.skill'), ('SKILL.md',)), (('outputs', 'a.skill'), ()))
    """
    for i, part in enumerate(parts):
        if part.endswith(".skill"):
            return parts[: i + 1], parts[i + 1 :]
    return parts, ()


def guess_mime_type(name: str) -> str:
    """Guess the MIME type from a name.

    >>> guess_mime_type("a.png"), guess_mime_type("SKILL.md"), guess_mime_type("a")
    ('image/png', 'text/markdown', 'application/octet-stream')
    """
    return mimetypes.guess_type(name)[0] or "application/octet-stream"


def open_beneath(folder: Path, parts: Sequence[str]) -> ArtifactFile:
    """Open the regular file at `parts` below `folder`, without following links. Blocking.

    Raises:
        FileNotFoundError: It does not exist, or its path contains a link.
        IsADirectoryError: It is not a regular file.
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
    return ArtifactFile(descriptor, parts[-1], status.st_size)


def _step(name: str, folder: int | None, flags: int) -> int:
    try:
        return os.open(name, flags, dir_fd=folder)
    except OSError as error:
        raise FileNotFoundError from error


def _member_name(name: str, members: Sequence[str]) -> str:
    """Return the member with this name. If the archive has a single top folder, also look in it.

    >>> _member_name("SKILL.md", ["mine/", "mine/SKILL.md"])
    'mine/SKILL.md'
    """
    if name in members:
        return name
    return next((part for part in members if part.partition("/")[2] == name), name)


def _charset(head: bytes) -> str:
    return "utf-16" if head.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)) else "utf-8"
