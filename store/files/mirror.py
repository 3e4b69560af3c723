"""FileMirror: keeps a node's copy of the files that all nodes need equal to what is stored."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Final, Protocol

from typing_extensions import override

THREADS: Final = "threads/"
"""What the names of the areas of threads begin with."""

KEYS: Final = "keys"
"""What the names of the objects with the keys of the service begin with. They are no area."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FileArea:
    """Files that are copied together.

    Attributes:
        name: Its name in the database, and what the names of its objects begin with.
        folder: Where its files are, relative to the folder of the files.
        only: The names in that folder that belong to it; None = all.
    """

    name: str
    folder: str
    only: frozenset[str] | None = None


SHARED_AREA: Final = FileArea(
    name="shared",
    folder=".",
    only=frozenset({"skills", "agents", "USER.md", "extensions_config.json"}),
)
"""Custom skills and agents, the profile of the users, and the extensions file."""


def thread_area(thread_id: str) -> FileArea:
    """Return the area of a thread's files. The ID is one that can be a folder name."""
    return FileArea(name=f"{THREADS}{thread_id}", folder=f"{THREADS}{thread_id}")


class FileMirror(Protocol):
    """Copies areas between this node and where they are stored. All methods raise StoreError."""

    is_remote: bool
    """Whether there is anything to copy: False if the files are in a folder that all nodes see."""

    async def fetch(self, area: FileArea) -> None:
        """Bring the local copy up to date; what was changed here and not stored yet stays."""
        ...

    async def store(self, area: FileArea) -> None:
        """Do the same, and store what was changed here. Other nodes see it when this returns."""
        ...

    async def store_if_latest(self, area: FileArea) -> bool:
        """Store what was changed here since `fetch`, unless another node has stored something in the area since then.

        Then what was changed here is dropped, the local copy is up to date, and False is returned.
        """
        ...

    async def remove(self, area: FileArea) -> None:
        """Remove an area from where it is stored. The caller deletes the local files."""
        ...

    async def list_areas(self, prefix: str) -> list[str]:
        """Return the names of the areas that begin with `prefix`, which ends with a slash."""
        ...

    async def check(self) -> None:
        """Return if files could be stored and read now. Raises FilesUnavailable."""
        ...


class SharedFolder(FileMirror):
    """The files are where all nodes see them: nothing is copied."""

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
    """Bring an area up to date before the block, and store what the block changed. Raises StoreError."""
    await mirror.fetch(area)
    yield
    await mirror.store(area)
