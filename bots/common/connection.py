"""The connection loop of every adapter: connect, serve, reconnect with backoff, report health."""

from collections.abc import Awaitable, Callable

import anyio

from bots.common.health import HealthTracker
from bus.errors import BusError, DeliveryError
from bus.platform import ConnectionState
from bus.retry import Backoff

RECONNECT = Backoff(first_s=1.0, cap_s=60.0, jitter=0.25)
"""Delays between attempts while a platform is unreachable.

The jitter keeps bots that lost a server at the same time from reconnecting at the same time.
"""


_CLOSED = "The connection was closed. Reconnecting."


class ConnectionFailure(BusError):
    """A connection could not be made, or it broke.

    Attributes:
        problem: What is wrong, without secrets.
        detail: The problem and what to do about it.
        retryable: Whether the connection can recover by itself. If not, the channel shows `failed` until an operator
            acts, and the loop retries only every `ConnectionLoop.failed_retry_s`.
        retry_after_s: How long the platform asked to wait before the next attempt, seconds; None = it did not say.
    """

    def __init__(
        self,
        problem: str,
        advice: str = "",
        *,
        retryable: bool = True,
        retry_after_s: float | None = None,
    ) -> None:
        self.problem = problem
        self.detail = f"{problem}: {advice}" if advice else problem
        super().__init__(self.detail)
        self.retryable = retryable
        self.retry_after_s = retry_after_s


class ConnectionLoop:
    """Keeps one connection up.

    `connect` makes one connection and serves it. It calls `health.mark_connected()` as soon as events can arrive,
    returns when the connection ends normally, and raises ConnectionFailure or DeliveryError when the connection breaks
    or cannot be made. Any other exception ends `run`, and the supervisor restarts the adapter. A webhook channel uses
    the same loop: its `connect` registers the webhook or checks the token, then sleeps between checks.

    Args:
        health: Receives every change of state.
        backoff: Delays after retryable failures.
        failed_retry_s: Delay after failures that need an operator. Because of these retries, the operator need not
            restart the service.
        stable_s: A connection that lasted this long resets the failure count, and the loop reconnects at once.
    """

    def __init__(
        self,
        health: HealthTracker,
        *,
        backoff: Backoff = RECONNECT,
        failed_retry_s: float = 60.0,
        stable_s: float = 10.0,
    ) -> None:
        self._health = health
        self._backoff = backoff
        self._failed_retry_s = failed_retry_s
        self._stable_s = stable_s
        self._failures = 0
        self._reconnect = anyio.Event()
        self._attempt: anyio.CancelScope | None = None

    def reconnect(self) -> None:
        """Connect again at once, even if connected or waiting, for example after a refused call."""
        self._reconnect.set()
        if self._attempt is not None:
            self._attempt.cancel()

    async def run(self, connect: Callable[[], Awaitable[None]]) -> None:
        """Stay connected until canceled."""
        self._health.mark_connecting()
        while True:
            self._reconnect = anyio.Event()
            delay_s = await self._attempt_once(connect)
            with anyio.move_on_after(delay_s):
                await self._reconnect.wait()

    async def _attempt_once(self, connect: Callable[[], Awaitable[None]]) -> float:
        """Connect and serve once. Return the delay before the next attempt, seconds."""
        started = anyio.current_time()
        failure: ConnectionFailure | None = None
        try:
            with anyio.CancelScope() as self._attempt:
                await connect()
        except ConnectionFailure as error:
            failure = error
        except DeliveryError as error:
            failure = ConnectionFailure(
                error.user_message, retryable=error.retryable, retry_after_s=error.retry_after_s
            )
        finally:
            self._attempt = None
        connected = self._health.state is ConnectionState.CONNECTED
        if connected and anyio.current_time() - started >= self._stable_s:
            self._failures = 0
            if failure is None:
                self._health.mark_disconnected(_CLOSED)
                return 0.0
        return self._record(failure or ConnectionFailure(_CLOSED))

    def _record(self, failure: ConnectionFailure) -> float:
        if not failure.retryable:
            self._health.mark_failed(failure.detail)
            return max(self._failed_retry_s, failure.retry_after_s or 0.0)
        self._health.mark_disconnected(failure.detail)
        self._failures += 1
        return max(self._backoff.wait_s(self._failures), failure.retry_after_s or 0.0)
