"""SharedRead: what a task gets was read after it asked; tasks that wait share a read."""

import threading

import anyio
import pytest

from agent.shared_read import SharedRead
from tests.eventually import eventually


class Source:
    """A number that reads return; they wait while it is held."""

    def __init__(self) -> None:
        self.number = 0
        self.reads = 0
        self.go_on = threading.Event()
        self.go_on.set()
        self.error: Exception | None = None

    def read(self) -> int:
        """Return the number as it was when the read began."""
        self.reads += 1
        number = self.number
        self.go_on.wait()
        if self.error is not None:
            error, self.error = self.error, None
            raise error
        return number


async def ask(shared: SharedRead[int], got: list[int | str]) -> None:
    """Ask, and note what comes."""
    try:
        got.append(await shared())
    except OSError as error:
        got.append(str(error))


async def test_who_asks_during_a_read_gets_the_next_one_and_shares_it() -> None:
    source, got = Source(), list[int | str]()
    shared = SharedRead(source.read)
    source.go_on.clear()
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(ask, shared, got)
        await eventually(lambda: source.reads == 1)
        source.number = 1
        for _ in range(20):
            tasks.start_soon(ask, shared, got)
        await anyio.wait_all_tasks_blocked()
        source.go_on.set()
    assert got == [0] + [1] * 20
    assert source.reads == 2


async def test_each_of_several_in_a_row_reads() -> None:
    source = Source()
    shared = SharedRead(source.read)
    for number in range(3):
        source.number = number
        assert await shared() == number
    assert source.reads == 3


@pytest.mark.parametrize("ending", ["error", "cancelled"])
async def test_a_read_that_fails_or_is_cancelled_is_repeated_for_the_others(ending: str) -> None:
    source, got = Source(), list[int | str]()
    shared = SharedRead(source.read)
    source.go_on.clear()
    source.error = OSError("broken") if ending == "error" else None
    async with anyio.create_task_group() as tasks:
        with anyio.CancelScope() as first:
            async with anyio.create_task_group() as inner:
                inner.start_soon(ask, shared, got)
                await eventually(lambda: source.reads == 1)
                for _ in range(3):
                    tasks.start_soon(ask, shared, got)
                await anyio.wait_all_tasks_blocked()
                if ending == "cancelled":
                    first.cancel()
                source.go_on.set()
    assert got[0] == ("broken" if ending == "error" else 0)  # a worker thread ends what it began
    assert got[1:] == [0] * 3
    assert source.reads == 2
