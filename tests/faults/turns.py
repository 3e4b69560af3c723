"""The reference turns, which together make every kind of call of a turn."""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import anyio

from bus.config import BusConfig, ChannelPolicy, SessionConfig
from bus.errors import IntakeClosed, unwrap
from bus.locales.en import ENGLISH
from bus.messages import MessageEdit
from bus.platform import ConnectionState
from store.errors import StoreError
from tests.bus.harness import OPEN, BusHarness, attachment, inbound_message, running_bus
from tests.bus.test_bus_approvals import review
from tests.eventually import eventually
from tests.fakes.langgraph import FakeLangGraph, FakeRun, Script
from tests.fakes.platform import FakePlatform
from tests.faults.injection import (
    SERVICE,
    DraftPlatform,
    Faults,
    FaultyDatabase,
    KillAtStep,
    Mode,
    NoticePlatform,
    ProcessKilled,
    StepPoint,
    StreamingPlatform,
    with_faults,
)

STEER = OPEN.model_copy(update={"session": SessionConfig(busy="steer")})
ANSWER = "Hello you"
QUESTION = "Let me."
WORK_S = 0.3
"""How long the agent works, seconds.

It is enough for an indicator, a notice, a draft and an update of a streaming message.
"""

PATIENCE_S = 8.0
"""How much longer it works if an expected call does not happen, seconds. Then the test fails."""

SETTLED_EVERY_S = 0.05
"""How often each of eight parallel turns checks in the database whether it has ended, seconds."""

HOUSEKEEPING = (
    *("_run_housekeeping", "ChatDirectory.", "BroadcastSender.", "Scheduler."),
    *("index_messages", "_index >", "RefusalJournal.", "Takeovers.run"),
)
"""Callers that run independently of turns, so it is chance whether their calls happen during one."""

SHOWS_WORK = "IndicatorUpdater._call > show_working"
"""A call that happens only if the agent works long enough: by chance, or always in turns that set the time."""


@dataclass(frozen=True)
class ReferenceTurn:
    """A turn whose calls fail, one at a time.

    Attributes:
        script: What the agent does; None = it answers after `WORK_S`.
        messages: Messages of the person, who waits for the answer to each.
        least_answers, most_answers: Minimum and maximum number of answers.
        policy: The channel's policy.
        refusals: Responses of the server to the first requests for a run.
        work_s: How long the agent works, seconds. It must be enough for the person's actions.
        is_under_way: Whether the agent may end its work, because everything that must happen first has happened.
    """

    platform: Callable[[], FakePlatform]
    messages: Callable[[BusHarness], Coroutine[Any, Any, None]]
    script: Script | None = None
    least_answers: int = 1
    most_answers: int = 1
    policy: ChannelPolicy = OPEN
    work_s: float = WORK_S
    refusals: tuple[int, ...] = ()
    is_under_way: Callable[[FakeLangGraph], bool] = lambda server: bool(server.runs)

    async def send(self, harness: BusHarness) -> None:
        await self.messages(harness)
        await _settled(harness)


class CallNotMade(AssertionError):
    """The turn did not make the call this time.

    For example, it is chance whether an answer grows in one update or two.
    """


@dataclass(frozen=True)
class RecordedCalls:
    """The calls of a turn without faults.

    Attributes:
        sites: Callers and callees, in order, without duplicates.
        early: The sites that are called while the agent works.
    """

    sites: tuple[str, ...]
    early: frozenset[str]


async def record(turn: ReferenceTurn, folder: Path) -> RecordedCalls:
    """Run a turn. The agent works until no new call happens for `WORK_S`."""
    faults = Faults()
    async with (
        FakeLangGraph() as server,
        _harness(turn, folder, server, _platform(turn, faults), faults) as harness,
    ):
        early: set[str] = set()
        seen = 0

        def is_quiet() -> bool:
            nonlocal seen
            before, seen = seen, len(faults.calls)
            early.update(faults.calls)
            return before == seen and turn.is_under_way(server)

        _let_work(turn, server, is_quiet, every_s=turn.work_s)
        faults.is_on = True
        await turn.send(harness)
        faults.is_on = False
    has_gate = turn.script is None
    left_out = HOUSEKEEPING if has_gate else (*HOUSEKEEPING, SHOWS_WORK)
    sites = [site for site in faults.calls if not site.startswith(left_out)]
    return RecordedCalls(tuple(sites), frozenset(early & set(sites) if has_gate else ()))


async def record_points(turn: ReferenceTurn, folder: Path) -> list[StepPoint]:
    """Return the points that a turn reaches."""
    faults = Faults()
    recorder = KillAtStep(faults)
    with recorder.installed():
        async with (
            FakeLangGraph() as server,
            _harness(turn, folder, server, _platform(turn, faults), faults) as harness,
        ):
            _let_work(turn, server)
            await turn.send(harness)
    return list(recorder.reached)


