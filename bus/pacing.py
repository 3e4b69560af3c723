"""How fast one chat may be written to."""

from collections import OrderedDict
from collections.abc import Callable

import anyio

ChatKey = tuple[str, str]
"""(channel, chat)."""


class Pacer:
    """Keeps a least distance between calls to one chat; a platform's Retry-After pauses that chat.

    Args:
        clock: A monotonic clock, seconds.
        keep: Idle chats remembered before the oldest are forgotten.
    """

    def __init__(self, *, clock: Callable[[], float] | None = None, keep: int = 4096) -> None:
        self._clock = clock or anyio.current_time
        self._keep = keep
        self._next: OrderedDict[ChatKey, float] = OrderedDict()

    async def turn(self, chat: ChatKey, interval_s: float) -> None:
        """Wait for this chat's next free moment and take it."""
        while self.paused_s(chat) > 0:  # noqa: ASYNC110 - a pause may grow while we sleep
            await anyio.sleep(self.paused_s(chat))
        self._set(chat, self._clock() + interval_s)

    def pause(self, chat: ChatKey, seconds: float) -> None:
        """Let nothing through to this chat for the given time."""
        self._set(chat, max(self._next.get(chat, 0.0), self._clock() + seconds))

    def paused_s(self, chat: ChatKey) -> float:
        """Return for how long this chat still has to wait."""
        return max(0.0, self._next.get(chat, 0.0) - self._clock())

    def _set(self, chat: ChatKey, moment: float) -> None:
        self._next[chat] = moment
        self._next.move_to_end(chat)
        while len(self._next) > self._keep:
            oldest = next(iter(self._next))
            if self._next[oldest] > self._clock():
                break
            del self._next[oldest]
