"""File operations below fenced folders. Blocking: they run in worker threads.

A path is fenced twice: its symlinks are resolved and the result must lie in the folder that the virtual path
names; then it is opened folder by folder with O_NOFOLLOW, so that nothing swapped in meanwhile leads outside.
"""

import errno
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from secrets import token_hex

from agent.errors import PathNotAllowed, SandboxError
from agent.paths import MountTable

MAX_TEXT_BYTES = 20_000_000
"""Largest file that is read or edited as text."""

MAX_LISTED = 2_000
"""Most entries of one listing."""

_DIR = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_FILE = os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC  # NONBLOCK: a FIFO must not hang the open


@dataclass(frozen=True, slots=True, kw_only=True)
class ResolvedPath:
    """A checked way to something: the folder to start from, the symlink-free way below it, and its virtual name."""

    root: Path
    parts: tuple[str, ...]
    virtual: str


def resolve_path(table: MountTable, path: str, *, write: bool = False) -> ResolvedPath:
    """Resolve a virtual path and check that it stays where it may.

    Raises:
        PathNotAllowed: Outside every folder, through a symlink out of its folder, or not writable.
    """
    place = table.locate(path, write=write)
    root = place.mount.host
    try:
        real = root.joinpath(*place.parts).resolve()
    except (OSError, RuntimeError) as error:  # a symlink loop
        raise PathNotAllowed(f"the path cannot be resolved: {place.virtual}") from error
    if not real.is_relative_to(root):
        raise PathNotAllowed(f"the path leads out of {place.mount.virtual}: {place.virtual}")
    nearest = table.mount_for(real)
    if write and nearest is not None and nearest.read_only:
        raise PathNotAllowed(f"write access to {nearest.virtual} is not allowed: {place.virtual}")
    return ResolvedPath(root=root, parts=real.relative_to(root).parts, virtual=place.virtual)


@contextmanager
def open_path(way: ResolvedPath) -> Iterator[int]:
    """Open an existing file or folder for reading.

    Raises:
        SandboxError: It is not there, cannot be opened, or is neither file nor folder.
    """
    with os_errors_explained(way.virtual):
        if not way.parts:
            fd = os.open(way.root, _DIR)
        else:
            with _parent(way, make=False) as parent:
                fd = os.open(way.parts[-1], os.O_RDONLY | _FILE, dir_fd=parent)
    try:
        mode = os.fstat(fd).st_mode
        if not stat.S_ISREG(mode) and not stat.S_ISDIR(mode):
            raise SandboxError(f"not a regular file: {way.virtual}")
        yield fd
    finally:
        os.close(fd)


def read_text(way: ResolvedPath) -> str:
    """Return the text of a UTF-8 file.

    Raises:
        SandboxError: No such file, a folder, too large, or not text.
    """
    with open_path(way) as fd, os_errors_explained(way.virtual):
        _require_text_file(os.fstat(fd), way.virtual)
        with os.fdopen(os.dup(fd), "rb") as file:
            content = file.read(MAX_TEXT_BYTES)
    try:
        text = content.decode("utf-8")
    except UnicodeDecodeError as error:
        raise SandboxError(
            f"the file is not UTF-8 text, it cannot be read: {way.virtual}"
        ) from error
    if "\0" in text[:8192]:
        raise SandboxError(f"the file is binary, it cannot be read as text: {way.virtual}")
    return text


def write_text(way: ResolvedPath, content: str) -> None:
    """Put a file in place, folders on the way included; readers see the old content or the new, nothing between.

    Raises:
        SandboxError: It cannot be written.
    """
    data = _encoded(content, way.virtual)
    with os_errors_explained(way.virtual), _parent(_file_way(way), make=True) as parent:
        name = way.parts[-1]
        mode = _mode_of(name, parent)
        temporary = f".{token_hex(8)}.part"
        try:
            fd = os.open(
                temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | _FILE, mode, dir_fd=parent
            )
            with os.fdopen(fd, "wb") as file:
                os.fchmod(fd, mode)
                file.write(data)
            os.replace(temporary, name, src_dir_fd=parent, dst_dir_fd=parent)
        finally:
            _remove(temporary, parent)  # is gone already when all went well


