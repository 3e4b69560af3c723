"""The event loop's fairness: a busy group does not delay others, and no group starves."""

import asyncio
import sys
from collections.abc import Callable, Iterator
from contextvars import Context, copy_context
from functools import partial

import pytest
from anyio.lowlevel import checkpoint

from gateway.serving.event_loop import CREDIT_S, SLICE_S, FairEventLoop
from store.work_group import WORK_GROUP

STEP_S = SLICE_S / 5
"""The time that each callback takes, on the clock of these tests."""


class SteppedClock:
    """A clock that advances only during work."""

    def __init__(self) -> None:
        self.now_s = 0.0

    def __call__(self) -> float:
        return self.now_s


@pytest.fixture
def clock() -> SteppedClock:
    return SteppedClock()


@pytest.fixture
def loop(clock: SteppedClock) -> Iterator[FairEventLoop]:
    loop = FairEventLoop(clock=clock)
    yield loop
    loop.close()


def context_of(group: str | None) -> Context:
    """Return a context that works for a group."""
    context = copy_context()
    context.run(WORK_GROUP.set, group)
    return context


def hop(loop: FairEventLoop, group: str, count: int, done: Callable[[], None]) -> None:
    """Schedule a callback that schedules the next one, this many times; then call `done`."""

    def next_hop(left: int) -> None:
        if left:
            loop.call_soon(next_hop, left - 1, context=context_of(group))
        else:
            done()

    next_hop(count)


def test_a_chain_of_steps_waits_for_slices_and_not_for_all_that_is_ready(
    loop: FairEventLoop, clock: SteppedClock
) -> None:
    worked = 0

    def work() -> None:
        nonlocal worked
        worked += 1
        clock.now_s += STEP_S

    for _ in range(10_000):
        loop.call_soon(work, context=context_of("busy"))
    hop(loop, "other", 40, loop.stop)
    loop.run_forever()
    assert worked <= 41 * 5


def test_a_group_that_never_rests_leaves_half_of_the_time_to_another(
    loop: FairEventLoop, clock: SteppedClock
) -> None:
    worked = {"a": 0, "b": 0}

    def work(group: str) -> None:
        worked[group] += 1
        clock.now_s += STEP_S
        loop.call_soon(work, group, context=context_of(group))
        if sum(worked.values()) == 4_000:
            loop.stop()

    for _ in range(500):
        loop.call_soon(work, "a", context=context_of("a"))
    loop.call_soon(work, "b", context=context_of("b"))
    loop.run_forever()
    assert 1_900 <= worked["a"] <= 2_100


def test_a_group_that_rested_goes_first_for_a_while_only(
    loop: FairEventLoop, clock: SteppedClock
) -> None:
    order: list[str] = []

    def work(group: str) -> None:
        order.append(group)
        clock.now_s += CREDIT_S / 5

    def both() -> None:
        for group in ("busy", "rested"):
            for _ in range(30):
                loop.call_soon(work, group, context=context_of(group))

    for _ in range(100):  # meanwhile, the other group is idle
        loop.call_soon(work, "busy", context=context_of("busy"))
    loop.call_soon(both, context=context_of("busy"))
    loop.call_later(0.2, loop.stop)
    loop.run_forever()
    assert order[100:106].count("rested") >= 5
    assert order[106:126].count("busy") >= 9


def test_bursts_that_begin_one_after_the_other_are_ahead_for_as_long_as_one(
    loop: FairEventLoop, clock: SteppedClock
) -> None:
    waited_s: list[float] = []

    def work() -> None:
        clock.now_s += STEP_S

    def begin_burst(group: str, *later: str) -> None:
        work()
        if later:
            loop.call_soon(partial(begin_burst, *later), context=context_of(group))
        for _ in range(5_000):
            loop.call_soon(work, context=context_of(group))

    def finish(since_s: float) -> None:
        waited_s.append(clock.now_s - since_s)
        loop.stop()

    def begin() -> None:
        clock.now_s += SLICE_S
        loop.call_soon(partial(begin_burst, "b", "c", "d"), context=context_of("a"))
        loop.call_soon(finish, clock.now_s, context=context_of("other"))

    for _ in range(1_000):  # meanwhile, all groups except this one are idle
        loop.call_soon(work, context=context_of("other"))
    loop.call_soon(begin, context=context_of("other"))
    loop.run_forever()
    # Each group goes ahead of the other one, but none goes ahead of an earlier group as well.
    assert waited_s[0] <= 4 * (CREDIT_S + SLICE_S)


def test_sockets_and_timers_are_served_between_slices(
    loop: FairEventLoop, clock: SteppedClock
) -> None:
    worked = 0

    def work() -> None:
        nonlocal worked
        worked += 1
        clock.now_s += STEP_S

    for _ in range(1_000):
        loop.call_soon(work, context=context_of("busy"))
    loop.call_soon(loop.stop, context=context_of(None))
    loop.run_forever()
    assert worked <= 10
    loop.call_soon_threadsafe(loop.stop)
    loop.run_forever()
    assert worked <= 20


