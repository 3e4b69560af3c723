"""A blocked event loop is detected and the stacks of all threads are logged."""

import logging
import threading

import anyio
import anyio.lowlevel
import anyio.to_thread
from typing_extensions import override

from gateway.watchdog import Watchdog, format_thread_stacks
from tests.eventually import is_waiting


class RecordingHandler(logging.Handler):
    """Sets an event at the first line that contains a text, in whichever thread it is logged."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.text, self.lines, self.seen = text, list[str](), threading.Event()

    @override
    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append(record.getMessage())
        if self.text in record.getMessage():
            self.seen.set()


def hog_the_loop(until: threading.Event) -> None:
    assert until.wait(30)


async def test_a_blocked_event_loop_is_logged_with_all_stacks() -> None:
    watchdog, told, again = (
        Watchdog(0.1),
        RecordingHandler("has been blocked"),
        RecordingHandler("is running again"),
    )
    logger = logging.getLogger("gateway.watchdog")
    logger.addHandler(told)
    logger.addHandler(again)
    try:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(watchdog.run)
            await anyio.lowlevel.checkpoint()
            hog_the_loop(told.seen)
            with anyio.fail_after(20):
                await anyio.to_thread.run_sync(again.seen.wait, abandon_on_cancel=True)
            tasks.cancel_scope.cancel()
    finally:
        logger.removeHandler(told)
        logger.removeHandler(again)
    (report,) = [line for line in told.lines if "has been blocked" in line]
    assert "hog_the_loop" in report
    assert "thread watchdog" in report
    assert watchdog.blocked_count == 1
    assert watchdog.lag.count >= 1


def test_stacks_hold_names_and_no_values() -> None:
    secret = "hush" + "-" + "hush"
    assert "test_stacks_hold_names_and_no_values" in format_thread_stacks()
    assert secret not in format_thread_stacks()


async def test_nothing_is_watched_when_it_is_off() -> None:
    before = {thread.name for thread in threading.enumerate()}
    await is_waiting(Watchdog(0).run)
    assert "watchdog" not in {thread.name for thread in threading.enumerate()} - before
