"""Stores the files of a data folder or shared folder in the bucket, to move an installation there."""

import os
import shutil
import stat
from collections.abc import Iterator
from pathlib import Path

import anyio.to_thread

from store.database import Database
from store.errors import FilesUnavailable
from store.files.config import StorageConfig
from store.files.mirror import SHARED_AREA, THREADS, FileArea, thread_area
from store.files.opening import open_mirror, share_keys

KEY_FILES = ("admin_token", "credentials.key", "webhook_key")
MEMORY = "memory"
_PENDING = "pending"


async def import_files(
    config: StorageConfig, home: Path, database: Database, source: Path, memory: str = MEMORY
) -> int:
    """Store the files of a folder, area by area; return the number of threads. It can be repeated.

    Args:
        config: The `storage` section, which names a bucket.
        home: The data folder of this node.
        database: Where to store the rows.
        source: The folder; it is not changed, and nothing else may change it meanwhile.
        memory: The path of the memory folder inside it.

    Raises:
        FilesUnavailable: The bucket cannot be used, or has other keys.
        StoreError: The rows cannot be written.
        OSError: A file cannot be read or copied.
    """
    await anyio.to_thread.run_sync(_import_keys, config, home, source)
    mirror = await open_mirror(config, home, database)
    areas = await anyio.to_thread.run_sync(lambda: list(_areas(source, memory)))
    for area in areas:
        await mirror.fetch(area)
        await anyio.to_thread.run_sync(_copy, area, source, config.folder(home))
        await mirror.store(area)
    return sum(area.name.startswith(THREADS) for area in areas)


def _import_keys(config: StorageConfig, home: Path, source: Path) -> None:
    keys = {name: (source / name).read_bytes() for name in KEY_FILES if (source / name).is_file()}
    if problem := share_keys(config, home, keys):
        raise FilesUnavailable(problem)
    for name, key in keys.items():
        if (config.folder(home) / name).read_bytes() != key:
            raise FilesUnavailable(
                f"the bucket has another {name} already: delete the object keys/{name}"
                " if nothing uses it, then repeat the command"
            )


def _areas(source: Path, memory: str) -> Iterator[FileArea]:
    yield SHARED_AREA
    for folder in _folders(source / THREADS):
        yield thread_area(folder)
    for folder in _folders(source / memory):
        if folder != _PENDING:
            yield FileArea(name=f"{MEMORY}/{folder}", folder=f"{memory}/{folder}")


def _folders(parent: Path) -> list[str]:
    if not parent.is_dir():
        return []
    with os.scandir(parent) as entries:
        return sorted(entry.name for entry in entries if entry.is_dir(follow_symlinks=False))


def _copy(area: FileArea, source: Path, files: Path) -> None:
    names = sorted(area.only) if area.only is not None else [""]
    for name in names:
        origin, target = source / area.folder / name, files / area.folder / name
        if origin.is_dir():
            shutil.copytree(
                origin, target, symlinks=True, dirs_exist_ok=True, ignore=_special_files
            )
        elif origin.is_file():
            shutil.copy2(origin, target)


def _special_files(folder: str, names: list[str]) -> set[str]:
    """Return the names of pipes, sockets and devices."""
    kinds = (stat.S_ISREG, stat.S_ISDIR, stat.S_ISLNK)
    return {
        name
        for name in names
        if not any(kind((Path(folder) / name).lstat().st_mode) for kind in kinds)
    }