async def survive_kill(turn: ReferenceTurn, folder: Path, *points: StepPoint) -> None:
    """Run a turn, kill the process at a point (and its successor at the next), and check what the last process does."""
    SERVICE.set(str(folder))
    faults = Faults()
    platform = _platform(turn, faults)
    async with FakeLangGraph() as server:
        for number, point in enumerate(points):
            with KillAtStep(faults, point).installed():
                await _run_until_killed(turn, folder, server, platform, faults, is_first=not number)
            assert faults.happened.is_set(), f"the turn did not come to a point {point}"
            faults.restart()
        async with _harness(turn, folder, server, platform, faults) as harness:
            await turn.send(harness)
            await _check(turn, harness, platform)


async def _run_until_killed(
    turn: ReferenceTurn,
    folder: Path,
    server: FakeLangGraph,
    platform: FakePlatform,
    faults: Faults,
    *,
    is_first: bool,
) -> None:
    try:
        async with _harness(turn, folder, server, platform, faults) as harness:
            if is_first:
                _let_work(turn, server)
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(turn.messages, harness)
                with anyio.move_on_after(10):
                    await faults.happened.wait()
                tasks.cancel_scope.cancel()
            await anyio.sleep(0.02)  # Running tasks notice the kill.
            faults.kill()
    except BaseException as error:
        if not isinstance(unwrap(error), ProcessKilled):
            raise


async def survive(
    turn: ReferenceTurn, folder: Path, calls: RecordedCalls, site: str, mode: Mode
) -> list[FakeRun]:
    """Run a turn with one fault, then check the result.

    If an early call must fail, the agent works until it has failed. Otherwise it works until all early calls have been
    made and the turn is under way.

    Returns the runs of the turn and of the message after it.

    Raises:
        CallNotMade: The turn succeeded without making the call that should fail.
    """
    faults = Faults(site, mode)

    def is_enough() -> bool:
        return faults.happened.is_set() or (
            site not in calls.early
            and calls.early <= faults.calls.keys()
            and turn.is_under_way(server)
        )

    platform = _platform(turn, faults)
    async with FakeLangGraph() as server:
        async with _harness(turn, folder, server, platform, faults) as harness:
            _let_work(turn, server, is_enough)
            faults.is_on = True
            if mode is not Mode.CANCELLATION:
                await turn.send(harness)
                if not faults.happened.is_set():
                    raise CallNotMade(site)
                await _check(turn, harness, platform)
                assert all(faults.outages)
                assert harness.database.outage == ""
            else:
                async with anyio.create_task_group() as tasks:
                    tasks.start_soon(turn.messages, harness)
                    with anyio.move_on_after(10):
                        await faults.happened.wait()
                    if not faults.happened.is_set():
                        raise CallNotMade(site)
                    tasks.cancel_scope.cancel()
        if mode is Mode.CANCELLATION:
            async with _harness(turn, folder, server, platform, faults) as harness:
                await turn.send(harness)
                await _check(turn, harness, platform)
        return server.runs


def _harness(
    turn: ReferenceTurn, folder: Path, server: FakeLangGraph, platform: FakePlatform, faults: Faults
) -> AbstractAsyncContextManager[BusHarness]:
    return running_bus(
        folder,
        platform=platform,
        server=server,
        policy=turn.policy,
        config=BusConfig(drain_s=0.0),
        wrap=lambda database: FaultyDatabase(database, faults),
    )


def _platform(turn: ReferenceTurn, faults: Faults) -> FakePlatform:
    return with_faults(turn.platform(), faults)


def _let_work(
    turn: ReferenceTurn,
    server: FakeLangGraph,
    is_enough: Callable[[], bool] | None = None,
    *,
    every_s: float = 0.01,
) -> None:
    """Let the agent follow the turn's script.

    It works for its time, and then until `is_enough`, which is polled.

    Without `is_enough`, it works until the turn is under way.
    """
    server.accepts_injection = True
    server.refusals.extend(turn.refusals)
    gate = anyio.Event()
    may_end = is_enough or (lambda: turn.is_under_way(server))
    loop = asyncio.get_running_loop()
    give_up_at = loop.time() + turn.work_s + PATIENCE_S

    def end() -> None:
        if (server.runs and may_end()) or loop.time() > give_up_at:
            gate.set()
        else:
            loop.call_later(every_s, end)

    loop.call_later(turn.work_s, end)
    server.scripts.append(turn.script or Script(gate=gate))