def append_text(way: ResolvedPath, content: str) -> None:
    """Add to the end of a file, which is created when it is not there.

    Raises:
        SandboxError: It cannot be written.
    """
    data = _encoded(content, way.virtual)
    with os_errors_explained(way.virtual), _parent(_file_way(way), make=True) as parent:
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | _FILE
        fd = os.open(way.parts[-1], flags, 0o644, dir_fd=parent)
        with os.fdopen(fd, "ab") as file:
            if not stat.S_ISREG(os.fstat(fd).st_mode):
                raise SandboxError(f"not a regular file: {way.virtual}")
            file.write(data)


def require_file(way: ResolvedPath) -> None:
    """Check that a regular file is there.

    Raises:
        SandboxError: Nothing, or something else, is there.
    """
    with open_path(way) as fd:
        if not stat.S_ISREG(os.fstat(fd).st_mode):
            raise SandboxError(f"not a regular file: {way.virtual}")


@contextmanager
def os_errors_explained(virtual: str) -> Iterator[None]:
    """Turn an OSError into a SandboxError that names the virtual path and nothing of this machine."""
    try:
        yield
    except OSError as error:
        raise SandboxError(
            f"{_REASONS.get(error.errno or 0) or _reason(error)}: {virtual}"
        ) from error


_REASONS = {
    errno.ENOENT: "no such file or folder",
    errno.EISDIR: "this is a folder, not a file",
    errno.ENOTDIR: "a part of the path is not a folder, or is a link",
    errno.ELOOP: "the path leads through a link that may not be followed",
    errno.EACCES: "permission denied",
    errno.EPERM: "permission denied",
    errno.ENXIO: "not a regular file",
    errno.ENOSPC: "no space is left",
    errno.EDQUOT: "no space is left",
    errno.ENAMETOOLONG: "the name is too long",
}


def _reason(error: OSError) -> str:
    return (error.strerror or type(error).__name__)[:500]


def _file_way(way: ResolvedPath) -> ResolvedPath:
    if not way.parts:
        raise SandboxError(f"this is a folder, not a file: {way.virtual}")
    return way


def _encoded(content: str, virtual: str) -> bytes:
    try:
        return content.encode("utf-8")
    except UnicodeEncodeError as error:
        raise SandboxError(
            f"the content is not valid text, nothing was written: {virtual}"
        ) from error


def _require_text_file(status: os.stat_result, virtual: str) -> None:
    if stat.S_ISDIR(status.st_mode):
        raise SandboxError(f"this is a folder, not a file: {virtual}")
    if status.st_size > MAX_TEXT_BYTES:
        raise SandboxError(
            f"the file has {status.st_size} bytes, more than the {MAX_TEXT_BYTES} that can be read: {virtual}"
        )


def _mode_of(name: str, parent: int) -> int:
    """Return the permissions of the file that is about to be replaced; those of a new file when there is none.

    Raises:
        IsADirectoryError: A folder is there.
    """
    try:
        status = os.stat(name, dir_fd=parent, follow_symlinks=False)
    except FileNotFoundError:
        return 0o644
    if stat.S_ISDIR(status.st_mode):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
    return stat.S_IMODE(status.st_mode) & 0o777


@contextmanager
def _parent(way: ResolvedPath, *, make: bool) -> Iterator[int]:
    """Open the folder that holds the last part of a way, walking down without following a link."""
    fd = os.open(way.root, _DIR)
    try:
        for part in way.parts[:-1]:
            if make:
                _make_dir(part, fd)
            below = os.open(part, _DIR, dir_fd=fd)
            os.close(fd)
            fd = below
        yield fd
    finally:
        os.close(fd)


def _make_dir(name: str, parent: int) -> None:
    try:
        os.mkdir(name, 0o755, dir_fd=parent)
    except FileExistsError:
        return


def _remove(name: str, parent: int) -> None:
    try:
        os.unlink(name, dir_fd=parent)
    except OSError:
        return
