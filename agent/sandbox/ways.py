"""From a virtual path to the folders behind it: one, or, above folders that threads share, each of those."""

from dataclasses import dataclass

from agent.errors import PathRefused
from agent.paths import USER_DATA, PathTable, below, normalise
from agent.sandbox.files import Fenced, fence

_NEVER_LISTED = ("/", "/mnt", USER_DATA)


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """Something to look into: `prefix` is its way below the path that was asked for, "" for that path itself."""

    prefix: str
    way: Fenced

    @property
    def start(self) -> str:
        """How the paths of what is in it begin."""
        return f"{self.prefix}/" if self.prefix else ""

    def below(self, name: str) -> str:
        """Return the path of something in it, below the path that was asked for."""
        return f"{self.start}{name}"


def parts_of(table: PathTable, path: str) -> tuple[str, list[Part]]:
    """Return the normalised path and what there is to look into.

    A folder that exists only as the way to others, like /mnt/skills, has those as its parts.

    Raises:
        PathRefused: It leads nowhere, or out of its folder.
    """
    try:
        way = fence(table, path)
    except PathRefused:
        parts = _parts_below(table, path)
        if not parts:
            raise
        return normalise(path), parts
    return way.virtual, [Part(prefix="", way=way)]


def _parts_below(table: PathTable, path: str) -> list[Part]:
    wanted = normalise(path)
    if wanted in _NEVER_LISTED or wanted == "":
        return []
    found = [(below(mapping.virtual, wanted), mapping.virtual) for mapping in table.mappings]
    return sorted(
        (Part(prefix="/".join(way), way=fence(table, virtual)) for way, virtual in found if way),
        key=lambda part: part.prefix,
    )
