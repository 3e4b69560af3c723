"""Send rate limit per chat."""

from collections import OrderedDict
from collections.abc import Callable

import anyio

ChatKey = tuple[str, str]
"""(channel, chat)."""


class SendRateLimiter:
    """Spaces the calls to each chat. A platform's Retry-After delays only the chat it concerns.

    Each chat has a virtual schedule with one call every `interval_s`. A quiet chat may run ahead of it by a burst. This
    is the generic cell rate algorithm, with one number per chat.

    Args:
        clock: A monotonic clock, seconds.
    """

    def __init__(self, *, clock: Callable[[], float] | None = None) -> None:
        self._clock = clock or anyio.current_time
        self._schedule: OrderedDict[ChatKey, float] = OrderedDict()
        self._paused: dict[ChatKey, float] = {}

    async def acquire(self, chat: ChatKey, interval_s: float, *, burst: int = 1) -> None:
        """Wait for this chat's next free slot and take it.

        Args:
            chat: The chat, or something else with a limit.
            interval_s: Minimum interval between calls in the long run.
            burst: Number of calls to a quiet chat that do not have to wait.
        """
        while (wait := self._wait_s(chat, interval_s * (burst - 1))) > 0:  # noqa: ASYNC110 - it may grow
            await anyio.sleep(wait)
        now = self._clock()
        self._schedule[chat] = max(self._schedule.get(chat, now), now) + interval_s
        self._schedule.move_to_end(chat)
        self._forget(now)

    def pause(self, chat: ChatKey, seconds: float) -> None:
        """Block this chat for the given time, seconds."""
        until = self._clock() + seconds
        self._paused[chat] = max(self._paused.get(chat, until), until)

    def _wait_s(self, chat: ChatKey, ahead_s: float) -> float:
        now = self._clock()
        paused = self._paused.get(chat)
        if paused is not None and paused <= now:
            del self._paused[chat]
        return max(self._schedule.get(chat, now) - ahead_s, paused or now) - now

    def _forget(self, now: float) -> None:
        # Drop schedules that have passed. There is one for each growing message, so there are many.
        while self._schedule and next(iter(self._schedule.values())) <= now:
            self._schedule.popitem(last=False)
