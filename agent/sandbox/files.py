"""File operations inside mounts. Blocking: run them in worker threads.

Paths are confined twice. First, symlinks are resolved, and the result must be inside the mount that the virtual path
names. Then the path is opened folder by folder with O_NOFOLLOW, so that a link swapped in during the check is not
followed.
"""

import dataclasses
import errno
import os
import shutil
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from re import Pattern
from secrets import token_hex
from typing import IO

from agent.errors import PathNotAllowed, SandboxError
from agent.paths import MountTable
from agent.sandbox.encodings import UTF_8, FileText, decode_text, encode_text

MAX_TEXT_BYTES = 50_000_000
"""Largest file to read, search or edit as text, bytes."""

MAX_LISTED = 2_000
"""Maximum number of entries in one listing."""

_DIR = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_FILE = os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC  # NONBLOCK: opening a FIFO must not hang


@dataclass(frozen=True, slots=True, kw_only=True)
class ResolvedPath:
    """A checked path: a folder to start from, the parts below it (without symlinks), and its virtual name."""

    root: Path
    parts: tuple[str, ...]
    virtual: str

    @property
    def host(self) -> str:
        """The path on this machine."""
        return str(self.root.joinpath(*self.parts))


def resolve_path(table: MountTable, path: str, *, write: bool = False) -> ResolvedPath:
    """Resolve a virtual path and check that it stays inside its mount.

    Raises:
        PathNotAllowed: It is outside all mounts, leads out of its mount through a symlink, or is not writable.
    """
    mount, parts = table.locate(path, write=write)
    root, virtual = mount.host, "/".join((mount.virtual, *parts))
    try:
        real = root.joinpath(*parts).resolve()
    except (OSError, RuntimeError) as error:  # a symlink loop
        raise PathNotAllowed(f"the path cannot be resolved: {virtual}") from error
    if not real.is_relative_to(root):
        raise PathNotAllowed(f"the path leads out of {mount.virtual}: {virtual}")
    nearest = table.mount_for(real)
    if write and nearest is not None and nearest.read_only:
        raise PathNotAllowed(f"write access to {nearest.virtual} is not allowed: {virtual}")
    return ResolvedPath(root=root, parts=real.relative_to(root).parts, virtual=virtual)


@contextmanager
def open_path(path: ResolvedPath) -> Iterator[int]:
    """Open an existing file or folder for reading.

    Raises:
        SandboxError: It does not exist, cannot be opened, or is neither a file nor a folder.
    """
    with os_errors_explained(path.virtual):
        if not path.parts:
            fd = os.open(path.root, _DIR)
        else:
            with _parent(path, create=False) as parent:
                fd = os.open(path.parts[-1], os.O_RDONLY | _FILE, dir_fd=parent)
    try:
        mode = os.fstat(fd).st_mode
        if not stat.S_ISREG(mode) and not stat.S_ISDIR(mode):
            raise SandboxError(f"not a regular file: {path.virtual}")
        yield fd
    finally:
        os.close(fd)


def read_text(path: ResolvedPath) -> FileText:
    """Return the text of a file, and its encoding.

    Raises:
        SandboxError: The file does not exist, is a folder, is too large, or is not text.
    """
    return _decode(path, read_bytes(path))


def read_for_change(path: ResolvedPath) -> FileText:
    """Return the text of a file before a change, and its encoding.

    Raises:
        SandboxError: See `read_text`. Also raised if writing the text back would change other parts of the file.
    """
    content = read_bytes(path)
    found = _decode(path, content)
    _require_same(path, content, found)
    return found


def _require_same(path: ResolvedPath, content: bytes, found: FileText) -> None:
    """Check that writing the text back would reproduce the file, as it always does for UTF-8."""
    if found.encoding != UTF_8 and encode_text(*found) != content:
        raise SandboxError(
            f"the file seems to be {found.encoding}, but saving it would change other parts of it. Nothing was "
            f"changed: convert it to UTF-8 first, for example with iconv: {path.virtual}"
        )


