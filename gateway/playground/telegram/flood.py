"""Telegram's limit of a bot's calls a second. Above it, every call is refused until the stated wait is over."""

from collections import deque
from collections.abc import Callable

from gateway.playground.telegram.chats import TelegramApiError


class AccountFloodLimit:
    """Counts calls and refuses those above the limit.

    Attributes:
        refusals: Number of refused calls.

    Args:
        per_second: Maximum number of calls within any second.
        wait_s: The wait in a refusal, in whole seconds as in the Bot API.
        clock: Monotonic clock, seconds.
    """

    def __init__(self, per_second: int, *, wait_s: int = 1, clock: Callable[[], float]) -> None:
        self.refusals = 0
        self._wait_s = wait_s
        self._clock = clock
        self._taken: deque[float] = deque(maxlen=per_second)
        self._closed_until = 0.0

    def check(self) -> None:
        """Count a call. Raises TelegramApiError if there are too many."""
        now = self._clock()
        is_full = len(self._taken) == self._taken.maxlen and now - self._taken[0] < 1.0
        if is_full and now >= self._closed_until:
            self._closed_until = now + self._wait_s
        if now < self._closed_until:
            self.refusals += 1
            # Rounded up, so that it is never shorter than the remaining wait.
            wait = -int(now - self._closed_until) + 1
            raise TelegramApiError(
                429, f"Too Many Requests: retry after {wait}", {"retry_after": wait}
            )
        self._taken.append(now)
