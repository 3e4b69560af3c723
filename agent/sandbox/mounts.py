"""What each thread's sandbox sees: the thread's folders, the configured mounts, and what all threads share."""

import logging
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import anyio.to_thread

from agent.config import MountConfig
from agent.paths import RESERVED, Mount, MountTable, relative_parts
from agent.sandbox import files
from agent.thread_storage import ThreadFolders, ThreadStorage

logger = logging.getLogger(__name__)

SharedMounts = Callable[[], Sequence[Mount]]
"""Gives the folders that all threads share now, read-only ones; asked at every acquire, in a worker thread."""


def no_shared_mounts() -> Sequence[Mount]:
    """Return no folders."""
    return ()


class ThreadMounts:
    """Makes threads' folders and says what their sandboxes see."""

    def __init__(
        self,
        folders: ThreadStorage,
        *,
        mounts: Sequence[Mount] = (),
        shared: SharedMounts = no_shared_mounts,
    ) -> None:
        self._folders = folders
        self._mounts = tuple(mounts)
        self._shared = shared

    def folders(self, thread_id: str) -> ThreadFolders:
        """Return a thread's folders without creating them.

        Raises:
            ThreadIdInvalid: It can have none.
        """
        return self._folders.folders(thread_id)

    async def mount_table(self, thread_id: str) -> MountTable:
        """Make the thread's folders and return its table.

        Raises:
            ThreadIdInvalid, SandboxError: It can have none.
        """
        folders = self._folders.folders(thread_id)

        def made() -> MountTable:
            with files.os_errors_explained("the thread's folders"):
                folders.create()
            # Resolved: a fence compares with resolved paths.
            shared = [replace(one, host=one.host.resolve()) for one in self._shared()]
            return MountTable((*folders.mounts(), *self._mounts, *shared))

        return await anyio.to_thread.run_sync(made)


def configured_mounts(configured: Sequence[MountConfig]) -> tuple[Mount, ...]:
    """Turn the configured mounts into mappings; those that cannot be used are logged and left out. Blocking."""
    usable = []
    for mount in configured:
        host = Path(mount.host_path)
        problem = _problem_of(mount, host)
        if problem:
            logger.warning("sandbox.mounts: %s is left out: %s", mount.container_path, problem)
            continue
        virtual = mount.container_path.rstrip("/")
        usable.append(Mount(virtual=virtual, host=host.resolve(), read_only=mount.read_only))
    return tuple(usable)


def _problem_of(mount: MountConfig, host: Path) -> str | None:
    virtual = mount.container_path.rstrip("/")
    if not host.is_absolute() or not virtual.startswith("/") or ".." in virtual.split("/"):
        return "both paths must be absolute, without `..`"
    if not host.is_dir():
        return "host_path is not a folder"
    if any(
        relative_parts(virtual, taken) is not None or relative_parts(taken, virtual)
        for taken in RESERVED
    ):
        return "container_path overlaps a folder of Parley's own"
    return None
