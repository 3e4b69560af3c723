"""Rate limits of adding and removing reactions on Slack, with a clock that the test sets."""

from bots.common.call_limits import RESERVED_S
from bots.slack.capabilities import REACTIONS_ADDED_A_MINUTE, REACTIONS_REMOVED_A_MINUTE
from bots.slack.indicator import ReactionLimits
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
    reactions = ReactionLimits(clock)
    reserved = [number for number in range(30) if reactions.reserve(place(number))]
    assert reserved == list(range(REACTIONS_REMOVED_A_MINUTE))
    assert (
        reactions.removals.try_acquire_reserved(place(29)) == 60.0
    )  # an earlier process left a reaction
    for number in reserved:
        assert reactions.removals.try_acquire_reserved(place(number)) == 0.0
        reactions.removals.release(place(number))
    assert not reactions.reserve(place(29))
    clock.now += 60.0
    assert reactions.reserve(place(29))
    assert reactions.removals.try_acquire_reserved(place(30)) == 0.0


def test_additions_are_counted_too() -> None:
    reactions = ReactionLimits(Clock())
    for _ in range(REACTIONS_ADDED_A_MINUTE):
        assert not reactions.additions.try_acquire()
    assert not reactions.reserve(place(1))
    assert not reactions.removals.has_reserved(place(1))


def test_none_is_added_while_slack_refuses_to_take_any_away() -> None:
    clock = Clock()
    reactions = ReactionLimits(clock)
    assert reactions.reserve(place(1))
    reactions.removals.pause(30.0)
    assert not reactions.reserve(place(2))
    assert reactions.removals.try_acquire_reserved(place(1)) == 30.0
    clock.now += 30.0
    assert reactions.removals.try_acquire_reserved(place(1)) == 0.0


def test_a_reaction_that_was_given_up_does_not_keep_its_room() -> None:
    clock = Clock()
    reactions = ReactionLimits(clock)
    for number in range(REACTIONS_REMOVED_A_MINUTE):
        assert reactions.reserve(place(number))
    clock.now += RESERVED_S
    assert reactions.reserve(place(99))
