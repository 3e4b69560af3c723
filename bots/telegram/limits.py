"""How often Telegram may be called: what can wait leaves room for answers."""

from collections import OrderedDict, deque
from collections.abc import Callable

import anyio

from bus.errors import DeliveryError

GROUP_WINDOW_S = 60.0
"""A group takes 20 messages in this time (Bot FAQ, "hitting limits")."""

PATCHES = 15
"""Calls to a group in a window after which an answer no longer grows: the rest is for answers."""

TYPING = 16
"""Likewise for "typing", which is shown 15 times a minute."""

TYPING_BESIDE_PATCHES = 8
"""Likewise where growing answers show that work goes on."""

_OVERALL_S = 1 / 30
"""A bot makes some 30 calls a second (Bot FAQ)."""

_BURST = 30
_CHATS = 2_000


class Pace:
    """Counts calls by group, and spaces all of them.

    Answers never wait here: what a chat does not take it refuses with the seconds to wait, and the bus waits.

    Args:
        clock: A monotonic clock, seconds.
    """

    def __init__(self, *, clock: Callable[[], float] | None = None) -> None:
        self._clock = clock or anyio.current_time
        self._next = 0.0
        self._calls: OrderedDict[str, deque[float]] = OrderedDict()
        self._flooded: dict[str, float] = {}

    async def turn(self, chat: str, *, most: int | None = None) -> None:
        """Wait for a moment to call, and count the call.

        Args:
            chat: Where.
            most: For what can wait: calls to a group in a window, this one included.

        Raises:
            DeliveryError: this chat has no room for it now; retryable.
        """
        if most is not None:
            self._check(chat, most)
        now = self._clock()
        self._next = max(self._next, now - _BURST * _OVERALL_S) + _OVERALL_S
        if is_group(chat):
            self._window(chat, now).append(now)
        if self._next > now:
            await anyio.sleep(self._next - now)

    def flooded(self, chat: str, seconds: float) -> None:
        """Note that a chat asked to wait."""
        self._flooded[chat] = max(self._flooded.get(chat, 0.0), self._clock() + seconds)

    def _check(self, chat: str, most: int) -> None:
        now = self._clock()
        self._flooded = {name: until for name, until in self._flooded.items() if until > now}
        wait = self._flooded.get(chat, now) - now
        recent = self._window(chat, now)
        if is_group(chat) and len(recent) >= most:
            wait = max(wait, recent[len(recent) - most] + GROUP_WINDOW_S - now)
        if wait > 0:
            raise DeliveryError(
                "This chat takes no more for now", retryable=True, retry_after_s=wait
            )

    def _window(self, chat: str, now: float) -> deque[float]:
        """Return when a chat was called within the last window, oldest first."""
        recent = self._calls.setdefault(chat, deque())
        self._calls.move_to_end(chat)
        while recent and recent[0] <= now - GROUP_WINDOW_S:
            recent.popleft()
        if len(self._calls) > _CHATS:
            self._calls.popitem(last=False)
        return recent


def is_group(chat: str) -> bool:
    """Tell whether a chat id is a group's.

    >>> is_group("-100200"), is_group("42")
    (True, False)
    """
    return chat.startswith("-")
