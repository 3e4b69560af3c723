"""PendingTurns: keeps queued turns on disk until they are processed. Blocking."""

import hashlib
import json
import logging
import os
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from agent.memory.queue import MemoryQueueKey
from agent.memory.turn_json import encode_turns, parse_turns
from agent.memory.turns import MemoryTurn

log = logging.getLogger(__name__)


class PendingTurns:
    """Stores one file per queue entry. Disk errors are only logged, because memory must not break a turn.

    The files survive a crash of the process. They are not synced, so a power failure may lose them.

    Args:
        root: The memory folder.
    """

    def __init__(self, root: Path) -> None:
        self._folder = root / "pending"

    def save_all(self, entries: Iterable[tuple[MemoryQueueKey, Sequence[MemoryTurn]]]) -> None:
        """Save the unprocessed turns of several entries."""
        for key, turns in entries:
            self.save(key, turns)

    def save(self, key: MemoryQueueKey, turns: Sequence[MemoryTurn]) -> None:
        """Save the unprocessed turns of an entry. Delete its file if there are none."""
        name = json.dumps([key.thread_id, key.scope.scope, key.scope.agent])
        path = f"{self._folder}/{hashlib.sha256(name.encode()).hexdigest()[:32]}"
        try:
            if turns:
                self._write(path, encode_turns(turns))
            else:
                Path(f"{path}.json").unlink(missing_ok=True)
        except OSError:
            log.exception("Could not save pending memory turns")

    def _write(self, path: str, content: bytes) -> None:
        flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC
        try:
            descriptor = os.open(f"{path}.new", flags, 0o600)
        except FileNotFoundError:
            self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            descriptor = os.open(f"{path}.new", flags, 0o600)
        with os.fdopen(descriptor, "wb") as file:
            file.write(content)
        Path(f"{path}.new").replace(f"{path}.json")

    def load(self) -> list[MemoryTurn]:
        """Return the saved turns. Skips invalid entries."""
        return [turn for path in self._paths() for turn in parse_turns(_read(path))]

    def _paths(self) -> list[Path]:
        try:
            found = sorted(self._folder.glob("*.json"), key=os.path.getmtime)
        except OSError:
            log.exception("Could not list pending memory turns")
            found = []
        return found


def _read(path: Path) -> list[Any]:
    try:
        listed = json.loads(path.read_bytes())
    except FileNotFoundError:
        return []
    except (OSError, ValueError):
        log.exception("Could not load pending memory turns")
        return []
    return listed if isinstance(listed, list) else []
