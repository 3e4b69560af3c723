"""Each kind of intervention before and after each step of a turn: nothing is lost, doubled or left running.

`test_turn_matrix` tests the same with scripted steps. This file uses a bus, its journal, and an agent's server.
"""

from enum import StrEnum
from functools import partial
from pathlib import Path

import anyio
import pytest

from bus.config import BusConfig, SessionConfig
from bus.errors import unwrap
from bus.messages import MessageDeletion, MessageEdit
from store.conversations import ConversationKey
from tests.bus.harness import OPEN, STEER, BusHarness, inbound_message, running_bus
from tests.eventually import eventually
from tests.fakes.langgraph import FakeLangGraph
from tests.fakes.platform import FakePlatform
from tests.faults.injection import SERVICE, AtStep, StepPoint

KEY = ConversationKey(channel="fake", workspace="w", chat="c")
INTERRUPT = OPEN.model_copy(update={"session": SessionConfig(busy="interrupt")})

LINEAR = (
    *("begin", "open_question", "show_working", "upload", "slot", "prepare_thread", "start"),
    *("set_run", "events", "conclude", "find_outcome", "finish", "close_question"),
)
"""The steps of an undisturbed turn."""

AT_ONCE = 8
"""Number of parallel services. They mostly wait."""


class Kind(StrEnum):
    STOP = "stop"
    EDIT = "edit"
    DELETION = "deletion"
    STEERING = "steering"
    NEWER = "newer message"
    NEW_THREAD = "/new"
    HAND_OVER = "hand-over"


POLICIES = {Kind.STEERING: STEER, Kind.NEWER: INTERRUPT}

ANSWERS = {
    Kind.STOP: (0, 1),
    Kind.DELETION: (0, 1),
    Kind.EDIT: (1, 2),  # An offer, if the edit came too late.
    Kind.STEERING: (1, 2),
    Kind.NEWER: (1, 2),
    Kind.NEW_THREAD: (2, 2),  # The command's answer is one message.
    Kind.HAND_OVER: (1, 1),
}
"""Minimum and maximum number of messages that people get."""


async def intervene(harness: BusHarness, kind: Kind) -> None:
    """Intervene, and wait until the bus has acted on it."""
    bus = harness.bus
    [row] = [one for one in await bus.inbox.list_recent() if one.event_id == "e1"]
    match kind:
        case Kind.STOP:
            await bus._conversations.stop_message(row.id)
        case Kind.EDIT:
            edited = inbound_message("better", "edit")
            change = MessageEdit(event_id="edit", key=KEY, message_id="e1", edited=edited)
            await bus.intake.handle_edit(change)
        case Kind.DELETION:
            gone = MessageDeletion(event_id="gone", key=KEY, message_id="e1")
            await bus.intake.handle_deletion(gone)
        case Kind.STEERING | Kind.NEWER:
            await harness.send("and that", event="e2")
        case Kind.NEW_THREAD:
            await harness.send("/new", event="e2")
            await eventually(harness.unfinished_events, lambda events: "e2" not in events)
        case Kind.HAND_OVER:
            bus._conversations.hand_over()


async def survive(folder: Path, kind: Kind, point: StepPoint) -> None:
    """Intervene at a point of a turn, then check what people and the agent's server have seen."""
    SERVICE.set(str(folder))
    runs_then: list[int] = []
    platform = FakePlatform("fake")
    async with FakeLangGraph() as server:
        server.accepts_injection = True
        run = partial(
            running_bus,
            folder,
            platform=platform,
            server=server,
            policy=POLICIES.get(kind, OPEN),
            config=BusConfig(drain_s=0.0),
        )
        async with run() as harness:

            async def act() -> None:
                runs = len(server.runs)
                await intervene(harness, kind)
                runs_then.append(runs)

            with AtStep(point, act).installed():
                await harness.send("write", event="e1")
                await eventually(lambda: runs_then)
                if kind is not Kind.HAND_OVER:
                    await settled(harness)
        if kind is Kind.HAND_OVER:
            async with run() as harness:
                await settled(harness)
        check(server, platform, kind)
        if kind in (Kind.STOP, Kind.DELETION):
            is_asked = point == StepPoint("start")  # The step begins before the intervention.
            assert len(server.runs) <= runs_then[0] + is_asked, (
                "a run began for a withdrawn message"
            )


def check(server: FakeLangGraph, platform: FakePlatform, kind: Kind) -> None:
    least, most = ANSWERS[kind]
    assert least <= len(platform.texts) <= most, platform.texts
    assert all(run.status != "running" for run in server.runs)
    messages = [one for thread in server.threads.values() for one in thread]
    said = [one["content"] for one in messages if one["type"] == "human"]
    assert len(said) == len(set(said)), f"said twice: {said}"
    if kind in (Kind.STEERING, Kind.NEWER):
        assert "and that" in said
    if kind is Kind.EDIT:
        assert "better" in said or len(platform.texts) == 2, "the edit was lost"


async def settled(harness: BusHarness) -> None:
    """Wait until every message is finished and every delivery closed."""
    await harness.wait_until_finished()
    await eventually(harness.bus.outbox.list_open, lambda rows: not rows)


@pytest.mark.parametrize("kind", list(Kind))
@pytest.mark.parametrize("is_after", [False, True], ids=["before", "after"])
async def test_an_intervention_at_each_step_counts_or_is_refused(
    tmp_path: Path, kind: Kind, *, is_after: bool
) -> None:
    problems: dict[str, str] = {}
    limiter = anyio.CapacityLimiter(AT_ONCE)

    async def try_cell(point: StepPoint) -> None:
        async with limiter:
            try:
                with anyio.fail_after(60):
                    await survive(tmp_path / point.step, kind, point)
            except Exception as error:  # noqa: BLE001 - all cells are checked
                problems[str(point)] = f"{unwrap(error)!r:.500}"

    async with anyio.create_task_group() as tasks:
        for step in LINEAR:
            tasks.start_soon(try_cell, StepPoint(step, is_after))
    assert problems == {}
