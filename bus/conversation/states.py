"""The states of a turn: the table of transitions that drives the code, and its diagram.

A turn answers one queued message. `TRANSITIONS` maps (state, event) to the next state and to the name of the effect
that runs on the way; `bus.conversation.machine` applies it, `bus.conversation.effects` implements the effects. A pair
that is not in the table is a bug and raises `IllegalTransition`.

`python -m bus.conversation.states` prints the diagram of docs/explanation/turn-states.md.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum


class TurnState(StrEnum):
    """Where a turn is."""

    QUEUED = "queued"
    """Accepted; waits for the turns before it in its conversation."""
    STARTING = "starting"
    """Its thread, files and run are being prepared."""
    RUNNING = "running"
    """The agent works on it."""
    STEERING = "steering"
    """The agent works on it, and a further message is being injected into the run."""
    CANCELLING = "cancelling"
    """Its run is being cancelled: stopped, interrupted, deleted, or edited."""
    DELIVERING = "delivering"
    """Its answer is decided and being committed; nothing can change it any more."""
    WAITING_FOR_APPROVAL = "waiting_for_approval"
    """It ended with a question of the agent's; the answer is a turn of its own."""
    DONE = "done"
    """It is answered, or needs no answer."""
    FAILED = "failed"
    """It was given up with a visible message."""


class TurnEvent(StrEnum):
    """What happens to a turn: `CANCEL` and `STEER` come from outside, the others are outcomes of effects."""

    TAKE = "take"
    CHECK = "check"
    CONSUMED = "consumed"
    BEGUN = "begun"
    ALREADY_FINISHED = "already_finished"
    GIVE_UP = "give_up"
    PREPARED = "prepared"
    UPLOADED = "uploaded"
    RUN_STARTED = "run_started"
    RUN_LOST = "run_lost"
    RUN_ENDED = "run_ended"
    STEER = "steer"
    INJECTED = "injected"
    CANCEL = "cancel"
    RUN_CANCELLED = "run_cancelled"
    RERUN = "rerun"
    DECIDED = "decided"
    COMMITTED = "committed"
    QUESTION_COMMITTED = "question_committed"
    ANSWERED = "answered"
    CRASHED = "crashed"


class Effect(StrEnum):
    """What is done at a transition; the value is the name of the method of `TurnEffects`."""

    NOTHING = "nothing"
    CHECK_CONSUMED = "check_consumed"
    """Look whether another turn's run consumed the message before a restart."""
    DISCARD = "discard"
    """Finish the row without an answer."""
    BEGIN = "begin"
    """Bind the conversation's thread and commit that the turn starts."""
    PREPARE = "prepare"
    """Show that work begins; look up the question that the message may answer."""
    UPLOAD_FILES = "upload_files"
    """Hand the message's files to the thread's uploads."""
    FOLLOW_RUN = "follow_run"
    """Start, join or resume the run and read its stream to the end."""
    NOTE_RUN = "note_run"
    """Note the run's id in the journal."""
    RECONNECT = "reconnect"
    """Wait before the run is started or joined again."""
    INJECT = "inject"
    """Inject messages into the run, beside its stream."""
    COLLECT = "collect"
    """Find out which injected messages the run consumed."""
    CANCEL_RUN = "cancel_run"
    """Cancel the run at the server; of an edited message, wait for the last edit."""
    RESTART = "restart"
    """Go on with the message as it was edited."""
    COMMIT = "commit"
    """Finish the row and enqueue its answer, in one transaction."""
    REPORT_FAILURE = "report_failure"
    """Finish the row as dead and enqueue a message that says so, in one transaction."""
    CLOSE = "close"
    """Close the question that the turn answered."""
    CLOSE_QUESTION = "close_question"
    """Note that what the turn waited for was answered."""


INTERRUPTIBLE = frozenset(
    {Effect.UPLOAD_FILES, Effect.FOLLOW_RUN, Effect.RECONNECT, Effect.COLLECT}
)
"""Effects that a cancellation from outside cuts short. The others finish first."""


@dataclass(frozen=True, slots=True)
class Transition:
    """The next state of a turn, and what is done on the way."""

    target: TurnState
    effect: Effect = Effect.NOTHING


class IllegalTransition(RuntimeError):
    """An event that the table does not have for this state: a bug."""


S, E, F = TurnState, TurnEvent, Effect

_ACTIVE = (S.QUEUED, S.STARTING, S.RUNNING, S.STEERING, S.CANCELLING, S.DELIVERING)
_WORKING = (S.RUNNING, S.STEERING)

