"""Client-side rate limits of a bot account's API calls: sliding windows for the account and for each chat."""

from collections import deque
from collections.abc import AsyncIterator, Callable, Hashable, Mapping
from contextlib import asynccontextmanager

import anyio

from bus.bounded import BoundedDict
from bus.errors import DeliveryError

Windows = Mapping[float, int]
"""Maximum number of calls by window length in seconds."""

RESERVED_S = 3600.0
"""How long a call stays reserved, seconds. By then it has been made or abandoned."""

_MAX_CHATS = 2_000


class RateLimiter:
    """Counts calls in sliding windows. Never waits.

    Args:
        windows: The limits; empty = unlimited.
        clock: Monotonic clock, seconds.
    """

    def __init__(self, windows: Windows, *, clock: Callable[[], float] | None = None) -> None:
        self._clock = clock or anyio.current_time
        self._calls: deque[float] = deque()
        self._paused_until = 0.0
        self.set_windows(windows)

    @property
    def is_paused(self) -> bool:
        """Whether the platform has asked to wait."""
        return self._paused_until > self._clock()

    def set_windows(self, windows: Windows) -> None:
        """Change the limits. Calls that were already counted still count."""
        self._windows = windows
        self._calls = deque(self._calls, maxlen=max(windows.values(), default=0))

    def count(self, within_s: float) -> int:
        """Return how many calls were made in the last `within_s` seconds. A window must be at least that long."""
        now = self._clock()
        return sum(1 for at in self._calls if now - at < within_s)

    def delay_s(self, *, share: float = 1.0) -> float:
        """Return how long to wait before a call fits, seconds; 0.0 = it fits now.

        Args:
            share: Part of each window that this kind of call may fill. Optional calls (typing, growing
                messages) use less than 1, so that final answers always find room.
        """
        now = self._clock()
        delays = [self._paused_until - now]
        for length_s, calls in self._windows.items():
            room = max(1, int(calls * share))
            if len(self._calls) >= room:
                delays.append(self._calls[-room] + length_s - now)
        return max(0.0, *delays)

    def record(self) -> None:
        """Count a call made now."""
        self._calls.append(self._clock())

    def try_acquire(self, *, share: float = 1.0) -> float:
        """Count a call and return 0.0 if it fits; otherwise return how long to wait, seconds."""
        delay_s = self.delay_s(share=share)
        if not delay_s:
            self.record()
        return delay_s

    def pause(self, seconds: float) -> None:
        """Permit no calls for a while, because the platform responded with 429."""
        self._paused_until = max(self._paused_until, self._clock() + seconds)


class ReservingRateLimiter(RateLimiter):
    """A rate limiter with reservations. Work that must end with a call starts only after reserving that call.

    However busy the account is, each window therefore has room for the calls that end the work in progress.
    """

    def __init__(self, windows: Windows, *, clock: Callable[[], float] | None = None) -> None:
        super().__init__(windows, clock=clock)
        self._reserved: dict[Hashable, float] = {}

    @property
    def has_room(self) -> bool:
        """Whether one more call can be made or reserved, besides those already reserved."""
        oldest = self._clock() - RESERVED_S
        self._reserved = {key: at for key, at in self._reserved.items() if at > oldest}
        return not self.is_paused and all(
            self.count(within_s) + len(self._reserved) < calls
            for within_s, calls in self._windows.items()
        )

    def reserve(self, key: Hashable) -> None:
        """Reserve a call for work that is about to start. Check `has_room` first."""
        self._reserved[key] = self._clock()

    def has_reserved(self, key: Hashable) -> bool:
        """Return whether a call is reserved for this work."""
        return key in self._reserved

    def release(self, key: Hashable) -> None:
        """Release a reservation, because the call was made or is not needed."""
        self._reserved.pop(key, None)

    def try_acquire_reserved(self, key: Hashable) -> float:
        """Like `try_acquire`, but a call without a reservation leaves room for the reserved calls."""
        if key not in self._reserved and not self.has_room:
            return self.delay_s() or max(self._windows)
        return self.try_acquire()