async def _check(turn: ReferenceTurn, harness: BusHarness, platform: FakePlatform) -> None:
    """Check the result of a turn.

    The message was answered once or its failure reported, nothing is stuck, the service is alive, and the next message
    works.

    Either the person gets the reason, or the admin does, through an outbox row.
    """
    texts = platform.texts
    answers, failures = texts.count(ANSWER), sum(ENGLISH.failed in text for text in texts)
    failed = [
        row
        for row in await harness.bus.outbox.list_recent()
        if row.state in ("failed", "uncertain")
    ]
    told = answers + failures
    assert turn.least_answers <= told <= turn.most_answers or (not answers and failed), texts
    harness.server.scripts.clear()  # If no run was started, its script is left.
    assert harness.bus.health()[platform.name].state is ConnectionState.CONNECTED
    # The card of a failed answer says so a moment later, so count only new messages.
    before = list(platform.shown)

    def count_new() -> int:
        return sum(
            one.text == ANSWER for one in platform.shown if all(one is not old for old in before)
        )

    await _deliver(harness, "again", "e9")
    await eventually(lambda: count_new() == 1)
    await _settled(harness)
    assert count_new() == 1


async def _settled(harness: BusHarness) -> None:
    """Wait until every message is finished and every delivery closed."""

    async def open_rows() -> Sequence[object]:
        return await harness.bus.inbox.list_unfinished() or await harness.bus.outbox.list_open()

    await eventually(open_rows, lambda rows: not rows, every_s=SETTLED_EVERY_S)


async def _deliver(harness: BusHarness, text: str, event: str, **changes: object) -> None:
    """Send a message like a platform, which resends it until it is acknowledged."""
    await _repeat(lambda: harness.send(text, event=event, **changes))


async def _repeat(call: Callable[[], Awaitable[object]]) -> None:
    while True:
        try:
            await call()
        except IntakeClosed:
            return
        except (StoreError, TimeoutError, RuntimeError):
            await anyio.sleep(0.01)
        else:
            return


async def _one_message(harness: BusHarness) -> None:
    await _deliver(harness, "hi", "e1")


async def _with_a_file(harness: BusHarness) -> None:
    await _deliver(harness, "look", "e1", attachments=(attachment("a.txt"),))


async def _gesture(harness: BusHarness) -> None:
    """A turn that waits for the rest of its message."""
    await _deliver(harness, "", "e0", quoted="> Ann: me", is_forwarded=True)
    await _deliver(harness, "is she right?", "e1")


async def _approval(harness: BusHarness) -> None:
    await _deliver(harness, "release it", "e0")
    await _settled(harness)
    if any(QUESTION in text for text in harness.platform.texts):
        await _deliver(harness, "approve", "e1")


async def _clarification(harness: BusHarness) -> None:
    await _deliver(harness, "which one?", "e0")
    await _settled(harness)
    if any("Which" in text for text in harness.platform.texts):
        await _deliver(harness, "red", "e1")


async def _two_messages(harness: BusHarness) -> None:
    await _deliver(harness, "do this", "e0")
    await _deliver(harness, "and that", "e1")


async def _stopped(harness: BusHarness) -> None:
    await _deliver(harness, "write", "e0")
    await _run_started(harness)
    await _deliver(harness, "/stop", "e1")


async def _edited(harness: BusHarness) -> None:
    await _deliver(harness, "write", "e0")
    await _run_started(harness)
    edited = inbound_message("write better", "edit")
    edit = MessageEdit(event_id="edit", key=edited.key, message_id="e0", edited=edited)
    await _repeat(lambda: harness.bus.intake.handle_edit(edit))


async def _run_started(harness: BusHarness) -> None:
    """Wait for a run. After a restart there may be none."""
    with anyio.move_on_after(2):
        while not harness.server.runs:  # noqa: ASYNC110 - the server has no event for it
            await anyio.sleep(0.005)


def _was_injected(server: FakeLangGraph) -> bool:
    return any(run.injection_arrived.is_set() for run in server.runs)


WHICH = Script(words=(), question="Which?", options=("red", "green"))
ASKS = Script(words=(QUESTION,), interrupts=(review(command="make release"),))

REFERENCE_TURNS = {
    "streaming": ReferenceTurn(lambda: StreamingPlatform("fake"), _with_a_file),
    "notice": ReferenceTurn(NoticePlatform, _one_message),
    "draft": ReferenceTurn(DraftPlatform, _one_message),
    # After a bug, the parts are answered separately.
    "gesture": ReferenceTurn(NoticePlatform, _gesture, most_answers=2),
    "approval": ReferenceTurn(lambda: StreamingPlatform("fake"), _approval, ASKS),
    "steering": ReferenceTurn(
        NoticePlatform,
        _two_messages,
        most_answers=2,
        policy=STEER,
        is_under_way=_was_injected,
    ),
    "clarification": ReferenceTurn(lambda: StreamingPlatform("fake"), _clarification, WHICH),
}
"""By name: one turn for each way to show work in progress, one that waits first, two that ask, and a steered one."""

KILLED_TURNS = {
    **REFERENCE_TURNS,
    "stopped": ReferenceTurn(NoticePlatform, _stopped, least_answers=0, work_s=2.0),
    "edited": ReferenceTurn(NoticePlatform, _edited, work_s=2.0),
    "refused": ReferenceTurn(NoticePlatform, _one_message, refusals=(503,)),
}
"""Further turns, which reach other points."""
