"""Builds each thread's mount table: its folders, configured mounts, and mounts that all threads share."""

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
"""Returns the read-only mounts that all threads share; called in a worker thread for every `acquire`."""


def no_shared_mounts() -> Sequence[Mount]:
    """Return no mounts."""
    return ()


class ThreadMounts:
    """Creates threads' folders and their mount tables."""

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
            ThreadIdInvalid: The id cannot name folders.
        """
        return self._folders.folders(thread_id)

    async def mount_table(self, thread_id: str) -> MountTable:
        """Create the thread's folders and return its mount table.

        Raises:
            ThreadIdInvalid, SandboxError: It has none.
        """
        folders = self.folders(thread_id)

        def build() -> MountTable:
            with files.os_errors_explained("the thread's folders"):
                folders.create()
            # Resolved, because `resolve_path` compares with resolved paths.
            shared = [replace(one, host=one.host.resolve()) for one in self._shared()]
            return MountTable((*folders.mounts(), *self._mounts, *shared))

        return await anyio.to_thread.run_sync(build)


def configured_mounts(configured: Sequence[MountConfig]) -> tuple[Mount, ...]:
    """Return the configured mounts; unusable ones are logged and ignored. Blocking."""
    mounts = []
    for mount in configured:
        host = Path(mount.host_path)
        virtual = mount.container_path.rstrip("/")
        if problem := _problem(virtual, host):
            logger.warning("sandbox.mounts: ignoring %s: %s", mount.container_path, problem)
            continue
        mounts.append(Mount(virtual=virtual, host=host.resolve(), read_only=mount.read_only))
    return tuple(mounts)


def _problem(virtual: str, host: Path) -> str | None:
    if not host.is_absolute() or not virtual.startswith("/") or ".." in virtual.split("/"):
        return "both paths must be absolute, without `..`"
    if not host.is_dir():
        return "host_path is not a folder"
    if any(
        relative_parts(virtual, reserved) is not None or relative_parts(reserved, virtual)
        for reserved in RESERVED
    ):
        return "container_path overlaps a reserved folder"
    return None
