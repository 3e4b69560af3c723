"""From a virtual path to the folders behind it: one, or, above folders that threads share, each of those."""

from dataclasses import dataclass

from agent.errors import PathNotAllowed
from agent.paths import USER_DATA, MountTable, normalize_path, relative_parts
from agent.sandbox.files import ResolvedPath, resolve_path

_NEVER_LISTED = ("/", "/mnt", USER_DATA)


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchRoot:
    """Something to look into: `prefix` is its way below the path that was asked for, "" for that path itself."""

    prefix: str
    way: ResolvedPath

    @property
    def start(self) -> str:
        """How the paths of what is in it begin."""
        return f"{self.prefix}/" if self.prefix else ""

    def below(self, name: str) -> str:
        """Return the path of something in it, below the path that was asked for."""
        return f"{self.start}{name}"


def search_roots(table: MountTable, path: str) -> tuple[str, list[SearchRoot]]:
    """Return the normalised path and what there is to look into.

    A folder that exists only as the way to others, like /mnt/skills, has those as its parts.

    Raises:
        PathNotAllowed: It leads nowhere, or out of its folder.
    """
    try:
        way = resolve_path(table, path)
    except PathNotAllowed:
        parts = _parts_below(table, path)
        if not parts:
            raise
        return normalize_path(path), parts
    return way.virtual, [SearchRoot(prefix="", way=way)]


def _parts_below(table: MountTable, path: str) -> list[SearchRoot]:
    wanted = normalize_path(path)
    if wanted in _NEVER_LISTED or wanted == "":
        return []
    found = [(relative_parts(mapping.virtual, wanted), mapping.virtual) for mapping in table.mounts]
    return sorted(
        (
            SearchRoot(prefix="/".join(way), way=resolve_path(table, virtual))
            for way, virtual in found
            if way
        ),
        key=lambda part: part.prefix,
    )
