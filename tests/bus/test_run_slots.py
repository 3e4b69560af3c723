"""Run slots: a burst of one bot or person delays others by at most one run."""

from pathlib import Path

import anyio
import anyio.lowlevel
import pytest

from bus.config import BusConfig
from bus.conversation.run_slots import RunSlots
from tests.bus.harness import running_bus
from tests.eventually import eventually
from tests.fakes.platform import FakePlatform


async def test_people_and_channels_take_turns_for_the_only_slot(tmp_path: Path) -> None:
    config = BusConfig(drain_s=0.2, max_concurrent_runs=1)
    other = {"other": FakePlatform("other")}
    async with running_bus(tmp_path, config=config, others=other) as harness:
        gate = harness.hold_next_run("First")
        await harness.send("first", chat="a0", user="a")
        await harness.wait_for_runs(1)
        for number in range(1, 4):
            await harness.send(f"a{number}", chat=f"a{number}", user="a")
        await harness.send("b1", chat="b1", user="b")
        await harness.send("other1", chat="o1", user="o", channel="other")
        await anyio.wait_all_tasks_blocked()
        gate.set()
        await eventually(harness.unfinished_events, lambda events: not events)
        assert harness.prompts() == ["first", "a1", "other1", "b1", "a2", "a3"]


@pytest.mark.parametrize("is_granted", [False, True])
async def test_a_slot_is_not_lost_with_a_turn_that_is_canceled(is_granted: bool) -> None:
    slots = RunSlots(1)
    held, gone = anyio.Event(), anyio.CancelScope()

    async def hold() -> None:
        async with slots.slot("c", ("w", "first")):
            held.set()
            await anyio.wait_all_tasks_blocked()
            if not is_granted:
                gone.cancel()
                await anyio.wait_all_tasks_blocked()
        gone.cancel()  # the waiting task has the slot, but has not run yet

    async def wait() -> None:
        with gone:
            async with slots.slot("c", ("w", "second")):
                await anyio.sleep_forever()

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(hold)
        await held.wait()
        tasks.start_soon(wait)
    with anyio.fail_after(20):
        async with slots.slot("c", ("w", "third")):
            pass


async def test_no_more_run_at_once_than_there_are_slots() -> None:
    slots, running, most = RunSlots(3), 0, 0

    async def run(number: int) -> None:
        nonlocal running, most
        async with slots.slot(f"channel {number % 2}", ("w", f"user {number % 5}")):
            running += 1
            most = max(most, running)
            await anyio.lowlevel.checkpoint()
            running -= 1

    async with anyio.create_task_group() as tasks:
        for number in range(50):
            tasks.start_soon(run, number)
    assert (running, most) == (0, 3)
