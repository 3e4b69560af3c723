"""Maps virtual paths, as the agent sees them, to host paths and back. Pure: no disk access."""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from agent.errors import PathNotAllowed

USER_DATA = "/mnt/user-data"
WORKSPACE = f"{USER_DATA}/workspace"
UPLOADS = f"{USER_DATA}/uploads"
OUTPUTS = f"{USER_DATA}/outputs"
SKILLS = "/mnt/skills"
ACP_WORKSPACE = "/mnt/acp-workspace"
RESERVED = (USER_DATA, SKILLS, ACP_WORKSPACE)
"""Folders that configured mounts must not overlap."""

_MAX_CHARS = 4096  # Linux: PATH_MAX


@dataclass(frozen=True, slots=True, kw_only=True)
class Mount:
    """A folder that the agent sees.

    Attributes:
        virtual: Absolute virtual path, without trailing slash.
        host: Absolute path on this machine.
        read_only: Whether the agent may only read it.
    """

    virtual: str
    host: Path
    read_only: bool = False


def normalize_path(path: str) -> str:
    """Return an absolute virtual path without empty or `.` segments. Relative paths start in the workspace.

    Raises:
        PathNotAllowed: The path is empty, too long, or contains a NUL, a backslash or a `..` segment.

    >>> normalize_path("/mnt/user-data//outputs/./a.txt/")
    '/mnt/user-data/outputs/a.txt'
    >>> normalize_path("notes.md")
    '/mnt/user-data/workspace/notes.md'
    """
    if not path.strip() or len(path) > _MAX_CHARS or "\0" in path:
        raise PathNotAllowed("the path is empty, too long, or contains a NUL character")
    segments = re.split(r"[/\\]", path)
    if ".." in segments:
        raise PathNotAllowed(f"path traversal is not allowed: {path}")
    if "\\" in path:
        raise PathNotAllowed(f"use forward slashes in paths: {path}")
    kept = [segment for segment in segments if segment not in ("", ".")]
    if path.startswith("/"):
        return "/" + "/".join(kept)
    return "/".join((WORKSPACE, *kept))


def relative_parts(path: str, prefix: str) -> tuple[str, ...] | None:
    """Return the segments of `path` below `prefix`, or None if `path` is not below or equal to it.

    >>> relative_parts("/mnt/user-data/outputs/a/b", "/mnt/user-data/outputs")
    ('a', 'b')
    >>> relative_parts("/mnt/user-data2", "/mnt/user-data") is None
    True
    """
    if path == prefix:
        return ()
    if not path.startswith(f"{prefix}/"):
        return None
    return PurePosixPath(path[len(prefix) + 1 :]).parts


class MountTable:
    """The mounts of one thread."""

    def __init__(self, mounts: Iterable[Mount]) -> None:
        self._mounts = tuple(sorted(mounts, key=lambda m: len(m.virtual), reverse=True))
        self._by_host = sorted(self._mounts, key=lambda m: len(str(m.host)), reverse=True)

    @property
    def mounts(self) -> Sequence[Mount]:
        """Return all mounts, the longest virtual prefix first."""
        return self._mounts

    def locate(self, path: str, *, write: bool = False) -> tuple[Mount, tuple[str, ...]]:
        """Return the mount of a virtual path and the parts below it. The longest prefix wins.

        Args:
            path: As the model wrote it.
            write: Whether the caller will write to it.

        Raises:
            PathNotAllowed: The path is outside all mounts, malformed, or not writable.
        """
        wanted = normalize_path(path)
        for mount in self._mounts:
            parts = relative_parts(wanted, mount.virtual)
            if parts is None:
                continue
            if write and mount.read_only:
                raise PathNotAllowed(f"write access to {mount.virtual} is not allowed: {wanted}")
            return mount, parts
        roots = ", ".join(sorted(mount.virtual for mount in self._mounts))
        raise PathNotAllowed(f"only paths below these folders can be used: {roots} (not {wanted})")

    def mount_for(self, host: Path) -> Mount | None:
        """Return the innermost mount that contains a host path."""
        return next((m for m in self._by_host if host.is_relative_to(m.host)), None)

    def mask_host_paths(self, text: str) -> str:
        """Replace host paths in a text with virtual paths, at path boundaries only."""
        for mount in self._by_host:
            # Search first: most texts contain no host path, and each thread's paths need their own compiled expression.
            if (host := str(mount.host)) in text:
                text = re.sub(rf"{re.escape(host)}(?![\w-]|\.\w)", mount.virtual, text)
        return text
