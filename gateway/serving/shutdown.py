"""SIGINT, SIGTERM and SIGHUP: a graceful stop with a time limit."""

import asyncio
import os
import signal
import socket
import threading
from types import FrameType, TracebackType
from typing import Self

import anyio

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
"""SIGHUP means that the terminal is gone. Under `nohup` the signal is ignored, and the service ignores it too."""
INTERRUPTED = 130


class ShutdownSignal:
    """An event that the first signal or `request` sets. Use it as a context manager in the event loop's thread.

    If the process has not ended after `bound_s` seconds, it is ended with exit code 0, because accepted messages are on
    disk. A second Ctrl-C ends it immediately.
    """

    def __init__(self, *, bound_s: float) -> None:
        self._bound_s = bound_s
        self._event = anyio.Event()
        self._requested = False
        self._loop = asyncio.get_running_loop()
        self._before: dict[signal.Signals, object] = {}
        # A signal does not end the loop's wait if it arrives just before, or in another thread. A byte does.
        self._waking, self._wakes = socket.socketpair()
        self._wakes_before = -1

    def __enter__(self) -> Self:
        """Install the signal handlers."""
        self._waking.settimeout(0)
        self._wakes.settimeout(0)
        self._loop.add_reader(self._waking, self._waking.recv, 1024)
        wakes = self._wakes.fileno()
        self._wakes_before = signal.set_wakeup_fd(wakes, warn_on_full_buffer=False)
        for number in SIGNALS:
            if number == signal.SIGHUP and signal.getsignal(number) is signal.SIG_IGN:
                continue
            self._before[number] = signal.signal(number, self._handle)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Restore the previous handlers, except during a stop: a late signal must not end the process with an error."""
        signal.set_wakeup_fd(self._wakes_before)
        self._loop.remove_reader(self._waking)
        self._waking.close()
        self._wakes.close()
        if not self._requested:
            for number, handler in self._before.items():
                signal.signal(number, handler)  # type: ignore[arg-type]

    async def wait(self) -> None:
        """Wait until a stop is requested."""
        await self._event.wait()

    def request(self) -> None:
        """Request a stop."""
        if self._begin():
            self._event.set()

    def _handle(self, number: int, _frame: FrameType | None) -> None:
        # Signal handlers run between the main thread's bytecodes, even if the loop is blocked.
        if self._begin():
            self._loop.call_soon_threadsafe(self._event.set)
        elif number == signal.SIGINT:
            os._exit(INTERRUPTED)

    def _begin(self) -> bool:
        if self._requested:
            return False
        self._requested = True
        clock = threading.Timer(self._bound_s, os._exit, args=(0,))
        clock.daemon = True
        clock.start()
        return True
