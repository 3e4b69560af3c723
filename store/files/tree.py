"""Lists, reads and writes a folder on disk that an agent's commands may change at any time. Blocking.

Each folder is opened from its parent without following links, so a link that a command puts into the path leads
nowhere.
"""

import logging
import os
import stat
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from store.files.rows import FileKind, StoredFile

MAX_DEPTH = 100
"""Maximum depth of folders; each level keeps a file descriptor open."""

_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class LocalFile:
    """A file, folder or link on disk. `changed_ns` changes whenever its content or mode does; 0 = not compared."""

    kind: FileKind
    size: int = 0
    mode: int = 0
    modified_ns: int = 0
    changed_ns: int = 0
    target: str = ""

    @classmethod
    def from_status(cls, status: os.stat_result, target: str = "") -> "LocalFile | None":
        """Return an entry from `lstat`; None for pipes, sockets and devices, which are not stored."""
        mode = stat.S_IMODE(status.st_mode)
        if stat.S_ISREG(status.st_mode):
            return cls(
                kind="file",
                size=status.st_size,
                mode=mode,
                modified_ns=status.st_mtime_ns,
                changed_ns=status.st_ctime_ns,
            )
        if stat.S_ISDIR(status.st_mode):
            return cls(kind="folder", mode=mode)
        if stat.S_ISLNK(status.st_mode):
            return cls(kind="link", target=target)
        return None


def list_tree(root: Path, only: frozenset[str] | None = None) -> dict[str, LocalFile]:
    """Return the entries below a folder by path; a folder comes before its content.

    Args:
        root: The folder; it need not exist.
        only: The names in it to include; None = all except files that are being received (`.upload-*`).
    """
    found: dict[str, LocalFile] = {}
    try:
        descriptor = os.open(root, _FOLDER)
    except FileNotFoundError:
        return found
    try:
        _list_folder(descriptor, "", found, only, depth=1)
    finally:
        os.close(descriptor)
    return found


def _list_folder(
    folder: int,
    prefix: str,
    found: dict[str, LocalFile],
    only: frozenset[str] | None,
    depth: int,
) -> None:
    for name in sorted(os.listdir(folder)):
        is_left_out = name.startswith(".upload-") if only is None else name not in only
        if not prefix and is_left_out:
            continue
        with suppress(OSError):  # deleted or replaced meanwhile
            status = os.lstat(name, dir_fd=folder)
            target = os.readlink(name, dir_fd=folder) if stat.S_ISLNK(status.st_mode) else ""
            file = LocalFile.from_status(status, target)
            if file is None:
                continue
            found[prefix + name] = file
            if file.kind == "folder":
                _list_inner(folder, name, prefix, found, depth)


def _list_inner(
    folder: int, name: str, prefix: str, found: dict[str, LocalFile], depth: int
) -> None:
    if depth >= MAX_DEPTH:
        log.warning("folders more than %d levels deep are not stored", MAX_DEPTH)
        return
    inner = os.open(name, _FOLDER, dir_fd=folder)
    try:
        _list_folder(inner, f"{prefix}{name}/", found, None, depth + 1)
    finally:
        os.close(inner)


@contextmanager
def opened_parent(root: Path, path: str, *, create: bool = False) -> Iterator[tuple[int, str]]:
    """Open the folder that holds `path`, without following links; yield its descriptor and the last name.

    Raises:
        OSError: It does not exist, or something else is there.
    """
    *folders, name = path.split("/")
    with ExitStack() as stack:
        here = os.open(root, _FOLDER)
        stack.callback(os.close, here)
        for folder in folders:
            if create:
                with suppress(FileExistsError):
                    os.mkdir(folder, 0o700, dir_fd=here)
            here = os.open(folder, _FOLDER, dir_fd=here)
            stack.callback(os.close, here)
        yield here, name


def open_file(root: Path, path: str) -> int:
    """Return a descriptor of a regular file. Raises OSError."""
    with opened_parent(root, path) as (folder, name):
        descriptor = os.open(name, _FILE, dir_fd=folder)
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise FileNotFoundError(path)
    return descriptor


def place(root: Path, wanted: StoredFile, received: Path | None) -> LocalFile | None:
    """Put a file, folder or link in place; return its entry, or None if something else is there.

    Args:
        root: The folder of the area.
        wanted: The entry to create.
        received: The file with the content, on the same file system; it is moved. None = a folder or link.

    A folder gets its mode later, by `set_folder_mode`: the mode may forbid writing into it.
    """
    try:
        with opened_parent(root, wanted.path, create=True) as (folder, name):
            if wanted.kind == "file" and received is not None:
                os.utime(received, ns=(wanted.modified_ns, wanted.modified_ns))
                received.chmod(wanted.mode)
                os.rename(received, name, dst_dir_fd=folder)
            elif wanted.kind == "folder":
                with suppress(FileExistsError):
                    os.mkdir(name, 0o700, dir_fd=folder)
                os.close(os.open(name, _FOLDER, dir_fd=folder))
            else:
                _remove(folder, name)
                os.symlink(wanted.target, name, dir_fd=folder)
            return LocalFile.from_status(os.lstat(name, dir_fd=folder), wanted.target)
    except OSError as error:
        log.warning("%s could not be written: %s", wanted.path, error.strerror)
        return None


def remove(root: Path, path: str) -> None:
    """Remove a file, link or empty folder; ignore a missing one and a folder with content."""
    with suppress(OSError), opened_parent(root, path) as (folder, name):
        _remove(folder, name)


def _remove(folder: int, name: str) -> None:
    try:
        status = os.lstat(name, dir_fd=folder)
    except FileNotFoundError:
        return
    if stat.S_ISDIR(status.st_mode):
        os.rmdir(name, dir_fd=folder)
    else:
        os.unlink(name, dir_fd=folder)


def set_folder_mode(root: Path, path: str, mode: int) -> None:
    """Set the mode of a folder if it still exists."""
    with suppress(OSError), opened_parent(root, path) as (folder, name):
        descriptor = os.open(name, _FOLDER, dir_fd=folder)
        try:
            os.fchmod(descriptor, mode)
        finally:
            os.close(descriptor)
