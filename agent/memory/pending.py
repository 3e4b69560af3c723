"""What was not learnt before a stop, on disk until the next start. Blocking: call it in worker threads."""

import json
import logging
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from agent.errors import MemoryRefused
from agent.memory.files import write_whole
from agent.memory.scopes import spot
from agent.memory.turns import Exchange, Said

logger = logging.getLogger(__name__)

NAME = "pending.json"


class PendingFile:
    """One file beside the scopes' folders. A disk that refuses is logged: nothing here is worth a failed stop."""

    def __init__(self, root: Path) -> None:
        self._path = root / NAME

    def save(self, exchanges: Sequence[Exchange]) -> None:
        """Write down what is open; nothing open leaves no file."""
        try:
            if not exchanges:
                self._path.unlink(missing_ok=True)
                return
            self._path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            write_whole(self._path, json.dumps([asdict(one) for one in exchanges]))
        except OSError:
            logger.exception("what waits to be remembered could not be written down")

    def load(self) -> list[Exchange]:
        """Return what was written down; entries that cannot be understood are left out."""
        try:
            listed = json.loads(self._path.read_bytes())
        except FileNotFoundError:
            return []
        except (OSError, ValueError):
            logger.exception("what waited to be remembered could not be read")
            return []
        return list(_read(listed if isinstance(listed, list) else []))


def _read(listed: list[Any]) -> Iterator[Exchange]:
    for entry in listed:
        try:
            yield Exchange(
                spot=spot(entry["spot"]["scope"], entry["spot"]["agent"]),
                thread_id=str(entry["thread_id"]),
                said=tuple(Said(**one) for one in entry["said"]),
                earlier=tuple(Said(**one) for one in entry["earlier"]),
                is_correction=entry["is_correction"] is True,
                is_reinforcement=entry["is_reinforcement"] is True,
            )
        except (KeyError, TypeError, MemoryRefused):
            logger.warning("an entry of what waited to be remembered was left out")
