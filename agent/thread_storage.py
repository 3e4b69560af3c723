"""Threads' folders on disk: `{home}/threads/{thread_id}/user-data` and `acp-workspace`."""

import errno
import os
import re
import shutil
import subprocess
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from agent.errors import ThreadIdInvalid
from agent.paths import ACP_WORKSPACE, OUTPUTS, UPLOADS, WORKSPACE, Mount

_THREAD_ID = re.compile(r"[A-Za-z0-9_-]{1,64}")
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_NEW_FILE = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC


@dataclass(frozen=True, slots=True, kw_only=True)
class ThreadFolders:
    """Paths of one thread's folders. The folders exist only after `create`."""

    root: Path

    @property
    def user_data(self) -> Path:
        """Return the parent of the workspace, uploads and outputs."""
        return self.root / "user-data"

    @property
    def workspace(self) -> Path:
        """Return the agent's working folder."""
        return self.user_data / "workspace"

    @property
    def uploads(self) -> Path:
        """Return the folder of uploaded files."""
        return self.user_data / "uploads"

    @property
    def outputs(self) -> Path:
        """Return the folder of files for users."""
        return self.user_data / "outputs"

    @property
    def acp_workspace(self) -> Path:
        """Return the working folder of external agents, which is read-only for Parley's agent."""
        return self.root / "acp-workspace"

    def create(self) -> None:
        """Create the folders with mode 0700. Blocking."""
        for folder in (self.workspace, self.uploads, self.outputs, self.acp_workspace):
            folder.mkdir(parents=True, exist_ok=True, mode=0o700)

    def mounts(self) -> tuple[Mount, ...]:
        """Return the mounts of these folders."""
        return (
            Mount(virtual=WORKSPACE, host=self.workspace),
            Mount(virtual=UPLOADS, host=self.uploads),
            Mount(virtual=OUTPUTS, host=self.outputs),
            Mount(virtual=ACP_WORKSPACE, host=self.acp_workspace, read_only=True),
        )


class SpaceMeter(Protocol):
    """Decides whether a thread may write."""

    def require_space(self, size: int) -> None:
        """Reserve this many bytes. Blocking. Raises SandboxError if the thread or the disk has no space for them."""
        ...


class ThreadStorage:
    """The folders of all threads in a data folder.

    Args:
        home: The data folder.
        make_meter: Creates the meter of a thread's folder; None = no limits.
    """

    def __init__(self, home: Path, make_meter: Callable[[Path], SpaceMeter] | None = None) -> None:
        # Resolve it once, so that it can be compared with resolved paths.
        self._threads = home.resolve() / "threads"
        self._make_meter = make_meter

    def folders(self, thread_id: str) -> ThreadFolders:
        """Return a thread's folders without creating them.

        Raises:
            ThreadIdInvalid: The id cannot be a folder name.
        """
        if _THREAD_ID.fullmatch(thread_id) is None:
            raise ThreadIdInvalid
        return ThreadFolders(root=self._threads / thread_id)

    def open_meter(self, thread_id: str) -> SpaceMeter | None:
        """Return a new meter for a thread; None = no limits. Raises ThreadIdInvalid."""
        root = self.folders(thread_id).root
        return None if self._make_meter is None else self._make_meter(root)

    def all_folders(self) -> Iterator[ThreadFolders]:
        """Yield the folders of all threads with folders. Blocking."""
        if self._threads.is_dir():
            for entry in self._threads.iterdir():
                if _THREAD_ID.fullmatch(entry.name) and entry.is_dir() and not entry.is_symlink():
                    yield ThreadFolders(root=entry)

    def delete(self, thread_id: str) -> bool:
        """Delete a thread's folders with their content. Return whether they existed. Blocking.

        Raises:
            ThreadIdInvalid: See `folders`.
            OSError: Something cannot be deleted.
        """
        root = self.folders(thread_id).root
        if not root.is_dir() or root.is_symlink():
            return False
        try:
            shutil.rmtree(root)
        except (OSError, RecursionError):
            _force_delete(root)
        return True


def create_file(folder: Path, name: str, content: bytes) -> int:
    """Create a file in a thread's folder. Return a descriptor at its start, which the caller closes.

    Never follow a link, because the agent's commands may have put one in its place.

    Raises:
        FileExistsError: The name is taken.
        OSError: The file cannot be written.
    """
    parent = os.open(folder, _FOLDER)
    try:
        descriptor = os.open(name, _NEW_FILE, 0o644, dir_fd=parent)
    finally:
        os.close(parent)
    try:
        with os.fdopen(os.dup(descriptor), "wb") as file:
            file.write(content)
        os.lseek(descriptor, 0, os.SEEK_SET)
    except OSError:
        os.close(descriptor)
        raise
    return descriptor


def _force_delete(folder: Path) -> None:
    """Delete folders that are hard to delete: without permissions for their owner, or extremely deep.

    Raises:
        OSError: Something cannot be deleted.
    """
    for program in (
        ["chmod", "-R", "u+rwx"],
        ["rm", "-rf"],
    ):  # neither command follows links inside the folder
        subprocess.run([*program, "--", str(folder)], capture_output=True, check=False)  # noqa: S603 - no shell
    if folder.exists():
        raise OSError(errno.ENOTEMPTY, "a thread's folder could not be removed")
