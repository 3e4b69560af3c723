"""A turn with scripted steps: each step fails in each way, and the turn continues as the policy says.

Outages of the journal never reach a turn, because its steps repeat their calls (test_turn_faults).
"""

import ast
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import anyio
import pytest

import bus
from bus.conversation.control import START_S, CancelReason, QueuedMessage
from bus.conversation.record import Outcome, TurnStage
from bus.conversation.steering import Injection
from bus.conversation.steps import QuestionMatch, TurnSteps
from bus.conversation.turn import ENDLESS, Turn
from bus.errors import AgentUnavailable, RunError, RunMoves
from bus.messages import InboundMessage, ReplyTarget, Sender
from bus.outbound.live_reply import LiveReply
from bus.retry import RunPatience
from bus.runs.port import StreamedPart
from bus.runs.replies import Reply, ReplyFold
from bus.runs.stream import MessageChunk, RunEnded, StateSnapshot
from bus.runs.uploads import AttachmentUploadResult
from store.conversations import ConversationKey
from store.errors import RowConflict
from store.inbox import InboxRow, TurnStart

KEY = ConversationKey(channel="fake", workspace="w", chat="c")
DONE = {
    "messages": [{"type": "human", "id": "fake:e1"}, {"type": "ai", "id": "a", "content": "Hello"}]
}

LINEAR = (
    *("begin", "open_question", "show_working", "upload", "slot", "prepare_thread", "start"),
    *("set_run", "events", "conclude", "find_outcome", "finish", "close_question"),
)
"""The steps of an undisturbed turn, in order."""


class ScriptedSteps:
    """Steps that succeed at once, except one that fails the first time or hangs.

    Attributes:
        calls: The called steps, in order.
        reached: Set when the step was called that fails or hangs.
        events_of: The events of the runs, one list for each reading.
        act: Called at the beginning of each step, and at its end (True).
    """

    max_chars = 100
    is_outage = False

    def __init__(
        self, at: str = "", failure: BaseException | None = None, *, hangs: bool = False
    ) -> None:
        self.calls: list[str] = []
        self.reached = anyio.Event()
        self.released = anyio.Event()
        self.events_of: list[list[StreamedPart | Exception]] = []
        self.seen: list[str] = []
        self.run_ids = ["r1"]
        self.act: Callable[[str, bool], None] = lambda _, __: None
        self._at, self._failure, self._hangs = at, failure, hangs

    async def _step(self, name: str) -> None:
        self.calls.append(name)
        self.act(name, False)
        await anyio.lowlevel.checkpoint()
        if name == self._at:
            self.reached.set()
            failure, self._failure = self._failure, None
            if failure is not None:
                raise failure
            if self._hangs:
                await self.released.wait()
        self.act(name, True)

    async def find_taken(self, _: Turn) -> Outcome | None:
        await self._step("find_taken")
        return None

    async def begin(self, turn: Turn) -> InboxRow | None:
        await self._step("begin")
        start = TurnStart(thread_id="t", follows_question=False)
        return replace(turn.row, thread_id="t", starts=turn.row.starts + 1, start=start)

    async def open_question(self, _: Turn) -> None:
        await self._step("open_question")

    def is_for_bot(self, _: Turn) -> bool:
        return True

    @asynccontextmanager
    async def show_working(self, turn: Turn) -> AsyncIterator[LiveReply]:
        await self._step("show_working")
        yield LiveReply(cast(Any, None), turn.row, turn.message.inbound)

    async def upload(self, _: Turn) -> AttachmentUploadResult:
        await self._step("upload")
        return AttachmentUploadResult()

    @asynccontextmanager
    async def slot(self, _: Turn) -> AsyncIterator[None]:
        await self._step("slot")
        yield

    def new_patience(self) -> RunPatience:
        return RunPatience()

    async def prepare_thread(self, turn: Turn) -> str:
        await self._step("prepare_thread")
        return turn.attempt.message_id

    async def match_question(self, _: Turn, __: object) -> QuestionMatch:
        return QuestionMatch()

    async def start(self, _: Turn) -> str:
        await self._step("start")
        return self.run_ids.pop(0) if len(self.run_ids) > 1 else self.run_ids[0]

    def new_fold(self, turn: Turn) -> ReplyFold:
        return ReplyFold(turn.attempt.message_id)

    async def set_run(self, _: Turn) -> None:
        await self._step("set_run")

    async def events(self, turn: Turn) -> AsyncIterator[StreamedPart]:
        await self._step("events")
        self.seen.append(turn.attempt.seen)
        script = (
            self.events_of.pop(0)
            if self.events_of
            else [word("1"), StreamedPart("2", StateSnapshot(DONE))]
        )
        for one in script:
            if isinstance(one, Exception):
                raise one
            yield one

    async def note_injection(self, _: Turn, message: QueuedMessage) -> Injection:
        await self._step("note_injection")
        return Injection(message=message, payload=None)

    async def inject(self, _: Turn, __: Injection) -> None:
        await self._step("inject")

    async def keep_indicator(self, _: QueuedMessage) -> None:
        await anyio.sleep_forever()

    async def conclude(self, turn: Turn) -> Reply:
        await self._step("conclude")
        return turn.attempt.fold.reply(turn.texts)

    def error_reply(self, _: Turn, error: RunError) -> Reply:
        return Reply(markdown=str(error), failed=True)

    async def cancel(self, turn: Turn) -> None:
        await self._step("cancel")
        self.calls.append(f"cancel {turn.attempt.run_id or turn.attempt.message_id}")

    async def find_outcome(self, turn: Turn) -> Outcome:
        await self._step("find_outcome")
        return Outcome(reply=turn.attempt.reply)

    async def answer_despite_cancel(self, turn: Turn) -> Reply | None:
        await self._step("answer_despite_cancel")
        return turn.attempt.reply

    async def remove_from_thread(self, _: Turn) -> None:
        await self._step("remove_from_thread")

    async def close_question(self, _: Turn) -> None:
        await self._step("close_question")

    async def discard(self, _: Turn) -> None:
        await self._step("discard")

    async def finish(self, _: Turn) -> bool:
        await self._step("finish")
        return False

    async def fail(self, _: Turn) -> None:
        await self._step("fail")


