"""Every store call and every adapter call of a turn fails once, in each way.

The person still gets one answer or the reason why not, and nothing is stuck.
"""

import ast
import inspect
from pathlib import Path

import anyio
import pytest

from bus.conversation import open_questions, steps
from bus.errors import unwrap
from tests.faults.injection import Mode
from tests.faults.turns import (
    REFERENCE_TURNS,
    CallNotMade,
    RecordedCalls,
    ReferenceTurn,
    record,
    survive,
)

AT_ONCE = anyio.CapacityLimiter(8)
"""Number of parallel services. They mostly wait."""

STORES = frozenset({"_inbox", "_conversations", "_history"})


@pytest.mark.parametrize("mode", list(Mode))
@pytest.mark.parametrize("name", list(REFERENCE_TURNS))
async def test_a_turn_survives_a_fault_in_each_of_its_calls(
    tmp_path: Path, name: str, mode: Mode
) -> None:
    turn = REFERENCE_TURNS[name]
    problems: dict[str, str] = {}
    calls = await record(turn, tmp_path / "reference")

    async def check(number: int, site: str) -> None:
        async with AT_ONCE:
            try:
                await survive_soon(turn, tmp_path / str(number), calls, site, mode)
            except Exception as error:  # noqa: BLE001 - all sites are checked
                problems[site] = f"{unwrap(error)!r:.500}"

    async with anyio.create_task_group() as tasks:
        for number, site in enumerate(calls.sites):
            tasks.start_soon(check, number, site)
    assert problems == {}


async def survive_soon(
    turn: ReferenceTurn, folder: Path, calls: RecordedCalls, site: str, mode: Mode
) -> None:
    """Run a turn, at most three times, until it makes the call that must fail."""
    for attempt in range(3):
        try:
            await survive(turn, folder / str(attempt), calls, site, mode)
        except BaseException as error:
            if not isinstance(unwrap(error), CallNotMade) or attempt == 2:
                raise
        else:
            return


async def test_the_reference_turns_make_every_store_call_that_turns_make(tmp_path: Path) -> None:
    """Reference turns make every store call of the steps, including new ones."""
    written: set[str] = set()
    for module in (steps, open_questions):
        for node in ast.walk(ast.parse(inspect.getsource(module))):
            match node:
                case ast.Call(func=ast.Attribute(value=ast.Attribute(attr=store), attr=method)):
                    written |= {method} if store in STORES else set()
                case _:
                    pass
    made = {
        site.rpartition(".")[2]
        for name, turn in REFERENCE_TURNS.items()
        for site in (await record(turn, tmp_path / name)).sites
    }
    assert written - made == set()


async def test_a_run_goes_on_while_the_journal_fails_and_is_joined(tmp_path: Path) -> None:
    """The error is raised inside task groups. The turn must recognize it and start no second run."""
    site = "TurnSteps.set_run > InboxStore.set_run"
    turn = REFERENCE_TURNS["streaming"]
    calls = await record(turn, tmp_path / "reference")
    runs = await survive(turn, tmp_path / "fault", calls, site, Mode.ERROR)
    assert [run.status for run in runs] == ["success", "success"]
