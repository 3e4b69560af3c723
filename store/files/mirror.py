"""FileMirror: keeps a node's copy of the shared files equal to the stored files."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Protocol

from typing_extensions import override

THREADS = "threads/"
"""Name prefix of threads' areas."""

KEYS = "keys"
"""Name prefix of the objects that hold the service's keys, which are not an area."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FileArea:
    """Files that are copied together.

    Attributes:
        name: Its name in the database, and its objects' name prefix.
        folder: The folder of its files, relative to the folder of all shared files.
        only: The names in that folder that belong to it; None = all.
    """

    name: str
    folder: str
    only: frozenset[str] | None = None


SHARED_AREA = FileArea(
    name="shared",
    folder=".",
    only=frozenset({"skills", "agents", "USER.md", "extensions_config.json"}),
)
"""Custom skills and agents, the user profile, and the extensions file."""


def thread_area(thread_id: str) -> FileArea:
    """Return the area of a thread's files. The ID must be a valid folder name."""
    return FileArea(name=f"{THREADS}{thread_id}", folder=f"{THREADS}{thread_id}")


class FileMirror(Protocol):
    """Copies areas between this node and where they are stored. All methods raise StoreError."""

    is_remote: bool
    """Whether there is anything to copy: False if the files are in a folder that all nodes see."""

    async def fetch(self, area: FileArea) -> None:
        """Update the local copy, and keep changes that are not stored yet."""
        ...

    async def store(self, area: FileArea) -> None:
        """Update the local copy and store its changes. Other nodes see them when this returns."""
        ...

    async def store_if_latest(self, area: FileArea) -> bool:
        """Store the changes since `fetch`, unless another node has changed the area since then.

        In that case drop the changes, update the local copy and return False.
        """
        ...

    async def remove(self, area: FileArea) -> None:
        """Remove an area from the storage. The caller deletes the local files."""
        ...

    async def list_areas(self, prefix: str) -> list[str]:
        """Return the names of the areas that begin with `prefix`, which ends with a slash."""
        ...

    async def check(self) -> None:
        """Return if files could be stored and read now. Raises FilesUnavailable."""
        ...


class SharedFolder(FileMirror):
    """The files are in a folder that all nodes see: nothing is copied."""

    is_remote = False

    @override
    async def fetch(self, area: FileArea) -> None:
        return

    @override
    async def store(self, area: FileArea) -> None:
        return

    @override
    async def store_if_latest(self, area: FileArea) -> bool:
        return True

    @override
    async def remove(self, area: FileArea) -> None:
        return

    @override
    async def list_areas(self, prefix: str) -> list[str]:
        return []

    @override
    async def check(self) -> None:
        return


@asynccontextmanager
async def stored_after(mirror: FileMirror, area: FileArea) -> AsyncIterator[None]:
    """Update an area before the block and store the block's changes. Raises StoreError."""
    await mirror.fetch(area)
    yield
    await mirror.store(area)
