"""Finds the folders behind a virtual path: one, or all mounts below it."""

from dataclasses import dataclass

from agent.errors import PathNotAllowed
from agent.paths import MountTable, normalize_path, relative_parts
from agent.sandbox.files import ResolvedPath, resolve_path


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchRoot:
    """A folder to list or search; `prefix` is its path below the requested one, "" for the requested path itself."""

    prefix: str
    path: ResolvedPath

    @property
    def path_prefix(self) -> str:
        """Prefix of the paths inside it, with a trailing slash."""
        return f"{self.prefix}/" if self.prefix else ""


def search_roots(table: MountTable, path: str) -> tuple[str, list[SearchRoot]]:
    """Return the normalized path and the folders to search.

    For a folder that exists only as the parent of mounts, such as `/` or /mnt/skills, return these mounts.

    Raises:
        PathNotAllowed: The path is outside all mounts, or leads out of its mount.
    """
    try:
        resolved = resolve_path(table, path)
    except PathNotAllowed:
        roots = _mounts_below(table, path)
        if not roots:
            raise
        return normalize_path(path), roots
    return resolved.virtual, [SearchRoot(prefix="", path=resolved)]


def _mounts_below(table: MountTable, path: str) -> list[SearchRoot]:
    folder = normalize_path(path).rstrip("/")
    found = [(relative_parts(mount.virtual, folder), mount.virtual) for mount in table.mounts]
    return sorted(
        (
            SearchRoot(prefix="/".join(parts), path=resolve_path(table, virtual))
            for parts, virtual in found
            if parts
        ),
        key=lambda root: root.prefix,
    )