def read_bytes(path: ResolvedPath) -> bytes:
    """Return the content of a file.

    Raises:
        SandboxError: The file does not exist, is a folder, or is larger than `MAX_TEXT_BYTES`.
    """
    with open_path(path) as fd, os_errors_explained(path.virtual):
        status = os.fstat(fd)
        if stat.S_ISDIR(status.st_mode):
            raise SandboxError(f"this is a folder, not a file: {path.virtual}")
        if status.st_size > MAX_TEXT_BYTES:
            raise SandboxError(
                f"the file has {status.st_size} bytes, more than the limit of {MAX_TEXT_BYTES}: {path.virtual}"
            )
        with os.fdopen(os.dup(fd), "rb") as file:
            return file.read(MAX_TEXT_BYTES)


def _decode(path: ResolvedPath, content: bytes) -> FileText:
    try:
        found = decode_text(content)
    except UnicodeDecodeError as error:
        raise SandboxError(f"the file is not text in a known encoding: {path.virtual}") from error
    if "\0" in found.text[:8192]:
        raise SandboxError(f"the file is binary and cannot be read as text: {path.virtual}")
    return found


def write_text(path: ResolvedPath, content: str, encoding: str = UTF_8) -> None:
    """Replace a file atomically. Creates missing folders.

    Raises:
        SandboxError: It cannot be written, or the encoding lacks a character.
    """
    data = _encode(path, content, encoding)
    with os_errors_explained(path.virtual), _parent(path, create=True) as parent:
        name = path.parts[-1]
        mode = _mode_of(name, parent)
        temporary = f".{token_hex(8)}.part"
        try:
            flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | _FILE
            fd = os.open(temporary, flags, mode, dir_fd=parent)
            with os.fdopen(fd, "wb") as file:
                os.fchmod(fd, mode)
                file.write(data)
            os.replace(temporary, name, src_dir_fd=parent, dst_dir_fd=parent)
        finally:
            with suppress(OSError):  # it has replaced the target, unless something failed
                os.unlink(temporary, dir_fd=parent)


def append_text(path: ResolvedPath, content: str) -> None:
    """Append to a file in its encoding. Create the file if it does not exist.

    Raises:
        SandboxError: It cannot be written, or its encoding is uncertain or lacks a character.
    """
    data = _encode(path, content, _encoding_of(path), is_whole=False)
    with os_errors_explained(path.virtual), _parent(path, create=True) as parent:
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | _FILE
        fd = os.open(path.parts[-1], flags, 0o644, dir_fd=parent)
        with os.fdopen(fd, "ab") as file:
            if not stat.S_ISREG(os.fstat(fd).st_mode):
                raise SandboxError(f"not a regular file: {path.virtual}")
            file.write(data)


def write_stream(path: ResolvedPath, source: IO[bytes], mode: int) -> None:
    """Replace a file with the content of a stream, atomically. Creates missing folders.

    Raises:
        SandboxError: It cannot be written.
    """
    with os_errors_explained(path.virtual), _parent(path, create=True) as parent:
        temporary = f".{token_hex(8)}.part"
        try:
            fd = os.open(
                temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | _FILE, 0o600, dir_fd=parent
            )
            with os.fdopen(fd, "wb") as file:
                shutil.copyfileobj(source, file, 1024 * 1024)
                os.fchmod(fd, mode & 0o777)
            os.replace(temporary, path.parts[-1], src_dir_fd=parent, dst_dir_fd=parent)
        finally:
            with suppress(OSError):  # it has replaced the target, unless something failed
                os.unlink(temporary, dir_fd=parent)


def make_folder(path: ResolvedPath) -> None:
    """Create a folder and its missing parents. Raises SandboxError."""
    inside = dataclasses.replace(path, parts=(*path.parts, "."))
    with os_errors_explained(path.virtual), _parent(inside, create=True):
        pass


def remove(path: ResolvedPath) -> None:
    """Delete a file or an empty folder, if it exists. Keeps a folder with content. Raises SandboxError."""
    with (
        os_errors_explained(path.virtual),
        suppress(FileNotFoundError),
        _parent(path, create=False) as parent,
    ):
        try:
            os.unlink(path.parts[-1], dir_fd=parent)
        except IsADirectoryError:
            with suppress(OSError):
                os.rmdir(path.parts[-1], dir_fd=parent)


