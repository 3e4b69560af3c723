"""The matrix on the real adapters: at each transition of the turn's table the process ends, or the platform fails.

Every cell looks at what people see: answered once or told why not, and nothing that still says "working".
"""

import gc
from collections.abc import Awaitable, Callable, Mapping
from enum import StrEnum
from functools import partial
from pathlib import Path

import anyio
import pytest

import bots
from bus.conversation.states import TRANSITIONS, TurnEvent, TurnState
from bus.errors import unwrap
from tests.faults.platform_turns import (
    PLATFORMS,
    REAL_TURNS,
    PlatformRig,
    TransitionPair,
)
from tests.faults.test_crash_matrix import ELSEWHERE

S, E = TurnState, TurnEvent


class PlatformFault(StrEnum):
    """What happens at a transition."""

    KILL = "kill"
    """Nothing is stored or sent any more; the next process goes on."""
    CANCELLATION = "cancellation"
    """The service stops in order; the next process goes on."""
    ERROR = "error"
    """The platform refuses each of the calls that show a turn, once."""
    TIMEOUT = "timeout"
    """The platform takes each of these calls, and its response is lost, once."""


REACHED_BY: Mapping[TransitionPair, str] = {
    (S.QUEUED, E.TAKE): "file",
    (S.STARTING, E.BEGUN): "file",
    (S.STARTING, E.PREPARED): "file",
    (S.STARTING, E.UPLOADED): "file",
    (S.STARTING, E.RUN_STARTED): "file",
    (S.RUNNING, E.RUN_ENDED): "file",
    (S.RUNNING, E.DECIDED): "file",
    (S.DELIVERING, E.COMMITTED): "file",
    (S.DELIVERING, E.QUESTION_COMMITTED): "approval",
    (S.RUNNING, E.STEER): "steering",
    (S.STEERING, E.INJECTED): "steering",
    (S.RUNNING, E.CANCEL): "stopped",
    (S.CANCELLING, E.RUN_CANCELLED): "stopped",
    (S.CANCELLING, E.DECIDED): "stopped",
    (S.CANCELLING, E.RERUN): "edited",
    (S.STARTING, E.RUN_LOST): "refused",
}
"""A turn that makes each transition."""

ON_THE_EXAMPLE_PLATFORM: Mapping[TransitionPair, str] = {
    **ELSEWHERE,
    (S.STARTING, E.RUN_ENDED): "needs a kill before: test_crash_matrix",
}
"""Transitions that are tested without a real adapter, and where."""

IMPOSSIBLE: Mapping[tuple[str, TransitionPair], str] = {
    ("feishu", (S.CANCELLING, E.RERUN)): "Feishu does not tell bots of edits",
}

WITHOUT_ROWS: Mapping[str, str] = {
    "terminal": "a process of ours at each end; its messages are gone with the session",
}
"""Platforms that are not in the matrix, and why."""


def test_each_transition_of_the_table_has_a_row() -> None:
    assert set(TRANSITIONS) - REACHED_BY.keys() - ON_THE_EXAMPLE_PLATFORM.keys() == set()


def test_each_platform_has_a_row() -> None:
    (folder,) = bots.__path__
    adapters = {found.parent.name for found in Path(folder).glob("*/adapter.py")}
    assert adapters - {"common"} - WITHOUT_ROWS.keys() == set(PLATFORMS)


def pairs_of(platform: str) -> list[TransitionPair]:
    return [pair for pair in REACHED_BY if (platform, pair) not in IMPOSSIBLE]


Cell = Callable[[PlatformRig], Awaitable[None]]

RIGS = 4
"""How many work beside each other: most of their time they wait."""

closes_nothing = pytest.mark.filterwarnings("ignore:unclosed file:ResourceWarning")
"""A process that is killed closes no file; here it is a part of this process."""


@pytest.mark.parametrize(
    "fault",
    [
        pytest.param(fault, marks=closes_nothing) if fault is PlatformFault.KILL else fault
        for fault in PlatformFault
    ],
)
@pytest.mark.parametrize("platform", list(PLATFORMS))
async def test_a_turn_survives_a_fault_at_each_transition(
    tmp_path: Path, platform: str, fault: PlatformFault
) -> None:
    cells = {
        "-".join(pair): partial(survive, pair=pair, fault=fault) for pair in pairs_of(platform)
    }
    assert await find_problems(platform, tmp_path, cells) == {}


async def find_problems(platform: str, folder: Path, cells: Mapping[str, Cell]) -> dict[str, str]:
    """Try each cell on one of the `RIGS`; return what went wrong, by the cell's name."""
    problems: dict[str, str] = {}
    waiting = iter(cells.items())

    async def work(number: int) -> None:
        async with PlatformRig(platform, folder / str(number)) as rig:
            for name, cell in waiting:
                try:
                    await cell(rig)
                except Exception as error:  # noqa: BLE001 - all cells are looked at
                    problems[name] = f"{unwrap(error)!r:.800}"

    async with anyio.create_task_group() as tasks:
        for number in range(min(RIGS, len(cells))):
            tasks.start_soon(work, number)
    gc.collect()  # what killed processes left open is closed in this test, which allows it
    return problems


async def survive(rig: PlatformRig, pair: TransitionPair, fault: PlatformFault) -> None:
    """Run a turn with a fault at a transition, and look at what people see afterwards."""
    turn = REAL_TURNS[REACHED_BY[pair]]
    match fault:
        case PlatformFault.KILL:
            await rig.run_until_killed(turn, pair)
        case PlatformFault.CANCELLATION:
            await rig.run_until_stopped(turn, pair)
        case _:
            pass
    async with rig.process(turn):
        if fault is PlatformFault.ERROR:
            await rig.run_with_broken_calls(turn, pair, **rig.platform.refusal)
        elif fault is PlatformFault.TIMEOUT:
            await rig.run_with_broken_calls(turn, pair, drop="after")
        await rig.check(turn)


@closes_nothing
@pytest.mark.parametrize("platform", list(PLATFORMS))
async def test_a_turn_survives_a_kill_before_and_after_each_call_of_the_adapter(
    tmp_path: Path, platform: str
) -> None:
    """Delivery has steps of its own: the answer is out and not recorded, recorded and its reaction not shown."""
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
    """Run a turn in a process that is killed at a call of the adapter, and look at what people see afterwards."""
    turn = REAL_TURNS["file"]
    await rig.run_until_killed_at(turn, call, after=after)
    async with rig.process(turn):
        await rig.check(turn)
