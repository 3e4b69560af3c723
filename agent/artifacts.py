"""Opening a thread's files for people: no path leads out, no link is followed."""

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

from anyio import to_thread

from agent.errors import ArchiveMemberTooLarge, PathNotAllowed
from agent.paths import USER_DATA, normalize_path, relative_parts
from agent.thread_storage import ThreadStorage

CHUNK_BYTES = 256 * 1024

_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


MAX_MEMBER_BYTES = 16 * 1024 * 1024
"""Largest part of an archive that is shown; looked at before anything is unpacked."""

MAX_ARCHIVE_BYTES = 100 * 1024 * 1024

_NOT_A_MEMBER = (
    KeyError, zipfile.BadZipFile, zlib.error, lzma.LZMAError, NotImplementedError, RuntimeError, EOFError, OSError,
    ValueError,
)  # fmt: skip
"""What the archive module raises for archives and parts that it cannot read, encrypted ones among them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ArchiveMember:
    """A part of an archive, unpacked."""

    name: str
    content: bytes

    @property
    def mime(self) -> str:
        """The type that the name suggests."""
        return guess_mime_type(self.name)

    @property
    def charset(self) -> str:
        """Of a text."""
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
        """The type that the name suggests."""
        return guess_mime_type(self.name)

    @property
    def raw(self) -> io.FileIO:
        """The file itself; it is closed with this."""
        return self._file

    def close(self) -> None:
        """Close the file; closing it again does nothing."""
        self._file.close()

    def member(self, name: str) -> "ArchiveMember":
        """Unpack one part of the archive that this is. Blocking.

        Raises:
            FileNotFoundError: it is no archive, or has no such part.
            ArchiveMemberTooLarge: the part, or the archive, is too large to be unpacked for a look.
        """
        if self.size_bytes > MAX_ARCHIVE_BYTES:
            raise ArchiveMemberTooLarge
        try:
            with zipfile.ZipFile(self._file) as archive:
                part = archive.getinfo(_part_named(name, archive.namelist()))
                if part.is_dir():
                    raise FileNotFoundError(name)
                if part.file_size > MAX_MEMBER_BYTES:
                    raise ArchiveMemberTooLarge
                with archive.open(part) as file:
                    return ArchiveMember(
                        name=name.rpartition("/")[2], content=file.read(MAX_MEMBER_BYTES)
                    )
        except _NOT_A_MEMBER as error:
            raise FileNotFoundError(name) from error

    async def read(self) -> AsyncIterator[bytes]:
        """Yield the bytes, at most as many as there were at opening."""
        left = self.size_bytes
        while left > 0:
            chunk = await to_thread.run_sync(self._file.read, min(CHUNK_BYTES, left))
            if not chunk:
                return
            left -= len(chunk)
            yield chunk


def open_artifact(
    folders: ThreadStorage, thread_id: str, path: str
) -> ArtifactFile | ArchiveMember:
    """Open a file of a thread, or unpack a part of a `.skill` file. Blocking.

    Args:
        folders: The threads' files.
        thread_id: The thread.
        path: As the agent sees it, below /mnt/user-data; a part of a `.skill` file is named behind the file.

    Raises:
        ThreadIdInvalid: The id cannot be one.
        PathNotAllowed: The path may not be read.
        FileNotFoundError: There is no such file.
        IsADirectoryError: It is not a regular file.
        ArchiveMemberTooLarge: The part of the archive is too large.
    """
    way = relative_parts(normalize_path(path), USER_DATA)
    if way is None:
        raise PathNotAllowed(f"Only files below {USER_DATA} can be read.")
    return _found(folders.folders(thread_id).user_data, way)


def _found(folder: Path, way: tuple[str, ...]) -> ArtifactFile | ArchiveMember:
    try:
        return open_beneath(folder, way)
    except FileNotFoundError:
        archive, inner = _split(way)
        if not inner:
            raise
        file = open_beneath(folder, archive)
    try:
        return file.member("/".join(inner))
    finally:
        file.close()


def _split(way: tuple[str, ...]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Divide a path behind the first `.skill` file on the way; the second part is empty where there is none before.

    >>> _split(("outputs", "a.skill", "SKILL.md")), _split(("outputs", "a.skill"))
    ((('outputs', 'a.skill'), ('SKILL.md',)), (('outputs', 'a.skill'), ()))
    """
    for i, part in enumerate(way):
        if part.endswith(".skill"):
            return way[: i + 1], way[i + 1 :]
    return way, ()


def guess_mime_type(name: str) -> str:
    """Return the type that a name suggests.

    >>> guess_mime_type("a.png"), guess_mime_type("SKILL.md"), guess_mime_type("a")
    ('image/png', 'text/markdown', 'application/octet-stream')
    """
    return mimetypes.guess_type(name)[0] or "application/octet-stream"


def open_beneath(folder: Path, parts: Sequence[str]) -> ArtifactFile:
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
    return ArtifactFile(descriptor, parts[-1], status.st_size)


def _step(name: str, folder: int | None, flags: int) -> int:
    try:
        return os.open(name, flags, dir_fd=folder)
    except OSError as error:
        raise FileNotFoundError from error


def _part_named(name: str, parts: Sequence[str]) -> str:
    """Return the part that a name means: the archive may hold everything in one folder.

    >>> _part_named("SKILL.md", ["mine/", "mine/SKILL.md"])
    'mine/SKILL.md'
    """
    if name in parts:
        return name
    return next((part for part in parts if part.partition("/")[2] == name), name)


def _charset(head: bytes) -> str:
    return "utf-16" if head.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)) else "utf-8"
