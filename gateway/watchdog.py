"""Watchdog: detects a blocked event loop and logs the stacks of the process's threads."""

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
"""Interval of the event loop's heartbeat, seconds."""

LAG_BUCKETS_S = (0.001, 0.005, 0.01, 0.05, 0.1, 0.5, 1.0, 5.0)

FAULTHANDLER_DELAY_S = 20.0
"""How much later faulthandler prints the stacks to standard error, seconds, in case no Python thread can run."""


class Watchdog:
    """Watches one event loop from a separate thread.

    Attributes:
        lag: Delays of the heartbeats.
        blocked_count: How often the loop was blocked.

    Args:
        threshold_s: How long the loop must be blocked before the stacks are logged, seconds; 0 = never.
    """

    def __init__(self, threshold_s: float) -> None:
        self.lag = DurationHistogram(LAG_BUCKETS_S)
        self.blocked_count = 0
        self._threshold_s = threshold_s
        self._last_heartbeat = time.monotonic()
        self._stopped = threading.Event()

    async def run(self) -> None:
        """Watch until canceled."""
        with self._watching():
            while True:
                self._last_heartbeat = time.monotonic()
                await anyio.sleep(HEARTBEAT_S)
                self.lag.observe(time.monotonic() - self._last_heartbeat - HEARTBEAT_S)

    @contextmanager
    def _watching(self) -> Iterator[None]:
        if not self._threshold_s:
            yield
            return
        self._stopped = threading.Event()
        thread = threading.Thread(target=self._watch, name="watchdog", daemon=True)
        thread.start()
        try:
            yield
        finally:
            self._stopped.set()

    def _watch(self) -> None:
        """Check the heartbeat periodically. Runs in the watchdog's thread."""
        pause_s = self._threshold_s / 4
        seen, told = time.monotonic(), 0.0
        while not self._stopped.wait(pause_s):
            self._arm_faulthandler()
            now = time.monotonic()
            # If this thread is late as well, the whole process was suspended and the loop is not blocked.
            is_late, seen = now - seen > 2 * pause_s + HEARTBEAT_S, now
            beat = self._last_heartbeat
            if told and beat != told:
                log.warning("the event loop is running again")
                told = 0.0
            elif not told and not is_late and now - beat > self._threshold_s + HEARTBEAT_S:
                told = beat
                self.blocked_count += 1
                log.critical(
                    "the event loop has been blocked for %.0f s\n%s",
                    now - beat,
                    format_thread_stacks(),
                )
        with suppress(RuntimeError):
            faulthandler.cancel_dump_traceback_later()

    def _arm_faulthandler(self) -> None:
        """Postpone faulthandler, which works even if no Python thread can run."""
        if sys.__stderr__ is None:
            return
        with suppress(RuntimeError, ValueError, OSError):
            faulthandler.dump_traceback_later(
                self._threshold_s + FAULTHANDLER_DELAY_S, file=sys.__stderr__
            )


def format_thread_stacks() -> str:
    """Return the stack of every thread: files, lines and names, but no values."""
    names = {thread.ident: thread.name for thread in threading.enumerate()}
    parts = []
    for ident, frame in sys._current_frames().items():  # noqa: SLF001 - the documented way to every thread's stack
        lines = "".join(traceback.format_stack(frame))
        parts.append(f"thread {names.get(ident, '?')} ({ident})\n{lines}")
    return "\n".join(parts)