TRANSITIONS: Mapping[tuple[TurnState, TurnEvent], Transition] = {
    (S.QUEUED, E.TAKE): Transition(S.STARTING, F.BEGIN),
    (S.QUEUED, E.CANCEL): Transition(S.DONE, F.DISCARD),
    (S.QUEUED, E.CHECK): Transition(S.QUEUED, F.CHECK_CONSUMED),
    (S.QUEUED, E.CONSUMED): Transition(S.DONE, F.DISCARD),
    (S.QUEUED, E.GIVE_UP): Transition(S.FAILED, F.REPORT_FAILURE),
    (S.STARTING, E.BEGUN): Transition(S.STARTING, F.PREPARE),
    (S.STARTING, E.ALREADY_FINISHED): Transition(S.DONE),
    (S.STARTING, E.GIVE_UP): Transition(S.FAILED, F.REPORT_FAILURE),
    (S.STARTING, E.PREPARED): Transition(S.STARTING, F.UPLOAD_FILES),
    (S.STARTING, E.UPLOADED): Transition(S.STARTING, F.FOLLOW_RUN),
    (S.STARTING, E.RUN_STARTED): Transition(S.RUNNING, F.NOTE_RUN),
    (S.STARTING, E.RUN_LOST): Transition(S.STARTING, F.RECONNECT),
    (S.STARTING, E.RUN_ENDED): Transition(S.RUNNING, F.COLLECT),
    (S.STARTING, E.CANCEL): Transition(S.CANCELLING, F.CANCEL_RUN),
    (S.RUNNING, E.STEER): Transition(S.STEERING, F.INJECT),
    (S.STEERING, E.INJECTED): Transition(S.RUNNING),
    **{(state, E.RUN_LOST): Transition(S.STARTING, F.RECONNECT) for state in _WORKING},
    **{(state, E.RUN_ENDED): Transition(S.RUNNING, F.COLLECT) for state in _WORKING},
    **{(state, E.CANCEL): Transition(S.CANCELLING, F.CANCEL_RUN) for state in _WORKING},
    (S.RUNNING, E.DECIDED): Transition(S.DELIVERING, F.COMMIT),
    (S.CANCELLING, E.RUN_CANCELLED): Transition(S.CANCELLING, F.COLLECT),
    (S.CANCELLING, E.RERUN): Transition(S.STARTING, F.RESTART),
    (S.CANCELLING, E.DECIDED): Transition(S.DELIVERING, F.COMMIT),
    (S.DELIVERING, E.COMMITTED): Transition(S.DONE, F.CLOSE),
    (S.DELIVERING, E.QUESTION_COMMITTED): Transition(S.WAITING_FOR_APPROVAL, F.CLOSE),
    (S.WAITING_FOR_APPROVAL, E.ANSWERED): Transition(S.DONE, F.CLOSE_QUESTION),
    **{(state, E.CRASHED): Transition(S.FAILED, F.REPORT_FAILURE) for state in _ACTIVE},
}
"""The table. A `StoreError` has no row: the transition did not happen; the machine applies it again after a pause."""

FINAL = frozenset({S.WAITING_FOR_APPROVAL, S.DONE, S.FAILED})
"""States in which a turn's task ends. Until then its inbox row is `new` or `running`, then `done` or (FAILED) `dead`.

After a restart a row that is `new` or `running` is taken up again from QUEUED: what was done so far is looked up at the
server and in the outbox. A row that is `done` waits for approval while it has a question.
"""


def next_step(state: TurnState, event: TurnEvent) -> Transition:
    """Return the transition for an event.

    Raises:
        IllegalTransition: the table has none.

    >>> next_step(TurnState.RUNNING, TurnEvent.CANCEL).target
    <TurnState.CANCELLING: 'cancelling'>
    """
    try:
        return TRANSITIONS[state, event]
    except KeyError:
        raise IllegalTransition(f"a turn that is {state} has no event {event}") from None


def diagram() -> str:
    """Return the table as a Mermaid state diagram."""
    lines = ["stateDiagram-v2", f"    [*] --> {TurnState.QUEUED}"]
    labels: dict[tuple[TurnState, TurnState], list[str]] = {}
    for (state, event), transition in TRANSITIONS.items():
        effect = "" if transition.effect is Effect.NOTHING else f" / {transition.effect}"
        labels.setdefault((state, transition.target), []).append(f"{event}{effect}")
    for (source, target), found in labels.items():
        lines.append(f"    {source} --> {target}: {'<br/>'.join(found)}")
    lines += [
        f"    {state} --> [*]" for state in TurnState if state in FINAL - {S.WAITING_FOR_APPROVAL}
    ]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    print(diagram(), end="")  # noqa: T201 - this is the command's output
