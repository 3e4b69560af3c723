"""Processes that are started while their task is cancelled."""

from pathlib import Path

import anyio
import anyio.lowlevel
import psutil
import pytest

from agent.acp.process import run_agent_process


@pytest.mark.parametrize("rounds", range(12))
async def test_a_start_that_is_cancelled_leaves_no_process(
    tmp_path: Path, rounds: int
) -> None:
    async def run() -> None:
        async with run_agent_process(["sleep", "60"], folder=tmp_path, env={"PATH": "/bin"}):
            await anyio.sleep_forever()

    before = set(psutil.Process().children())
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(run)
        for _ in range(rounds):
            await anyio.lowlevel.checkpoint()
        tasks.cancel_scope.cancel()
    assert set(psutil.Process().children()) <= before