def delete_oldest(folder: ResolvedPath, name: Pattern[str], *, max_bytes: int) -> None:
    """Delete the oldest files of a folder whose names match, until the others have at most `max_bytes`.

    Does nothing if the folder does not exist.

    Raises:
        SandboxError: A file cannot be deleted.
    """
    if not Path(folder.host).is_dir():
        return
    with open_path(folder) as fd, os_errors_explained(folder.virtual):
        with os.scandir(fd) as entries:
            found = [
                e for e in entries if name.fullmatch(e.name) and e.is_file(follow_symlinks=False)
            ]
            stats = [(entry.stat(follow_symlinks=False), entry.name) for entry in found]
        left = sum(status.st_size for status, _ in stats)
        for status, file in sorted(stats, key=lambda one: one[0].st_mtime_ns):
            if left <= max_bytes:
                return
            with suppress(FileNotFoundError):
                os.unlink(file, dir_fd=fd)
            left -= status.st_size


def require_file(path: ResolvedPath) -> None:
    """Check that a regular file exists.

    Raises:
        SandboxError: It does not exist, or is not a regular file.
    """
    with open_path(path) as fd:
        if not stat.S_ISREG(os.fstat(fd).st_mode):
            raise SandboxError(f"not a regular file: {path.virtual}")


@contextmanager
def os_errors_explained(virtual: str) -> Iterator[None]:
    """Turn an OSError into a SandboxError that contains only the virtual path."""
    try:
        yield
    except OSError as error:
        reason = _REASONS.get(error.errno or 0) or (error.strerror or type(error).__name__)[:500]
        raise SandboxError(f"{reason}: {virtual}") from error


_REASONS = {
    errno.ENOENT: "no such file or folder",
    errno.EISDIR: "this is a folder, not a file",
    errno.ENOTDIR: "a part of the path is not a folder, or is a link",
    errno.ELOOP: "the path contains a link that may not be followed",
    errno.EACCES: "permission denied",
    errno.EPERM: "permission denied",
    errno.ENXIO: "not a regular file",
    errno.ENOSPC: "no space is left",
    errno.EDQUOT: "no space is left",
    errno.ENAMETOOLONG: "the name is too long",
}


def _encoding_of(path: ResolvedPath) -> str:
    """Return the encoding for appending to a file; UTF-8 if the file is new or not text.

    Raises:
        SandboxError: The encoding is uncertain.
    """
    try:
        content = read_bytes(path)
        found = _decode(path, content)
    except SandboxError:
        return UTF_8
    _require_same(path, content, found)
    return found.encoding


def _encode(path: ResolvedPath, content: str, encoding: str, *, is_whole: bool = True) -> bytes:
    if not path.parts:
        raise SandboxError(f"this is a folder, not a file: {path.virtual}")
    try:
        return encode_text(content, encoding, is_whole=is_whole)
    except UnicodeEncodeError as error:
        reason = (
            "the content is not valid text"
            if encoding == UTF_8
            else f"the file is {encoding}, which cannot hold {content[error.start]!r}"
        )
        raise SandboxError(f"{reason}, nothing was written: {path.virtual}") from error


def _mode_of(name: str, parent: int) -> int:
    """Return the permissions of the file to replace, or the default permissions if it does not exist.

    Raises:
        IsADirectoryError: It is a folder.
    """
    try:
        status = os.stat(name, dir_fd=parent, follow_symlinks=False)
    except FileNotFoundError:
        return 0o644
    if stat.S_ISDIR(status.st_mode):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
    return stat.S_IMODE(status.st_mode) & 0o777


@contextmanager
def _parent(path: ResolvedPath, *, create: bool) -> Iterator[int]:
    """Open the parent folder of a path, folder by folder, without following links."""
    fd = os.open(path.root, _DIR)
    try:
        for part in path.parts[:-1]:
            if create:
                with suppress(FileExistsError):
                    os.mkdir(part, 0o755, dir_fd=fd)
            below = os.open(part, _DIR, dir_fd=fd)
            os.close(fd)
            fd = below
        yield fd
    finally:
        os.close(fd)
