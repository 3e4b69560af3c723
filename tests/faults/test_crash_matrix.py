"""The crash matrix: the process is killed before and after each step of a turn, and the next process continues."""

import gc
from collections.abc import Mapping
from pathlib import Path

import anyio
import pytest

from bus.errors import unwrap
from tests.faults.injection import STEPS, StepPoint
from tests.faults.turns import KILLED_TURNS, record_points, survive_kill

REACHED_BY: Mapping[str, tuple[str, ...]] = {
    "begin": ("notice", "steering"),
    "open_question": ("streaming", "approval", "edited"),
    "show_working": ("streaming", "notice", "draft"),
    "upload": ("streaming", "draft"),
    "slot": ("notice",),
    "prepare_thread": ("streaming", "edited"),
    "match_question": ("approval",),
    "start": ("streaming", "approval", "refused"),
    "set_run": ("streaming", "approval", "steering"),
    "events": ("streaming", "draft"),
    "note_injection": ("steering",),
    "inject": ("steering",),
    "conclude": ("streaming", "notice"),
    "find_outcome": ("notice", "steering", "stopped"),
    "cancel": ("stopped", "edited"),
    "close_question": ("approval", "edited"),
    "finish": ("notice", "streaming", "approval", "steering", "stopped", "clarification"),
}
"""Turns that together reach each step."""

AFTER_KILL = {
    StepPoint("conclude"): ("notice", StepPoint("conclude", is_after=True)),
    StepPoint("finish"): ("notice", StepPoint("set_run")),
    StepPoint("start", is_after=True): ("notice", StepPoint("start", is_after=True)),
}
"""Points at which to kill a process that continues after a kill at the second point."""

ELSEWHERE = {
    "find_taken": "a message that was injected before a restart: test_steering",
    "answer_despite_cancel": "a newer message that interrupts: test_interventions",
    "remove_from_thread": "a deletion while the turn runs: test_interventions",
    "discard": "a message that was deleted before a restart: test_message_edits, test_interventions",
    "fail": "needs a bug: test_turn_faults injects them",
}
"""Steps that other tests cover, and where."""

AT_ONCE = 8
"""Number of parallel services. They mostly wait."""


def test_each_step_of_a_turn_has_a_row() -> None:
    assert STEPS - REACHED_BY.keys() - ELSEWHERE.keys() == set()


@pytest.mark.parametrize("name", sorted({name for names in REACHED_BY.values() for name in names}))
async def test_the_turns_come_to_the_steps_that_they_are_listed_for(
    tmp_path: Path, name: str
) -> None:
    reached = {point.step for point in await record_points(KILLED_TURNS[name], tmp_path)}
    assert {step for step, names in REACHED_BY.items() if name in names} - reached == set()


@pytest.mark.filterwarnings("ignore:unclosed file:ResourceWarning")
@pytest.mark.parametrize("is_after", [False, True], ids=["before", "after"])
async def test_a_process_killed_at_a_step_leaves_a_turn_that_the_next_one_finishes(
    tmp_path: Path, *, is_after: bool
) -> None:
    problems: dict[str, str] = {}
    limiter = anyio.CapacityLimiter(AT_ONCE)

    async def check(name: str, point: StepPoint) -> None:
        cell = f"{name}, {point}"
        async with limiter:
            try:
                await survive_kill(KILLED_TURNS[name], tmp_path / cell, point)
            except Exception as error:  # noqa: BLE001 - all cells are checked
                problems[cell] = f"{unwrap(error)!r:.500}"

    async with anyio.create_task_group() as tasks:
        for step, names in REACHED_BY.items():
            for name in names:
                tasks.start_soon(check, name, StepPoint(step, is_after))
    gc.collect()  # Close the files that killed processes left open, here where the test permits it.
    assert problems == {}


@pytest.mark.parametrize("point", AFTER_KILL, ids=str)
async def test_a_second_kill_at_what_follows_the_first_does_no_harm(
    tmp_path: Path, point: StepPoint
) -> None:
    name, first = AFTER_KILL[point]
    await survive_kill(KILLED_TURNS[name], tmp_path, first, point)
