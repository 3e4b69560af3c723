"""SharedMemory: copies memory documents between nodes. Blocking: for anyio's worker threads."""

from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any, TypeVar

import anyio.from_thread

from agent.errors import MemoryUnavailable
from agent.memory.scope import MemoryScope
from store.errors import StoreError
from store.files.mirror import FileArea, FileMirror

_AREAS = "memory/"

Asked = TypeVar("Asked")
Answer = TypeVar("Answer")


class SharedMemory:
    """Copies each scope's documents as one file area.

    Args:
        mirror: Copies the areas between nodes.
        folder: The folder of the documents, relative to the mirror's root.
    """

    def __init__(self, mirror: FileMirror, folder: Path) -> None:
        self._mirror = mirror
        self._folder = folder

    def fetch(self, scope: MemoryScope) -> None:
        """Update the local copy of a scope's documents. Raises MemoryUnavailable."""
        _run(self._mirror.fetch, self._area(scope.folder))

    def store(self, scope: MemoryScope) -> bool:
        """Store a scope's documents. Return False if another node changed them since `fetch`: its version then wins.

        Raises MemoryUnavailable.
        """
        return _run(self._mirror.store_if_latest, self._area(scope.folder))

    def fetch_all(self) -> None:
        """Update the local copies of all scopes. Raises MemoryUnavailable."""
        for area in _run(self._mirror.list_areas, _AREAS):
            _run(self._mirror.fetch, self._area(area.removeprefix(_AREAS)))

    def _area(self, name: str) -> FileArea:
        return FileArea(name=f"{_AREAS}{name}", folder=f"{self._folder}/{name}")


def shared_memory(mirror: FileMirror | None, home: Path, root: Path) -> SharedMemory | None:
    """Return the SharedMemory for `root`. None without a mirror, or if `root` is outside `home`."""
    if mirror is None or not mirror.is_remote or not root.is_relative_to(home):
        return None
    return SharedMemory(mirror, root.relative_to(home))


def _run(call: Callable[[Asked], Coroutine[Any, Any, Answer]], asked: Asked) -> Answer:
    try:
        return anyio.from_thread.run(call, asked)
    except StoreError as error:
        raise MemoryUnavailable from error
