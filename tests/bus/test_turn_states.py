"""The table of turn states: complete, reachable, drawn in the docs, and the only thing that changes a state."""

from pathlib import Path

import pytest

from bus.conversation.effects import TurnEffects
from bus.conversation.states import (
    INTERRUPTIBLE,
    TRANSITIONS,
    Effect,
    IllegalTransition,
    TurnEvent,
    TurnState,
    diagram,
    next_step,
)

PAGE = Path(__file__).parents[2] / "docs" / "explanation" / "turn-states.md"


def test_every_pair_that_the_table_does_not_have_is_refused() -> None:
    for state in TurnState:
        for event in TurnEvent:
            if (state, event) in TRANSITIONS:
                assert next_step(state, event) is TRANSITIONS[state, event]
            else:
                with pytest.raises(IllegalTransition, match=f"{state} has no event {event}"):
                    next_step(state, event)


def test_every_state_is_reached_and_left() -> None:
    reached = {TurnState.QUEUED}
    while (
        more := {step.target for (state, _), step in TRANSITIONS.items() if state in reached}
        - reached
    ):
        reached |= more
    assert reached == set(TurnState)
    assert {state for state, _ in TRANSITIONS} == set(TurnState) - {
        TurnState.DONE,
        TurnState.FAILED,
    }
    assert {event for _, event in TRANSITIONS} == set(TurnEvent)


def test_every_effect_is_named_by_the_table_and_carried_out() -> None:
    assert {step.effect for step in TRANSITIONS.values()} == set(Effect)
    carried_out = {name for name in vars(TurnEffects) if not name.startswith("_")} - {"handlers"}
    assert carried_out == set(Effect) - {Effect.CLOSE_QUESTION}


def test_only_turns_that_can_be_cancelled_run_interruptible_effects() -> None:
    for step in TRANSITIONS.values():
        if step.effect in INTERRUPTIBLE and step.target is not TurnState.CANCELLING:
            assert (step.target, TurnEvent.CANCEL) in TRANSITIONS


def test_the_diagram_in_the_docs_is_the_table() -> None:
    assert f"```mermaid\n{diagram()}```" in PAGE.read_text()
