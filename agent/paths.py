"""Virtual paths, as the agent sees them, to host paths and back. Pure: nothing here touches the disk."""

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
"""Prefixes that configured mounts must not overlap."""

_MAX_CHARS = 4096  # Linux: PATH_MAX


@dataclass(frozen=True, slots=True, kw_only=True)
class Mount:
    """One folder that the agent sees.

    Attributes:
        virtual: Absolute POSIX path without trailing slash.
        host: The folder on this machine, absolute.
        read_only: Whether the agent may only read there.
    """

    virtual: str
    host: Path
    read_only: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class MountedPath:
    """Where a virtual path leads: a mapping and the way below its folder, empty for the folder itself."""

    mount: Mount
    parts: tuple[str, ...]

    @property
    def virtual(self) -> str:
        """Return the normalised virtual path."""
        return "/".join((self.mount.virtual, *self.parts))


def normalize_path(path: str) -> str:
    """Return an absolute virtual path without empty or `.` segments. A relative one is meant below the workspace.

    Raises:
        PathNotAllowed: Empty, too long, with a NUL, a backslash, or a `..` segment.

    >>> normalize_path("/mnt/user-data//outputs/./a.txt/")
    '/mnt/user-data/outputs/a.txt'
    >>> normalize_path("notes.md")
    '/mnt/user-data/workspace/notes.md'
    """
    if not path.strip() or len(path) > _MAX_CHARS or "\0" in path:
        raise PathNotAllowed("the path is empty, too long, or holds a NUL character")
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
    """Return the segments of `path` below `prefix`, or None when it is not the same or below.

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
    """The folders that one thread's agent sees."""

    def __init__(self, mappings: Iterable[Mount]) -> None:
        self._mappings = tuple(sorted(mappings, key=lambda m: len(m.virtual), reverse=True))
        hosts = sorted(self._mappings, key=lambda m: len(str(m.host)), reverse=True)
        self._by_host = tuple(hosts)
        self._masks = tuple(
            (re.compile(re.escape(str(mapping.host)) + r"(?![\w-]|\.\w)"), mapping.virtual)
            for mapping in hosts
        )

    @property
    def mounts(self) -> Sequence[Mount]:
        """Return all mappings, the longest virtual prefix first."""
        return self._mappings

    def locate(self, path: str, *, write: bool = False) -> MountedPath:
        """Find where a virtual path leads: the longest prefix wins.

        Args:
            path: As the model wrote it.
            write: Whether something there is to be changed.

        Raises:
            PathNotAllowed: Outside every mapping, malformed, or not writable.
        """
        wanted = normalize_path(path)
        for mapping in self._mappings:
            parts = relative_parts(wanted, mapping.virtual)
            if parts is None:
                continue
            if write and mapping.read_only:
                raise PathNotAllowed(f"write access to {mapping.virtual} is not allowed: {wanted}")
            return MountedPath(mount=mapping, parts=parts)
        roots = ", ".join(sorted(mapping.virtual for mapping in self._mappings))
        raise PathNotAllowed(f"only paths below these folders can be used: {roots} (not {wanted})")

    def to_virtual(self, host: Path) -> str | None:
        """Return the virtual form of a host path, or None when the agent does not see it."""
        found = self.mount_for(host)
        if found is None:
            return None
        return "/".join((found.virtual, *host.relative_to(found.host).parts))

    def mount_for(self, host: Path) -> Mount | None:
        """Return the mapping whose folder is `host` or the nearest above it."""
        return next((m for m in self._by_host if host.is_relative_to(m.host)), None)

    def mask_host_paths(self, text: str) -> str:
        """Replace host paths in a text by their virtual form, at path boundaries only."""
        for pattern, virtual in self._masks:
            text = pattern.sub(virtual, text)
        return text
