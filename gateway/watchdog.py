"""Notices when the event loop stands still, and writes down what every thread was doing."""

import faulthandler
import logging
import sys
import threading
import time
import traceback
from collections.abc import Iterator
from contextlib import contextmanager, suppress

import anyio

from gateway.runtime.counters import DurationHistogram

log = logging.getLogger(__name__)

HEARTBEAT_S = 1.0
"""How often the loop shows that it lives."""

LAG_BUCKETS_S = (0.001, 0.005, 0.01, 0.05, 0.1, 0.5, 1.0, 5.0)

FAULTHANDLER_DELAY_S = 20.0
"""How much later the interpreter itself prints the stacks, to standard error: then not even a thread gets its turn."""


class Watchdog:
    """Watches one event loop, from a thread of its own.

    Attributes:
        lag: How late the loop came to its beats.
        stuck: How often it stood still.

    Args:
        bound_s: The standstill that is written down, seconds; 0 = none is.
    """

    def __init__(self, bound_s: float) -> None:
        self.lag = DurationHistogram(LAG_BUCKETS_S)
        self.stuck = 0
        self._bound_s = bound_s
        self._beat = time.monotonic()
        self._over = threading.Event()

    async def run(self) -> None:
        """Watch until cancelled."""
        with self._watching():
            while True:
                self._beat = time.monotonic()
                await anyio.sleep(HEARTBEAT_S)
                self.lag.observe(time.monotonic() - self._beat - HEARTBEAT_S)

    @contextmanager
    def _watching(self) -> Iterator[None]:
        if not self._bound_s:
            yield
            return
        self._over = threading.Event()
        thread = threading.Thread(target=self._watch, name="watchdog", daemon=True)
        thread.start()
        try:
            yield
        finally:
            self._over.set()

    def _watch(self) -> None:
        """Look again and again; runs in the thread."""
        pause_s = self._bound_s / 4
        seen, told = time.monotonic(), 0.0
        while not self._over.wait(pause_s):
            self._arm()
            now = time.monotonic()
            # A thread that is late itself was halted with the whole process: nothing hangs.
            is_late, seen = now - seen > 2 * pause_s + HEARTBEAT_S, now
            beat = self._beat
            if told and beat != told:
                log.warning("the event loop runs again")
                told = 0.0
            elif not told and not is_late and now - beat > self._bound_s + HEARTBEAT_S:
                told = beat
                self.stuck += 1
                log.critical(
                    "the event loop stands still since %.0f s\n%s",
                    now - beat,
                    format_thread_stacks(),
                )
        with suppress(RuntimeError):
            faulthandler.cancel_dump_traceback_later()

    def _arm(self) -> None:
        """Put off the interpreter's own alarm, which works even where something keeps all threads from running."""
        if sys.__stderr__ is None:
            return
        with suppress(RuntimeError, ValueError, OSError):
            faulthandler.dump_traceback_later(
                self._bound_s + FAULTHANDLER_DELAY_S, file=sys.__stderr__
            )


def format_thread_stacks() -> str:
    """Return where every thread is: files, lines and names, no values."""
    names = {thread.ident: thread.name for thread in threading.enumerate()}
    parts = []
    for ident, frame in sys._current_frames().items():  # noqa: SLF001 - the documented way to every thread's stack
        lines = "".join(traceback.format_stack(frame))
        parts.append(f"thread {names.get(ident, '?')} ({ident})\n{lines}")
    return "\n".join(parts)