def _no_windows(_chat: str) -> Windows:
    return {}


class AccountLimiter:
    """Spaces out the calls of a bot account, and keeps optional calls from using up a chat's limit.

    A required call waits for room in the account's windows, at most `max_wait_s`. An optional call never waits. It is
    refused if its share of a window is used up, or if the platform asked to wait in the chat.

    Args:
        windows: Limits of all calls together.
        chat_windows: Returns the limits of one chat. Every call counts, but only optional calls are refused. If a
            required call exceeds a limit, the platform responds with 429 and the bus retries.
        max_wait_s: Longest wait of a required call, seconds. Beyond it, the caller decides.
        clock: Monotonic clock, seconds.
        divide_limit: Returns this process's share of an account limit, because several processes may use the account.
    """

    def __init__(
        self,
        windows: Windows,
        *,
        chat_windows: Callable[[str], Windows] = _no_windows,
        max_wait_s: float = 10.0,
        clock: Callable[[], float] | None = None,
        divide_limit: Callable[[int], int] = lambda limit: limit,
    ) -> None:
        self._clock = clock or anyio.current_time
        self._windows = windows
        self._divide_limit = divide_limit
        self._own_windows = self._divide_windows()
        self._account = RateLimiter(self._own_windows, clock=self._clock)
        self._chat_windows = chat_windows
        self._max_wait_s = max_wait_s
        self._chats = BoundedDict[str, RateLimiter](_MAX_CHATS)
        self._queue = anyio.Lock()

    async def acquire(self, chat: str = "", *, share: float | None = None) -> None:
        """Wait until a call fits, and count it. Required calls proceed in the order in which they began to wait.

        Args:
            chat: The chat of the call; "" = none.
            share: For optional calls: the part of each window that they may fill.

        Raises:
            DeliveryError: The call must wait. Retryable, with the seconds to wait.
        """
        limiter = self._chat(chat)
        if (windows := self._divide_windows()) != self._own_windows:
            self._own_windows = windows
            self._account.set_windows(windows)
        if share is not None:
            if delay_s := max(limiter.delay_s(share=share), self._account.delay_s(share=share)):
                raise rate_limited(delay_s)
        elif self._account.delay_s() or self._queue.locked():
            await self._wait()
        self._account.record()
        limiter.record()

    async def _wait(self) -> None:
        """Wait for room in the account's windows. Raises DeliveryError if that takes too long."""
        deadline = self._clock() + self._max_wait_s
        with anyio.move_on_after(self._max_wait_s):
            async with self._queue:
                while delay_s := self._account.delay_s():
                    if self._clock() + delay_s > deadline:
                        raise rate_limited(delay_s)
                    await anyio.sleep(delay_s)
                return
        raise rate_limited(self._account.delay_s() or 1.0)

    @asynccontextmanager
    async def limit(self, chat: str = "", *, share: float | None = None) -> AsyncIterator[None]:
        """Make one call inside the block: `acquire` before it, `pause` after a 429."""
        await self.acquire(chat, share=share)
        try:
            yield
        except DeliveryError as error:
            if error.retry_after_s:
                self.pause(error.retry_after_s, chat)
            raise

    def pause(self, seconds: float, chat: str = "") -> None:
        """Record a 429. With `chat`, only optional calls to it wait. Without, all calls of the account wait."""
        (self._chat(chat) if chat else self._account).pause(seconds)

    def _divide_windows(self) -> Windows:
        return {length_s: self._divide_limit(calls) for length_s, calls in self._windows.items()}

    def _chat(self, chat: str) -> RateLimiter:
        limiter = self._chats.get(chat) or RateLimiter(self._chat_windows(chat), clock=self._clock)
        self._chats[chat] = limiter
        return limiter


def rate_limited(delay_s: float) -> DeliveryError:
    """Return the error of a call that must wait."""
    return DeliveryError(
        "The platform's rate limit is used up for now", retryable=True, retry_after_s=delay_s
    )
