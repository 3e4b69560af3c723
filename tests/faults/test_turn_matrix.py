"""The matrix of the turn's table: each transition fails once in each way, and the turn goes where the policy says."""

from collections import Counter, deque
from dataclasses import dataclass

import anyio
import pytest

from bus.conversation.machine import EffectHandler, Handlers, QueuedMessage, RunAttempt, Turn
from bus.conversation.states import (
    TRANSITIONS,
    Effect,
    TurnEvent,
    TurnState,
)
from bus.messages import InboundMessage, ReplyTarget, Sender
from store.conversations import ConversationKey
from store.errors import RowConflict, StoreUnavailable
from store.inbox import InboxRow

KEY = ConversationKey(channel="fake", workspace="w", chat="c")
STARTS = (TurnEvent.TAKE, TurnEvent.CANCEL, TurnEvent.CHECK, TurnEvent.GIVE_UP)
STORED_ONLY = frozenset({TurnState.WAITING_FOR_APPROVAL})
"""States whose events reach the row, not a turn that runs: `Questions.mark_answered` applies them."""


@dataclass(frozen=True)
class EventPath:
    """Events that take a turn from its start to a transition; the last of them is the one that is tested."""

    events: tuple[TurnEvent, ...]
    state: TurnState


def paths() -> dict[tuple[TurnState, TurnEvent], EventPath]:
    """Return the shortest path to each transition."""
    found: dict[tuple[TurnState, TurnEvent], EventPath] = {}
    queue = deque([EventPath((), TurnState.QUEUED)])
    while queue:
        path = queue.popleft()
        for (state, event), transition in TRANSITIONS.items():
            is_start = path.events or event in STARTS
            if state is path.state and is_start and (state, event) not in found:
                longer = EventPath((*path.events, event), transition.target)
                found[state, event] = longer
                queue.append(longer)
    return found


MATRIX = {pair: path for pair, path in paths().items() if pair[0] not in STORED_ONLY}
CELLS = pytest.mark.parametrize("pair", MATRIX, ids=[f"{state}-{event}" for state, event in MATRIX])


class ScriptedEffects:
    """Effects that follow a path; that of its last transition fails the first time, or hangs.

    Attributes:
        calls: How often each effect was carried out.
        reached: Set when the last transition was.
    """

    def __init__(
        self, path: EventPath, failure: Exception | None = None, *, hangs: bool = False
    ) -> None:
        self.calls: Counter[Effect] = Counter()
        self.reached = anyio.Event()
        self._events = deque(path.events[1:])
        self._failure = failure
        self._hangs = hangs

    def handlers(self) -> Handlers:
        return {effect: self._handler(effect) for effect in Effect}

    def _handler(self, effect: Effect) -> EffectHandler:
        async def handle(_: Turn) -> TurnEvent | None:
            self.calls[effect] += 1
            return self._events.popleft() if self._events else await self._end()

        return handle

    async def _end(self) -> TurnEvent | None:
        self.reached.set()
        failure, self._failure = self._failure, None
        if failure is not None:
            raise failure
        if self._hangs:
            await anyio.sleep_forever()
        return None


def turn_for(path: EventPath, handlers: Handlers) -> Turn:
    first = path.events[0]
    inbound = InboundMessage(
        event_id="e1",
        message_id="e1",
        key=KEY,
        reply_target=ReplyTarget(chat="c"),
        sender=Sender(user_id="u"),
        text="hi",
        is_private=True,
        is_addressed=True,
        is_stopped=first is TurnEvent.CANCEL,
    )
    row = InboxRow(
        id=1,
        conversation_id=1,
        seq=1,
        key=KEY,
        event_id="e1",
        kind="chat",
        body="",
        state="new",
        attempts=0,
        thread_id=None,
        run_id="r" if first is TurnEvent.CHECK else None,
        received_at=0.0,
    )
    message = QueuedMessage(row=row, inbound=inbound, text="hi")
    failure_text = "invalid" if first is TurnEvent.GIVE_UP else ""
    return Turn(message, handlers, session=None, failure_text=failure_text)


def test_each_transition_of_a_running_turn_is_in_the_matrix() -> None:
    assert set(MATRIX) == {pair for pair in TRANSITIONS if pair[0] not in STORED_ONLY}


@CELLS
async def test_after_a_store_error_a_transition_is_applied_again(
    pair: tuple[TurnState, TurnEvent],
) -> None:
    path = MATRIX[pair]
    effects = ScriptedEffects(path, StoreUnavailable("disk full"))
    turn = turn_for(path, effects.handlers())
    with anyio.fail_after(20):
        await turn.run()
    assert turn.state is path.state
    assert effects.calls[TRANSITIONS[pair].effect] >= 2
    assert bool(effects.calls[Effect.REPORT_FAILURE]) == (path.state is TurnState.FAILED)


@CELLS
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
async def test_after_a_bug_a_turn_has_failed_visibly(
    pair: tuple[TurnState, TurnEvent], failure: Exception
) -> None:
    path = MATRIX[pair]
    effects = ScriptedEffects(path, failure)
    turn = turn_for(path, effects.handlers())
    with anyio.fail_after(20):
        await turn.run()
    if pair[1] is TurnEvent.CRASHED:
        # Not even the failure can be reported: the row stays as it is, and is taken up again.
        assert turn.state is pair[0]
    else:
        assert turn.state is TurnState.FAILED
    assert effects.calls[Effect.REPORT_FAILURE] >= 1
    assert turn.finished.is_set()


@CELLS
async def test_a_cancelled_service_leaves_a_turn_where_it_is(
    pair: tuple[TurnState, TurnEvent],
) -> None:
    path = MATRIX[pair]
    effects = ScriptedEffects(path, hangs=True)
    turn = turn_for(path, effects.handlers())
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(turn.run)
        await effects.reached.wait()
        tasks.cancel_scope.cancel()
    assert turn.state is path.state
    assert turn.finished.is_set()
    assert effects.calls[Effect.REPORT_FAILURE] == (path.state is TurnState.FAILED)


async def test_a_turn_that_is_stopped_while_its_run_starts_learns_which_run_to_cancel() -> None:
    """Without the run's id nothing could be cancelled, and the run would go on for nobody."""
    requested, cancelled = anyio.Event(), list[str | None]()
    path = EventPath((TurnEvent.TAKE,), TurnState.STARTING)

    async def begin(turn: Turn) -> TurnEvent:
        turn.attempt = RunAttempt(turn.message, turn.row, thread_exists=True)
        return TurnEvent.UPLOADED

    async def follow_run(turn: Turn) -> TurnEvent:
        async with anyio.create_task_group() as turn.run_tasks:
            turn.attempt.is_requested = True
            requested.set()
            await anyio.sleep(0.05)
            turn.attempt.run_id = "r"
            await turn.apply(TurnEvent.RUN_STARTED)
            await anyio.sleep_forever()
        return TurnEvent.RUN_ENDED

    async def cancel_run(turn: Turn) -> None:
        cancelled.append(turn.attempt.run_id)

    own = {Effect.BEGIN: begin, Effect.FOLLOW_RUN: follow_run, Effect.CANCEL_RUN: cancel_run}
    turn = turn_for(path, {**ScriptedEffects(path).handlers(), **own})
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(turn.run)
        await requested.wait()
        turn.cancel()
        with anyio.fail_after(1):
            await turn.finished.wait()
    assert cancelled == ["r"]
    assert turn.state is TurnState.CANCELLING
