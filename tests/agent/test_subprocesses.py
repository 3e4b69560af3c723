"""Processes that are started while their task is cancelled."""

import threading

import anyio
import anyio.lowlevel
import pytest

from agent.subprocesses import start_process


async def cancel_start(rounds: int) -> None:
    """Cancel a task that starts a program after this many iterations of the event loop."""

    async def run() -> None:
        process = await start_process(["sleep", "60"])
        try:
            await anyio.sleep_forever()
        finally:
            process.kill()
            with anyio.CancelScope(shield=True):
                await process.aclose()

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(run)
        for _ in range(rounds):
            await anyio.lowlevel.checkpoint()
        tasks.cancel_scope.cancel()


def test_a_canceled_caller_waits_for_the_end_of_the_process(
    caplog: pytest.LogCaptureFixture,
) -> None:
    for rounds in range(14):
        anyio.run(cancel_start, rounds)
    for thread in threading.enumerate():
        if thread.name.startswith("waitpid"):  # asyncio's threads that wait for processes
            thread.join(30)
    # asyncio logs "Loop ... that handles pid ... is closed" if a process outlives the loop that should wait for it.
    assert caplog.messages == []
