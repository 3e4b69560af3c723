"""The app's share of calls: 1,000 a minute and 50 a second for each API. Finished answers go before growing ones."""

from collections import deque
from collections.abc import Callable, Mapping
from typing import Final

import anyio

from bots.feishu.errors import FeishuError

WINDOWS: Final[Mapping[float, int]] = {1.0: 45, 60.0: 950}
"""Calls of one API within so many seconds: what the platform allows, less a little for clocks."""

_FRAMES: Final = 0.8
"""The part of a window that cards which only grow may use."""

_LONGEST_WAIT_S: Final = 3.0
"""Longer waits are left to the caller, who knows what else there is to do."""


class Quota:
    """Lets calls of one API through as fast as the platform takes them."""

    def __init__(
        self,
        windows: Mapping[float, int] = WINDOWS,
        *,
        clock: Callable[[], float] = anyio.current_time,
    ) -> None:
        self._windows = windows
        self._clock = clock
        self._calls: deque[float] = deque(maxlen=max(windows.values()))
        self._paused_until = 0.0

    async def take(self, *, is_frame: bool = False) -> None:
        """Wait until a call may be made, and count it.

        Args:
            is_frame: It shows what a later call shows as well: it is left out rather than waited for.

        Raises:
            FeishuError: not now; retryable, with the seconds to wait.
        """
        while (wait := self._wait_s(_FRAMES if is_frame else 1.0)) > 0:
            if is_frame or wait > _LONGEST_WAIT_S or self._paused_until > self._clock():
                text = "the app's rate limit of Feishu is used up for now"
                raise FeishuError(text, retryable=True, retry_after_s=wait)
            await anyio.sleep(wait)
        self._calls.append(self._clock())

    def pause(self, seconds: float) -> None:
        """Let nothing through for a while: the platform said so."""
        self._paused_until = max(self._paused_until, self._clock() + seconds)

    def _wait_s(self, part: float) -> float:
        now = self._clock()
        waits = [self._paused_until - now]
        for length_s, calls in self._windows.items():
            room = max(1, int(calls * part))
            if len(self._calls) >= room:
                waits.append(self._calls[-room] + length_s - now)
        return max(waits)
