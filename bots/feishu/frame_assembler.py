"""Reassembles events that the platform sends in several frames."""

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from bots.feishu.sdk import Frame

_MAX_PARTS = 1000
_DIGITS = 10
_MAX_BYTES = 16 * 1024 * 1024
"""Maximum size of unfinished events, bytes. Beyond that, the oldest are dropped, and the platform resends them."""


@dataclass(slots=True)
class _PartialEvent:
    since: float
    total: int
    pieces: dict[int, bytes] = field(default_factory=dict)

    @property
    def size(self) -> int:
        return sum(len(piece) for piece in self.pieces.values())


class FrameAssembler:
    """Keeps the parts of incomplete events, for a limited time and up to a limited size."""

    def __init__(self, *, keep_s: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._keep_s = keep_s
        self._clock = clock
        self._pending: dict[str, _PartialEvent] = {}

    def add(self, frame: Frame) -> bytes | None:
        """Return the whole payload if `frame` completes it, else None."""
        total, number = _number(frame.headers, "sum", 1), _number(frame.headers, "seq", 0)
        if total <= 1:
            return frame.payload
        name = frame.headers.get("message_id", "")
        if not name or total > _MAX_PARTS or number >= total:
            return None
        self._expire()
        pending = self._pending.get(name)
        if pending is None or pending.total != total:
            pending = self._pending[name] = _PartialEvent(self._clock(), total)
        pending.pieces[number] = frame.payload
        if len(pending.pieces) < total:
            return None
        del self._pending[name]
        return b"".join(pending.pieces[index] for index in range(total))

    def _expire(self) -> None:
        oldest = self._clock() - self._keep_s
        for name in [name for name, pending in self._pending.items() if pending.since < oldest]:
            del self._pending[name]
        while (
            self._pending and sum(pending.size for pending in self._pending.values()) > _MAX_BYTES
        ):
            del self._pending[next(iter(self._pending))]


def _number(headers: Mapping[str, str], name: str, default: int) -> int:
    value = headers.get(name, "")
    plain = value.isascii() and value.isdigit() and len(value) < _DIGITS
    return int(value) if plain else default