def word(position: str, text: str = "Hello") -> StreamedPart:
    return StreamedPart(position, MessageChunk("a", "ai", text, whole=False))


def queued(
    text: str = "hi",
    *,
    edits: int = 0,
    row_id: int = 1,
    is_stopped: bool = False,
    is_deleted: bool = False,
) -> QueuedMessage:
    inbound = InboundMessage(
        event_id=f"e{row_id}",
        message_id=f"e{row_id}",
        key=KEY,
        reply_target=ReplyTarget(chat="c"),
        sender=Sender(user_id="u"),
        text=text,
        is_private=True,
        is_addressed=True,
        edit_count=edits,
        is_stopped=is_stopped,
        is_deleted=is_deleted,
    )
    row = InboxRow(
        id=row_id,
        conversation_id=1,
        seq=row_id,
        key=KEY,
        event_id=f"e{row_id}",
        kind="chat",
        body="",
        state="new",
        starts=0,
        thread_id=None,
        run_id=None,
        received_at=0.0,
    )
    return QueuedMessage(row=row, inbound=inbound, text=text)


def turn_of(steps: ScriptedSteps, message: QueuedMessage | None = None, **named: object) -> Turn:
    return Turn(message or queued(), cast(TurnSteps, steps), session=None, **named)  # type: ignore[arg-type]


async def test_an_undisturbed_turn_takes_these_steps() -> None:
    steps = ScriptedSteps()
    turn = turn_of(steps)
    await turn.run()
    assert tuple(steps.calls) == LINEAR
    assert turn.outcome.reply == Reply(markdown="Hello")
    assert turn.stage is TurnStage.DONE


@pytest.mark.parametrize("at", LINEAR)
@pytest.mark.parametrize(
    "failure",
    [
        RuntimeError("bug"),
        TimeoutError(),
        RowConflict("gone"),
        ExceptionGroup("", [KeyError("bug")]),
    ],
    ids=["bug", "timeout", "conflict", "group"],
)
async def test_after_a_bug_a_turn_has_failed_visibly(at: str, failure: Exception) -> None:
    steps = ScriptedSteps(at, failure)
    turn = turn_of(steps)
    with anyio.fail_after(20):
        await turn.run()
    assert turn.stage is TurnStage.FAILED
    assert steps.calls[-1] == "fail"
    assert turn.control.finished.is_set()


async def test_a_failure_that_cannot_be_stored_leaves_the_row() -> None:
    """A restart resumes it."""
    steps = ScriptedSteps("fail", RuntimeError("bug"))
    turn = turn_of(steps, failure_text="invalid")
    await turn.run()
    assert steps.calls == ["fail", "fail"]
    assert turn.control.finished.is_set()


