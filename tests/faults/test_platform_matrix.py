"""The matrix with real adapters: at each step of a turn, the process ends, or the platform or the journal fails.

Every cell checks what people see: one answer or the reason why not, and nothing that still says "working".
"""

import gc
from collections.abc import Awaitable, Callable, Mapping
from enum import StrEnum
from functools import partial
from pathlib import Path

import anyio
import pytest

import bots
from bus.errors import unwrap
from tests.faults.injection import COMMITS, StepPoint
from tests.faults.platform_turns import (
    PLATFORMS,
    REAL_TURNS,
    PlatformRig,
)


class PlatformFault(StrEnum):
    """A fault at a point of a turn."""

    KILL = "kill"
    """The process stores and sends nothing more. The next process continues."""
    CANCELLATION = "cancellation"
    """The service stops in an orderly way. The next process continues."""
    ERROR = "error"
    """The platform refuses each call that shows a turn, once."""
    TIMEOUT = "timeout"
    """The platform carries out each of these calls, but its response is lost, once."""
    JOURNAL = "journal"
    """The transaction of a COMMIT fails, once."""


REACHED_BY: Mapping[StepPoint, str] = {
    StepPoint("begin"): "second",
    StepPoint("begin", is_after=True): "file",
    StepPoint("upload"): "file",
    StepPoint("start"): "file",
    StepPoint("set_run"): "file",
    StepPoint("set_run", is_after=True): "file",
    StepPoint("conclude", is_after=True): "file",
    StepPoint("finish"): "file",
    StepPoint("finish", is_after=True): "file",
    StepPoint("close_question", is_after=True): "approval",
    StepPoint("match_question", is_after=True): "approval",
    StepPoint("note_injection"): "steering",
    StepPoint("note_injection", is_after=True): "steering",
    StepPoint("inject", is_after=True): "steering",
    StepPoint("cancel"): "stopped",
    StepPoint("cancel", is_after=True): "stopped",
    StepPoint("find_outcome", is_after=True): "stopped",
    StepPoint("close_question"): "edited",
    StepPoint("start", is_after=True): "refused",
}
"""Points of a turn, including those around each COMMIT, and a turn that reaches each."""

IMPOSSIBLE: Mapping[tuple[str, str], str] = {
    ("feishu", "edited"): "Feishu does not tell bots of edits",
}
"""Turns that are impossible on a platform, and why."""

WITHOUT_ROWS: Mapping[str, str] = {
    "terminal": "both ends are our processes, and messages disappear with the session",
}
"""Platforms that are not in the matrix, and why."""


def test_each_commit_has_a_row_before_and_after_it() -> None:
    around = {StepPoint(step, is_after) for step in COMMITS for is_after in (False, True)}
    assert around - REACHED_BY.keys() == set()


def test_each_platform_has_a_row() -> None:
    (folder,) = bots.__path__
    adapters = {found.parent.name for found in Path(folder).glob("*/adapter.py")}
    assert adapters - {"common"} - WITHOUT_ROWS.keys() == set(PLATFORMS)


def points_of(platform: str) -> list[StepPoint]:
    return [point for point, turn in REACHED_BY.items() if (platform, turn) not in IMPOSSIBLE]


Cell = Callable[[PlatformRig], Awaitable[None]]

RIGS = 4
"""Number of parallel workers. They mostly wait."""

closes_nothing = pytest.mark.filterwarnings("ignore:unclosed file:ResourceWarning")
"""A killed process closes no files. Here, it is part of the test process, which keeps them open."""


@pytest.mark.parametrize(
    "fault",
    [
        pytest.param(fault, marks=closes_nothing) if fault is PlatformFault.KILL else fault
        for fault in PlatformFault
    ],
)
@pytest.mark.parametrize("platform", list(PLATFORMS))
async def test_a_turn_survives_a_fault_at_each_point(
    tmp_path: Path, platform: str, fault: PlatformFault
) -> None:
    cells = {
        str(point): partial(survive, point=point, fault=fault)
        for point in points_of(platform)
        if fault is not PlatformFault.JOURNAL or (point.step in COMMITS and not point.is_after)
    }
    assert await find_problems(platform, tmp_path, cells) == {}


async def find_problems(platform: str, folder: Path, cells: Mapping[str, Cell]) -> dict[str, str]:
    """Try each cell on one of the `RIGS`. Return failures by the cell's name."""
    problems: dict[str, str] = {}
    waiting = iter(cells.items())

    async def work(number: int) -> None:
        async with PlatformRig(platform, folder / str(number)) as rig:
            for name, cell in waiting:
                try:
                    await cell(rig)
                except Exception as error:  # noqa: BLE001 - all cells are checked
                    problems[name] = f"{unwrap(error)!r:.800}"

    async with anyio.create_task_group() as tasks:
        for number in range(min(RIGS, len(cells))):
            tasks.start_soon(work, number)
    gc.collect()  # Close the files that killed processes left open, here where the test permits it.
    return problems


async def survive(rig: PlatformRig, point: StepPoint, fault: PlatformFault) -> None:
    """Run a turn with a fault at a point, then check what people see."""
    turn = REAL_TURNS[REACHED_BY[point]]
    match fault:
        case PlatformFault.KILL:
            await rig.run_until_killed(turn, point)
        case PlatformFault.CANCELLATION:
            await rig.run_until_stopped(turn, point)
        case _:
            pass
    async with rig.process(turn):
        if fault is PlatformFault.ERROR:
            await rig.run_with_broken_calls(turn, point, **rig.platform.refusal)
        elif fault is PlatformFault.JOURNAL:
            await rig.run_with_broken_commit(turn, point)
        elif fault is PlatformFault.TIMEOUT:
            await rig.run_with_broken_calls(turn, point, drop="after")
        await rig.check(turn)


@closes_nothing
@pytest.mark.parametrize("platform", list(PLATFORMS))
async def test_a_turn_survives_a_kill_before_and_after_each_call_of_the_adapter(
    tmp_path: Path, platform: str
) -> None:
    """Delivery has its own steps: the answer is sent but not recorded, or recorded but without its reaction."""
    turn = REAL_TURNS["file"]
    async with PlatformRig(platform, tmp_path / "reference") as rig:
        calls = await rig.list_calls(turn)
    assert len(calls) >= 2
    cells = {
        f"{'after' if after else 'before'} {call}": partial(survive_kill_at, call=call, after=after)
        for call in calls
        for after in (False, True)
    }
    assert await find_problems(platform, tmp_path, cells) == {}


async def survive_kill_at(rig: PlatformRig, *, call: str, after: bool) -> None:
    """Run a turn in a process that is killed at a call of the adapter, then check what people see."""
    turn = REAL_TURNS["file"]
    await rig.run_until_killed_at(turn, call, after=after)
    async with rig.process(turn):
        await rig.check(turn)
