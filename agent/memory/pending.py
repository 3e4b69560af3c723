"""PendingTurnsFile: turns not processed before shutdown, kept on disk until the next start. Blocking."""

import json
import logging
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from agent.errors import MemoryInvalid
from agent.memory.scope import memory_scope
from agent.memory.store import write_atomically
from agent.memory.turns import MemoryMessage, MemoryTurn

logger = logging.getLogger(__name__)

PENDING_FILE_NAME = "pending.json"


class PendingTurnsFile:
    """One file next to the scopes' folders. Disk errors are only logged, so that they cannot break shutdown."""

    def __init__(self, root: Path) -> None:
        self._path = root / PENDING_FILE_NAME

    def save(self, exchanges: Sequence[MemoryTurn]) -> None:
        """Save turns; deletes the file if there are none."""
        try:
            if not exchanges:
                self._path.unlink(missing_ok=True)
                return
            self._path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            write_atomically(self._path, json.dumps([asdict(one) for one in exchanges]))
        except OSError:
            logger.exception("Could not save pending memory turns")

    def load(self) -> list[MemoryTurn]:
        """Return the saved turns; invalid entries are skipped."""
        try:
            listed = json.loads(self._path.read_bytes())
        except FileNotFoundError:
            return []
        except (OSError, ValueError):
            logger.exception("Could not load pending memory turns")
            return []
        return list(_parse_turns(listed if isinstance(listed, list) else []))


_OLD_KEYS = {"spot": "scope", "said": "messages", "earlier": "context"}
"""Maps the keys of files written by older versions."""


def _parse_turns(listed: list[Any]) -> Iterator[MemoryTurn]:
    for raw in listed:
        try:
            entry = {_OLD_KEYS.get(key, key): value for key, value in raw.items()}
            yield MemoryTurn(
                scope=memory_scope(entry["scope"]["scope"], entry["scope"]["agent"]),
                thread_id=str(entry["thread_id"]),
                messages=tuple(MemoryMessage(**one) for one in entry["messages"]),
                context=tuple(MemoryMessage(**one) for one in entry["context"]),
                is_correction=entry["is_correction"] is True,
                is_reinforcement=entry["is_reinforcement"] is True,
            )
        except (AttributeError, KeyError, TypeError, MemoryInvalid):
            logger.warning("Skipped an invalid entry of %s", PENDING_FILE_NAME)
