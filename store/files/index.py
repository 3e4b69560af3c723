"""AreaIndex: the state of this node's copy of an area at the last comparison with the bucket. Blocking."""

import json
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import quote, unquote

from store.files.rows import StoredFile
from store.files.tree import LocalFile

USED_S = 3600.0
"""How often to record that an area is in use, seconds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KnownFile:
    """A stored file, and when its local copy was last changed (`LocalFile.changed_ns`)."""

    stored: StoredFile
    changed_ns: int

    def matches(self, local: LocalFile | None) -> bool:
        """Return whether the local copy is unchanged."""
        stored = self.stored
        if local is None or local.kind != stored.kind:
            return False
        if local.kind == "link":
            return local.target == stored.target
        if local.kind == "folder":
            return local.mode == stored.mode
        return (local.size, local.mode, local.modified_ns, local.changed_ns) == (
            stored.size,
            stored.mode,
            stored.modified_ns,
            self.changed_ns,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class AreaIndex:
    """The files of an area as they were stored and copied.

    Attributes:
        process: The process that wrote it. Changes that an earlier process did not store are dropped.
        version: The version of the area in the local copy.
    """

    process: str = ""
    version: int = -1
    files: Mapping[str, KnownFile] = field(default_factory=dict)


class IndexFiles:
    """The indexes on disk, one file for each area.

    Args:
        folder: Their folder; saving the first index creates it.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def load(self, area: str) -> AreaIndex:
        """Return the index of an area; an empty one if none can be read."""
        path = self._path(area)
        try:
            if time.time() - path.stat().st_mtime > USED_S:
                path.touch()
            found = json.loads(path.read_bytes())
            files = [_from_json(entry) for entry in found["files"]]
            return AreaIndex(
                process=found["process"],
                version=found["version"],
                files={known.stored.path: known for known in files},
            )
        except (OSError, ValueError, KeyError, TypeError):
            return AreaIndex()

    def save(self, area: str, index: AreaIndex) -> None:
        """Replace the index of an area. Raises OSError."""
        path = self._path(area)
        files = [
            {**asdict(known.stored), "changed_ns": known.changed_ns}
            for known in index.files.values()
        ]
        content = {"process": index.process, "version": index.version, "files": files}
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        new = path.with_suffix(".new")
        new.write_text(json.dumps(content), "ascii")
        new.replace(path)

    def remove(self, area: str) -> None:
        """Delete the index of an area."""
        self._path(area).unlink(missing_ok=True)

    def unused_since(self, time_s: float) -> list[str]:
        """Return the areas whose index was last loaded before a time, Unix seconds, give or take `USED_S`."""
        found = self._folder.glob("*.json") if self._folder.is_dir() else ()
        return [unquote(path.stem) for path in found if path.stat().st_mtime < time_s]

    def _path(self, area: str) -> Path:
        return self._folder / f"{quote(area, safe='')}.json"


def _from_json(entry: dict[str, Any]) -> KnownFile:
    changed_ns = entry.pop("changed_ns")
    return KnownFile(stored=StoredFile(**entry), changed_ns=changed_ns)
