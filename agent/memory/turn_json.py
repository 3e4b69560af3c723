"""JSON of turns, for the queue in memory and on disk. Pure."""

import json
import logging
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from typing import Any

import orjson

from agent.errors import MemoryInvalid
from agent.memory.scope import memory_scope
from agent.memory.turns import MemoryMessage, MemoryTurn

log = logging.getLogger(__name__)


def encode_turns(turns: Sequence[MemoryTurn]) -> bytes:
    """Return turns as a JSON array."""
    try:
        return orjson.dumps(turns)
    except TypeError:  # a lone surrogate, from a hostile model
        return json.dumps([asdict(turn) for turn in turns]).encode()


def parse_turns(listed: list[Any]) -> Iterator[MemoryTurn]:
    """Yield the turns of a decoded array. Skips invalid ones."""
    for entry in listed:
        try:
            yield MemoryTurn(
                scope=memory_scope(entry["scope"]["scope"], entry["scope"]["agent"]),
                thread_id=str(entry["thread_id"]),
                said_at=str(entry.get("said_at") or ""),
                messages=tuple(MemoryMessage(**one) for one in entry["messages"]),
                context=tuple(MemoryMessage(**one) for one in entry["context"]),
                is_correction=entry["is_correction"] is True,
                is_reinforcement=entry["is_reinforcement"] is True,
            )
        except (AttributeError, KeyError, TypeError, MemoryInvalid):
            log.warning("Skipped an invalid pending memory turn")
