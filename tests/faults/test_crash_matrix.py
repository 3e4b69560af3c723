"""The crash matrix: the process is killed at each transition of the turn's table, and the next one goes on."""

from pathlib import Path

import pytest

from bus.conversation.states import TRANSITIONS, TurnEvent, TurnState
from tests.faults.turns import KILLED_TURNS, record_transitions, survive_kill

S, E = TurnState, TurnEvent

REACHED_BY = {
    (S.QUEUED, E.TAKE): "notice",
    (S.STARTING, E.BEGUN): "streaming",
    (S.STARTING, E.PREPARED): "streaming",
    (S.STARTING, E.UPLOADED): "draft",
    (S.STARTING, E.RUN_STARTED): "streaming",
    (S.RUNNING, E.RUN_ENDED): "streaming",
    (S.RUNNING, E.DECIDED): "notice",
    (S.DELIVERING, E.COMMITTED): "streaming",
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

AFTER_KILL = {
    (S.STARTING, E.RUN_ENDED): ("notice", (S.RUNNING, E.RUN_ENDED)),
}
"""Transitions that only a turn makes whose process was killed before, at the transition named second."""

ELSEWHERE = {
    **{(state, E.CRASHED): "needs a bug: test_turn_faults injects them" for state in S},
    **{(S.STEERING, event): "a race with an injection: test_turn_matrix" for event in E},
    (S.QUEUED, E.CANCEL): "a message that was deleted before a restart: test_message_edits",
    (S.QUEUED, E.GIVE_UP): "an invalid session: one transaction, as (STARTING, CRASHED)",
    (S.STARTING, E.GIVE_UP): "too many starts: test_turn",
    (S.STARTING, E.ALREADY_FINISHED): "an edit that finishes the row meanwhile: test_turn_matrix",
    (S.RUNNING, E.RUN_LOST): "as (STARTING, RUN_LOST), after the run has an id: test_turn",
    (S.QUEUED, E.CHECK): "a message that was injected before a restart: test_steering",
    (S.QUEUED, E.CONSUMED): "the same",
    (S.STARTING, E.CANCEL): "as (RUNNING, CANCEL), before the run has an id: test_turn_matrix",
    (S.WAITING_FOR_APPROVAL, E.ANSWERED): "a turn of its own: the reference turn `approval`",
}
"""Transitions that are tested elsewhere, and where."""


def test_each_transition_of_the_table_has_a_row() -> None:
    rows = REACHED_BY.keys() | AFTER_KILL.keys() | ELSEWHERE.keys()
    assert set(TRANSITIONS) - rows == set()


@pytest.mark.parametrize("name", sorted(set(REACHED_BY.values())))
async def test_the_turns_make_the_transitions_that_they_are_listed_for(
    tmp_path: Path, name: str
) -> None:
    made = await record_transitions(KILLED_TURNS[name], tmp_path)
    assert {pair for pair, turn in REACHED_BY.items() if turn == name} - set(made) == set()


@pytest.mark.parametrize(
    "pair", REACHED_BY, ids=[f"{state}-{event}" for state, event in REACHED_BY]
)
async def test_a_process_killed_at_a_transition_leaves_a_turn_that_the_next_one_finishes(
    tmp_path: Path, pair: tuple[TurnState, TurnEvent]
) -> None:
    await survive_kill(KILLED_TURNS[REACHED_BY[pair]], tmp_path, pair)


@pytest.mark.parametrize(
    "pair", AFTER_KILL, ids=[f"{state}-{event}" for state, event in AFTER_KILL]
)
async def test_a_second_kill_at_what_follows_the_first_does_no_harm(
    tmp_path: Path, pair: tuple[TurnState, TurnEvent]
) -> None:
    name, first = AFTER_KILL[pair]
    await survive_kill(KILLED_TURNS[name], tmp_path, first, pair)
