"""Clocks that tests set, and an event loop in which waiting takes no time."""

import asyncio
import selectors
from collections.abc import Awaitable, Callable
from typing import TypeVar

import anyio
from typing_extensions import override

T = TypeVar("T")


class ManualClock:
    """A clock that moves only when a test sets it.

    Attributes:
        now: The current time, seconds.
    """

    def __init__(self, now: float = 1000.0) -> None:
        self.now = now

    def __call__(self) -> float:
        return self.now


class OffsetClock:
    """A running wall clock that tests can move.

    Attributes:
        ahead: Seconds by which the test has moved it.
    """

    def __init__(self) -> None:
        self.ahead = 0.0

    def __call__(self) -> float:
        return 1_000_000.0 + anyio.current_time() + self.ahead


class VirtualTimeLoop(asyncio.SelectorEventLoop):
    """An event loop whose time jumps to the next timer when it is idle, so that hours take milliseconds.

    For code without sockets and threads, because the loop never waits in real time.
    """

    def __init__(self) -> None:
        self.now = 1000.0
        super().__init__(_VirtualTimeSelector(self))

    @override
    def time(self) -> float:
        return self.now


class _VirtualTimeSelector(selectors.DefaultSelector):
    def __init__(self, loop: VirtualTimeLoop) -> None:
        super().__init__()
        self._loop = loop

    @override
    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        ready = super().select(0)
        if not ready:
            assert timeout is not None, "all tasks wait, and no timer is set"
            self._loop.now += timeout
        return ready


def run_in_virtual_time(main: Callable[[], Awaitable[T]]) -> T:
    """Run a coroutine function in a separate loop with virtual time. Return its result."""
    return anyio.run(main, backend_options={"loop_factory": VirtualTimeLoop})