def test_order_context_cancellation_and_errors_are_those_of_asyncio(loop: FairEventLoop) -> None:
    seen: list[object] = []
    reported: list[object] = []
    loop.set_exception_handler(lambda _, details: reported.append(details["exception"]))

    def fail() -> None:
        raise ValueError("reported")

    context = context_of("one")
    for number in range(3):
        loop.call_soon(seen.append, number, context=context)
    loop.call_soon(lambda: seen.append(WORK_GROUP.get()), context=context)
    loop.call_soon(seen.append, "canceled", context=context).cancel()
    loop.call_soon(fail, context=context)
    loop.call_soon(loop.stop, context=context)
    loop.run_forever()
    assert seen == [0, 1, 2, "one"]
    assert [str(error) for error in reported] == ["reported"]
    loop.close()
    with pytest.raises(RuntimeError, match="closed"):
        loop.call_soon(seen.append, 1, context=context)


def test_an_endless_loop_of_one_group_does_not_keep_another_from_its_deadline() -> None:
    async def spin() -> None:
        WORK_GROUP.set("busy")
        while True:
            await checkpoint()

    async def main() -> str:
        tasks = [asyncio.create_task(spin()) for _ in range(50)]
        answer = await asyncio.wait_for(asyncio.to_thread(partial(str, "done")), 5)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        return answer

    with asyncio.Runner(loop_factory=FairEventLoop) as runner:
        assert runner.run(main()) == "done"


def test_a_context_without_any_variable_is_kept(loop: FairEventLoop) -> None:
    def note() -> None:
        seen.append(WORK_GROUP.get())
        loop.stop()

    def schedule() -> None:
        loop.call_soon(note, context=Context())

    seen: list[object] = []
    loop.call_soon(schedule, context=context_of("a"))
    loop.run_forever()
    assert seen == [None]


def test_a_callback_takes_no_more_calls_than_in_asyncio_and_fewer_in_a_group() -> None:
    def calls_of(loop: asyncio.AbstractEventLoop, group: str | None) -> int:
        calls = 0

        def count(_frame: object, event: str, _argument: object) -> None:
            nonlocal calls
            calls += event == "call"

        context = context_of(group)
        loop.call_soon(str, context=context)  # the first callback of a group starts its queue
        sys.setprofile(count)
        try:
            loop.call_soon(str, context=context)
        finally:
            sys.setprofile(None)
        loop.close()
        return calls

    of_asyncio = calls_of(asyncio.SelectorEventLoop(), None)
    assert calls_of(FairEventLoop(), None) <= of_asyncio
    assert calls_of(FairEventLoop(), "telegram") < of_asyncio


class WakeUpCountingLoop(FairEventLoop):
    """Counts the writes to its wake-up socket."""

    wake_ups = 0

    def _write_to_self(self) -> None:
        self.wake_ups += 1
        super()._write_to_self()  # type: ignore[misc]


def test_a_callback_for_its_own_loop_writes_to_no_socket_and_keeps_its_place() -> None:
    async def main() -> tuple[list[int], int, int]:
        loop = asyncio.get_running_loop()
        assert isinstance(loop, WakeUpCountingLoop)
        WORK_GROUP.set("telegram")
        await asyncio.sleep(0)
        before, seen, reached = loop.wake_ups, list[int](), asyncio.Event()
        for number in range(0, 4, 2):
            loop.call_soon(seen.append, number)
            loop.call_soon_threadsafe(seen.append, number + 1)
        loop.call_soon_threadsafe(reached.set)
        await reached.wait()
        own = loop.wake_ups - before
        reached.clear()
        await asyncio.to_thread(loop.call_soon_threadsafe, reached.set)
        await reached.wait()
        return seen, own, loop.wake_ups - before

    with asyncio.Runner(loop_factory=WakeUpCountingLoop) as runner:
        seen, own, with_thread = runner.run(main())
    assert (seen, own) == ([0, 1, 2, 3], 0)
    assert with_thread >= 1


def test_groups_go_on_after_a_callback_that_ended_the_loop(loop: FairEventLoop) -> None:
    def leave() -> None:
        raise SystemExit(3)

    seen: list[int] = []
    for number in range(3):
        loop.call_soon(
            leave if number == 1 else partial(seen.append, number), context=context_of("a")
        )
    with pytest.raises(SystemExit):
        loop.run_forever()
    loop.call_soon(loop.stop, context=context_of("a"))
    loop.call_later(5, loop.stop)
    loop.run_forever()
    assert seen == [0, 2]
