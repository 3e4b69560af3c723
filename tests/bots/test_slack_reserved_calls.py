"""The reactions that an app may add and take away on Slack, by a clock of the test."""

from bots.slack.reserved_calls import (
    REACTIONS_ADDED_A_MINUTE,
    REACTIONS_REMOVED_A_MINUTE,
    RESERVED_S,
    ReactionBudget,
)
from bus.messages import ReplyTarget


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


def place(number: int) -> ReplyTarget:
    return ReplyTarget(chat="C1", reply_to=str(number))


def test_a_working_reaction_takes_the_room_of_its_removal() -> None:
    clock = Clock()
    budget = ReactionBudget(clock)
    reserved = [number for number in range(30) if budget.reserve(place(number))]
    assert reserved == list(range(REACTIONS_REMOVED_A_MINUTE))
    assert budget.removals.try_acquire(place(29)) == 60.0  # that of an earlier process waits
    for number in reserved:
        assert budget.removals.try_acquire(place(number)) == 0.0
        budget.removals.release(place(number))
    assert not budget.reserve(place(29))
    clock.now += 60.0
    assert budget.reserve(place(29))
    assert budget.removals.try_acquire(place(30)) == 0.0


def test_additions_are_counted_too() -> None:
    budget = ReactionBudget(Clock())
    for _ in range(REACTIONS_ADDED_A_MINUTE):
        assert not budget.additions.try_acquire()
    assert not budget.reserve(place(1))
    assert not budget.removals.has_reserved(place(1))


def test_none_is_added_while_slack_refuses_to_take_any_away() -> None:
    clock = Clock()
    budget = ReactionBudget(clock)
    assert budget.reserve(place(1))
    budget.removals.made.pause(30.0)
    assert not budget.reserve(place(2))
    assert budget.removals.try_acquire(place(1)) == 30.0
    clock.now += 30.0
    assert budget.removals.try_acquire(place(1)) == 0.0


def test_a_reaction_that_was_given_up_does_not_keep_its_room() -> None:
    clock = Clock()
    budget = ReactionBudget(clock)
    for number in range(REACTIONS_REMOVED_A_MINUTE):
        assert budget.reserve(place(number))
    clock.now += RESERVED_S
    assert budget.reserve(place(99))
