"""Mounts besides a thread's own folders: configured ones, and those that all threads share."""

import logging
from collections.abc import Callable, Sequence
from pathlib import Path

from agent.config import MountConfig
from agent.paths import RESERVED, Mount, relative_parts

log = logging.getLogger(__name__)

SharedMounts = Callable[[], Sequence[Mount]]
"""Returns the read-only mounts that all threads share; called in a worker thread for every `acquire`."""


def no_shared_mounts() -> Sequence[Mount]:
    """Return no mounts."""
    return ()


def configured_mounts(configured: Sequence[MountConfig]) -> tuple[Mount, ...]:
    """Return the configured mounts. Log and ignore unusable ones. Blocking."""
    mounts = []
    for mount in configured:
        if problem := find_mount_problem(mount):
            log.warning("sandbox.mounts: ignoring %s: %s", mount.container_path, problem)
            continue
        virtual = mount.container_path.rstrip("/")
        host = Path(mount.host_path).resolve()
        mounts.append(Mount(virtual=virtual, host=host, read_only=mount.read_only))
    return tuple(mounts)


def find_mount_problem(mount: MountConfig) -> str | None:
    """Return why a configured mount cannot be used, or None. Blocking."""
    host = Path(mount.host_path)
    virtual = mount.container_path.rstrip("/")
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