@pytest.mark.parametrize("at", LINEAR)
async def test_a_canceled_service_leaves_a_turn_where_it_is(at: str) -> None:
    steps = ScriptedSteps(at, hangs=True)
    turn = turn_of(steps)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(turn.run)
        await steps.reached.wait()
        tasks.cancel_scope.cancel()
    assert steps.calls[-1] == at
    assert turn.control.finished.is_set()


@pytest.mark.parametrize("retryable", [True, False])
@pytest.mark.parametrize("at", ["prepare_thread", "start", "events", "conclude"])
async def test_a_server_that_cannot_be_reached_is_asked_again(at: str, *, retryable: bool) -> None:
    steps = ScriptedSteps(at, AgentUnavailable("away") if retryable else RunError("no"))
    turn = turn_of(steps)
    await turn.run()
    assert turn.outcome.reply == (
        Reply(markdown="Hello") if retryable else Reply(markdown="no", failed=True)
    )
    assert steps.calls.count("slot") == (2 if retryable else 1)


# ---- interventions before and after each await ------------------------------------------------

POINTS = [(step, is_after) for step in LINEAR for is_after in (False, True)]


@pytest.mark.parametrize(
    "reason", [CancelReason.STOPPED, CancelReason.DELETED, CancelReason.INTERRUPTED]
)
@pytest.mark.parametrize(("step", "is_after"), POINTS)
async def test_a_cancellation_at_each_await_ends_the_turn_or_comes_too_late(
    step: str, reason: CancelReason, *, is_after: bool
) -> None:
    steps, turn, taken = at_point(step, is_after, lambda turn: turn.control.cancel(reason))
    with anyio.fail_after(20):
        await turn.run()
    assert turn.stage is TurnStage.DONE
    is_late = step in ("finish", "close_question")
    has_answer = LINEAR.index(step) >= LINEAR.index("conclude") + (not is_after)
    is_answered = is_late or (reason is CancelReason.INTERRUPTED and has_answer)
    assert turn.control.reason is (None if is_answered else reason)
    assert "start" not in steps.calls[taken[0] :], "a run began despite a pending intervention"
    assert steps.calls[-2:] == ["finish", "close_question"]
    assert ("remove_from_thread" in steps.calls) == (reason is CancelReason.DELETED and not is_late)
    if "start" in steps.calls and not is_late:
        assert "cancel r1" in steps.calls


@pytest.mark.parametrize(("step", "is_after"), POINTS)
async def test_an_edit_at_each_await_is_run_or_comes_too_late(step: str, *, is_after: bool) -> None:
    edited = queued("new", edits=1)
    steps, turn, _ = at_point(step, is_after, lambda turn: turn.control.edit(edited))
    with anyio.fail_after(20):
        await turn.run()
    assert turn.stage is TurnStage.DONE
    assert turn.control.reason is None
    is_late = step in ("finish", "close_question")
    assert turn.message.text == ("hi" if is_late else "new")
    assert turn.outcome.reply == Reply(markdown="Hello")
    assert steps.calls.count("finish") == 1


@pytest.mark.parametrize("row_id", [1, 2], ids=["own", "further"])
@pytest.mark.parametrize(("step", "is_after"), POINTS)
async def test_a_message_is_injected_once_or_waits_for_a_turn_of_its_own(
    step: str, row_id: int, *, is_after: bool
) -> None:
    message = queued("more", row_id=row_id, edits=1 if row_id == 1 else 0)
    steps, turn, _ = at_point(step, is_after, lambda turn: turn.control.steer(message))
    with anyio.fail_after(20):
        await turn.run()
    assert turn.stage is TurnStage.DONE
    assert steps.calls.count("inject") <= 1
    assert turn.control.has_injected(row_id)
    if "inject" not in steps.calls and "note_injection" not in steps.calls:
        assert [one.row.id for one in turn.control.steered] == [row_id]


@pytest.mark.parametrize(("step", "is_after"), POINTS)
async def test_a_hand_over_and_a_new_thread_change_nothing_by_themselves(
    step: str, *, is_after: bool
) -> None:
    def act(turn: Turn) -> None:
        turn.control.hand_over()
        turn.control.leave_thread()

    steps, turn, _ = at_point(step, is_after, act)
    await turn.run()
    assert tuple(steps.calls) == LINEAR
    assert turn.outcome.reply == Reply(markdown="Hello")


