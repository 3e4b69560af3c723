"""Tasks that run next to a block: they end with it, errors are not wrapped, and no garbage remains."""

import asyncio
import traceback
from pathlib import Path

import anyio
import anyio.lowlevel
import pytest

from bus.tasks import run_beside
from tests.bus.test_turn import turn_harness
from tests.eventually import eventually
from tests.fakes.platform import CardPlatform
from tests.garbage import garbage_made


def is_canceled_in_bus(found: object) -> bool:
    """Return whether an object is the cancellation of a task of the bus."""
    if not isinstance(found, asyncio.CancelledError):
        return False
    return any("/bus/" in frame.filename for frame in traceback.extract_tb(found.__traceback__))


async def test_tasks_beside_a_block_end_with_it() -> None:
    steps: list[str] = []

    async def work() -> None:
        try:
            steps.append("begun")
            await anyio.sleep_forever()
        finally:
            with anyio.CancelScope(shield=True):
                await anyio.lowlevel.checkpoint()
            steps.append("ended")

    async with run_beside(work):
        await eventually(lambda: steps == ["begun"])
    assert steps == ["begun", "ended"]
    async with run_beside(work):
        pass  # it has not begun
    assert steps == ["begun", "ended"]


async def test_errors_are_raised_as_they_are() -> None:
    async def fail() -> None:
        raise ValueError("work")

    with pytest.raises(ValueError, match="work"):
        async with run_beside(fail):
            await anyio.sleep_forever()
    with pytest.raises(KeyError, match="block"):
        await _fail_beside_work()


async def _fail_beside_work() -> None:
    async with run_beside(anyio.sleep_forever):
        await anyio.lowlevel.checkpoint()
        raise KeyError("block")


async def test_a_cancellation_from_outside_ends_both() -> None:
    with anyio.CancelScope() as outside:
        async with run_beside(anyio.sleep_forever):
            outside.cancel()
            await anyio.sleep_forever()
    assert outside.cancelled_caught


async def test_indicators_of_a_turn_leave_no_garbage(tmp_path: Path) -> None:
    platform = CardPlatform()
    async with turn_harness(tmp_path, platform) as h:
        await h.answer("hi", "e1")
        with garbage_made() as garbage:
            for number in range(2, 5):
                await h.answer("hi", f"e{number}")
    assert [found for found in garbage if is_canceled_in_bus(found)] == []
