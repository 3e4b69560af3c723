"""StoredFileRows: the files of each area, and the objects with their contents."""

import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import asdict, dataclass
from os import fsdecode, fsencode
from typing import Literal
from urllib.parse import quote_from_bytes, unquote_to_bytes

from store.database import Database, Params, Row, Transaction
from store.rows import from_row

FileKind = Literal["file", "folder", "link"]


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredFile:
    """A file, folder or symbolic link of an area.

    Attributes:
        path: Relative to the area's folder, as `os` functions return it.
        object: Name of the object with the content of a file; "" for others.
        size: The size of a file, bytes.
        mode: Permission bits of a file or folder.
        modified_ns: Modification time of a file, nanoseconds since 1970.
        target: The target of a link.
    """

    path: str
    kind: FileKind
    object: str = ""
    size: int = 0
    mode: int = 0
    modified_ns: int = 0
    target: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class AreaFiles:
    """The files of an area by path; version 0 = it never had any."""

    version: int = 0
    files: Mapping[str, StoredFile]


@dataclass(frozen=True, slots=True, kw_only=True)
class AreaChange:
    """A stored change of an area.

    Attributes:
        version: The version it created.
        previous: The version before it.
        unused: Objects that no row names anymore.
    """

    version: int
    previous: int
    unused: tuple[str, ...]


_VERSION = "SELECT version FROM file_area WHERE area = :area"
_AREAS = "SELECT area FROM file_area WHERE area >= :first AND area < :last ORDER BY area"
_FILES = """
SELECT a.version, f.path, f.kind, f.object, f.size, f.mode, f.modified_ns, f.target
FROM file_area a LEFT JOIN stored_file f ON f.area = a.area WHERE a.area = :area
"""
_SET_VERSION = """
INSERT INTO file_area (area, version) VALUES (:area, :version)
ON CONFLICT (area) DO UPDATE SET version = excluded.version
"""
_OBJECT = "SELECT object FROM stored_file WHERE area = :area AND path = :path"
_SAVE = """
INSERT INTO stored_file (area, path, kind, object, size, mode, modified_ns, target)
VALUES (:area, :path, :kind, :object, :size, :mode, :modified_ns, :target)
ON CONFLICT (area, path) DO UPDATE SET kind = excluded.kind, object = excluded.object, size = excluded.size,
    mode = excluded.mode, modified_ns = excluded.modified_ns, target = excluded.target
"""
_REMOVE = "DELETE FROM stored_file WHERE area = :area AND path = :path RETURNING object"
_REMOVE_ALL = "DELETE FROM stored_file WHERE area = :area RETURNING object"
_REMOVE_AREA = "DELETE FROM file_area WHERE area = :area"


class StoredFileRows:
    """The file_area and stored_file tables. All methods raise StoreError.

    A node that other nodes have ended cannot change rows, so its later uploads have no effect.

    Args:
        database: The database.
        now_ns: Returns the time, nanoseconds since 1970. Versions are times, so an area that was removed and
            created again has new versions.
    """

    def __init__(self, database: Database, *, now_ns: Callable[[], int] = time.time_ns) -> None:
        self._database = database
        self._now_ns = now_ns

    async def version(self, area: str) -> int:
        """Return the version of an area; 0 = it never had files."""
        rows = await self._database.read(_VERSION, {"area": area})
        return int(rows[0]["version"]) if rows else 0

    async def list_areas(self, prefix: str) -> list[str]:
        """Return the areas whose name begins with `prefix`, which ends with a slash."""
        last = prefix[:-1] + chr(ord(prefix[-1]) + 1)
        rows = await self._database.read(_AREAS, {"first": prefix, "last": last})
        return [row["area"] for row in rows]

    async def list_files(self, area: str) -> AreaFiles:
        """Return the files of an area."""
        rows = await self._database.read(_FILES, {"area": area})
        files = [_from_row(row) for row in rows if row["path"] is not None]
        return AreaFiles(
            version=int(rows[0]["version"]) if rows else 0,
            files={file.path: file for file in files},
        )

    async def save(
        self,
        area: str,
        changed: Collection[StoredFile],
        removed: Collection[str],
        *,
        after: int | None = None,
    ) -> AreaChange | None:
        """Store and remove files of an area in one transaction; return None instead if its version is not `after`.

        `after`: None = any version.
        """

        def work(tx: Transaction) -> AreaChange | None:
            tx.lock(f"files {area}")  # from now on, no other transaction can change the area
            rows = tx.run(_VERSION, {"area": area})
            previous = int(rows[0]["version"]) if rows else 0
            if after not in (None, previous):
                return None
            version = max(previous + 1, self._now_ns())
            tx.run(_SET_VERSION, {"area": area, "version": version})
            unused: list[str] = []
            for file in changed:
                params = _params(area, file)
                unused += _objects(tx.run(_OBJECT, _path_params(area, file.path)))
                tx.run(_SAVE, params)
            for path in removed:
                unused += _objects(tx.run(_REMOVE, _path_params(area, path)))
            kept = {file.object for file in changed}
            return AreaChange(
                version=version,
                previous=previous,
                unused=tuple(name for name in unused if name not in kept),
            )

        return await self._database.transaction(work)

    async def remove_area(self, area: str) -> tuple[str, ...]:
        """Remove all files of an area; return the objects that no row names anymore."""

        def work(tx: Transaction) -> tuple[str, ...]:
            tx.lock(f"files {area}")
            tx.run(_REMOVE_AREA, {"area": area})
            return tuple(_objects(tx.run(_REMOVE_ALL, {"area": area})))

        return await self._database.transaction(work)


def _objects(rows: Sequence[Row]) -> list[str]:
    return [row["object"] for row in rows if row["object"]]


def _params(area: str, file: StoredFile) -> Params:
    return {
        **asdict(file),
        **_path_params(area, file.path),
        "target": _to_text(file.target),
    }


def _path_params(area: str, path: str) -> Params:
    return {"area": area, "path": _to_text(path)}


def _from_row(row: Row) -> StoredFile:
    return from_row(StoredFile, row, path=_from_text(row["path"]), target=_from_text(row["target"]))


def _to_text(path: str) -> str:
    r"""Return a path as text that means the same to every database.

    >>> _to_text("a b/\udcff"), _from_text("a%20b/%FF")
    ('a%20b/%FF', 'a b/\udcff')
    """
    return quote_from_bytes(fsencode(path))


def _from_text(text: str) -> str:
    return fsdecode(unquote_to_bytes(text))