def at_point(
    step: str, is_after: bool, act: Callable[[Turn], None]
) -> tuple[ScriptedSteps, Turn, list[int]]:
    """Return a turn with one intervention during a step, and the number of steps before it."""
    steps = ScriptedSteps()
    turn = turn_of(steps)
    taken: list[int] = []

    def come(name: str, is_end: bool) -> None:
        if not taken and (name, is_end) == (step, is_after):
            taken.append(len(steps.calls))
            act(turn)

    steps.act = come
    return steps, turn, taken


@pytest.mark.parametrize("reason", [CancelReason.STOPPED, CancelReason.DELETED])
async def test_a_message_that_was_stopped_before_its_turn_begins_has_none(
    reason: CancelReason,
) -> None:
    steps = ScriptedSteps()
    is_deleted = reason is CancelReason.DELETED
    turn = turn_of(steps, queued(is_stopped=True, is_deleted=is_deleted))
    await turn.run()
    assert steps.calls == ["discard"]
    assert turn.control.reason is reason


async def test_a_turn_that_is_stopped_while_its_run_starts_learns_which_run_to_cancel() -> None:
    """Without the run's ID, the turn could not cancel the run, which would continue unused."""
    steps = ScriptedSteps("start", hangs=True)
    turn = turn_of(steps)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(turn.run)
        await steps.reached.wait()
        turn.control.cancel()
        await anyio.lowlevel.checkpoint()
        steps.released.set()
        with anyio.fail_after(20):
            await turn.control.finished.wait()
    assert "cancel r1" in steps.calls


async def test_a_run_whose_id_does_not_come_is_canceled_by_its_key() -> None:
    steps = ScriptedSteps("start", hangs=True)
    turn = turn_of(steps)
    began_at = anyio.current_time()
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(turn.run)
        await steps.reached.wait()
        turn.control.cancel()
        with anyio.fail_after(START_S + 5):
            await turn.control.finished.wait()
    assert anyio.current_time() - began_at >= START_S
    assert "cancel fake:e1" in steps.calls


# ---- the events of a run ----------------------------------------------------------------------


async def test_a_cut_stream_is_read_on_from_where_it_was() -> None:
    steps = ScriptedSteps()
    steps.events_of = [
        [word("1", "ab"), AgentUnavailable("cut")],
        [word("2", "cd"), StreamedPart("3", RunEnded("success"))],
    ]
    turn = turn_of(steps)
    await turn.run()
    assert steps.seen == ["", "1"]
    assert turn.attempt.fold.text == "abcd"


@pytest.mark.parametrize("case", ["without positions", "another run"])
async def test_the_events_of_a_run_are_not_mixed_with_others(case: str) -> None:
    steps = ScriptedSteps()
    first, second = word("" if case == "without positions" else "1", "ab"), word("2", "abcd")
    steps.run_ids = ["r1", "r2"] if case == "another run" else ["r1"]
    steps.events_of = [[first, AgentUnavailable("cut")], [second]]
    turn = turn_of(steps)
    await turn.run()
    assert turn.attempt.fold.text == "abcd"


async def test_an_answer_without_end_is_ended() -> None:
    steps = ScriptedSteps()
    steps.events_of = [[word("1", "a" * (ENDLESS * steps.max_chars + 1)), word("2", "never read")]]
    turn = turn_of(steps)
    await turn.run()
    assert turn.outcome.reply is not None
    assert turn.outcome.reply.endless
    assert "cancel r1" in steps.calls


async def test_a_run_that_another_node_continues_is_left() -> None:
    steps = ScriptedSteps("conclude", RunMoves())
    turn = turn_of(steps)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(turn.run)
        while not turn.control.is_left:
            await anyio.lowlevel.checkpoint()
        tasks.cancel_scope.cancel()
    assert steps.calls[-1] == "conclude"


# ---- assignments to a turn --------------------------------------------------------------------

OWN = frozenset({"turn", "control", "attempt"})


def test_only_its_module_assigns_to_a_turn() -> None:
    """Other modules intervene only through methods of `Control`."""
    found = []
    (folder,) = bus.__path__
    for path in Path(folder).rglob("*.py"):
        if path.name == "turn.py" and path.parent.name == "conversation":
            continue
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            targets = (
                node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", None)]
            )
            found += [
                f"{path.name}:{one.lineno}"
                for target in targets
                for one in ast.walk(target or ast.Pass())
                if isinstance(one, ast.Attribute | ast.Subscript)
                and isinstance(one.ctx, ast.Store)
                and isinstance(one.value, ast.Attribute | ast.Name)
                and (one.value.attr if isinstance(one.value, ast.Attribute) else one.value.id)
                in OWN
            ]
    assert found == []
