"""The parts of a response on its way from one node to another: numbered, acknowledged, repeated when lost."""

from base64 import b64decode, b64encode
from collections import deque
from collections.abc import Callable
from typing import Literal

import anyio

PartKind = Literal["head", "body", "end", "broken"]
"""`head` = status and headers as JSON, `broken` = the response ends early."""

Part = tuple[PartKind, bytes]

PART_BYTES = 5_100
"""Of one part, so that it fits into a signal in base64."""

WINDOW = 64
"""Parts under way; the sender waits for acknowledgements beyond that. It keeps so many, to repeat them."""

ACKNOWLEDGE_EVERY = 16
ACKNOWLEDGE_S = 1.0
"""How often what was received is acknowledged: after so many parts, or seconds."""


class SentParts:
    """The parts of one response, at the node that makes it.

    Args:
        stream: The name of the response, which the receiver gave.
        tell: Sends a note; notes may be lost.
    """

    def __init__(self, stream: str, tell: Callable[[str], None]) -> None:
        self.heard_at = anyio.current_time()
        self.disconnected = anyio.Event()
        self.delivered = anyio.Event()
        self._stream = stream
        self._tell = tell
        self._last = 0
        self._kept: deque[tuple[int, str]] = deque()
        self._room = anyio.Event()
        self._lock = anyio.Lock()
        self._has_ended = False

    async def send(self, kind: PartKind, data: bytes = b"") -> None:
        """Send a part, cut into several if it is long; wait while too many are under way."""
        # One at a time: a heartbeat does not come between the parts of an event.
        async with self._lock:
            for start in range(0, len(data) or 1, PART_BYTES):
                while len(self._kept) >= WINDOW and not self.disconnected.is_set():
                    self._room = anyio.Event()
                    await self._room.wait()
                if self.disconnected.is_set():
                    return
                self._send(kind, data[start : start + PART_BYTES])

    def _send(self, kind: PartKind, data: bytes) -> None:
        self._last += 1
        note = f"{self._stream} {self._last} {kind} {b64encode(data).decode()}"
        self._has_ended = kind in {"end", "broken"}
        self._kept.append((self._last, note))
        self._tell(note)

    def acknowledge(self, number: int) -> None:
        """Forget the parts up to `number`: the receiver has them."""
        self.heard_at = anyio.current_time()
        while self._kept and self._kept[0][0] <= number:
            self._kept.popleft()
        self._room.set()
        if self._has_ended and not self._kept:
            self.delivered.set()

    def repeat(self) -> None:
        """Send what is not acknowledged again."""
        for _, note in self._kept:
            self._tell(note)

    def disconnect(self) -> None:
        """The receiver wants no more."""
        self.disconnected.set()
        self.delivered.set()
        self._room.set()


class ReceivedParts:
    """The parts of one response, at the node that passes it on.

    Attributes:
        position: The number of the last part that was read.
    """

    def __init__(self) -> None:
        self.position = 0
        self._arrived: dict[int, Part] = {}
        self._more = anyio.Event()
        self._acknowledged = 0
        self._acknowledged_at = anyio.current_time()

    def add(self, number: int, kind: PartKind, encoded: str) -> None:
        """Take a part from its note; one that was read already is dropped."""
        if number > self.position:
            self._arrived[number] = kind, b64decode(encoded)
            self._more.set()

    async def receive(self, within_s: float) -> Part | None:
        """Return the next part; None = it did not arrive in time."""
        with anyio.move_on_after(within_s):
            while self.position + 1 not in self._arrived:
                self._more = anyio.Event()
                await self._more.wait()
        part = self._arrived.pop(self.position + 1, None)
        if part is not None:
            self.position += 1
        return part

    def is_acknowledgement_due(self) -> bool:
        """Return whether the sender is to be told the position now."""
        now = anyio.current_time()
        is_late = now - self._acknowledged_at >= ACKNOWLEDGE_S
        if self.position - self._acknowledged < ACKNOWLEDGE_EVERY and not is_late:
            return False
        self._acknowledged, self._acknowledged_at = self.position, now
        return True
