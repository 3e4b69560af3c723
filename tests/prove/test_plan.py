"""A plan depends only on its seed."""

from tests.prove.plan import ActionKind, MessageKind, PlaceTraits, Plan, RequestKind, make_plan

PLACES = (
    PlaceTraits(name="a", channel="telegram", private=True, can_delete=False),
    PlaceTraits(name="b", channel="slack", private=False),
    PlaceTraits(name="c", channel="feishu", private=True, can_edit=False),
)


def plan(seed: int) -> Plan:
    return make_plan(seed, duration_s=60, messages=500, places=PLACES, faults=50)


def test_the_same_seed_gives_the_same_plan() -> None:
    assert plan(7) == plan(7)
    assert plan(7).actions != plan(8).actions


def test_people_do_what_their_platform_can() -> None:
    made = plan(3)
    of_kind = {kind: [a for a in made.actions if a.kind is kind] for kind in ActionKind}
    assert len(of_kind[ActionKind.SEND]) == 500
    assert {action.place for action in of_kind[ActionKind.EDIT]} == {"a", "b"}
    assert {action.place for action in of_kind[ActionKind.DELETE]} == {"b", "c"}
    asides = [m for m in made.messages.values() if m.kind is MessageKind.ASIDE]
    assert {message.place for message in asides} == {"b"}


def test_nobody_changes_a_message_before_it_is_sent() -> None:
    sent: set[str] = set()
    for action in plan(5).actions:
        if action.kind is ActionKind.SEND:
            sent.add(action.message)
        elif action.message:
            assert action.message in sent


def test_everything_happens_within_the_time() -> None:
    made = plan(9)
    assert len(made.faults) == 50
    assert all(0 <= fault.at_s <= 60 for fault in made.faults)
    assert [a.at_s for a in made.actions] == sorted(a.at_s for a in made.actions)


def test_clients_make_requests_of_all_kinds_after_a_person_wrote() -> None:
    made = make_plan(7, duration_s=120, messages=500, places=PLACES, faults=0)
    assert {one.kind for one in made.requests} == {*RequestKind}
    assert {one.place for one in made.requests} == {"", "a", "c"}
    assert all(0 <= one.at_s <= 120 for one in made.requests)
    assert {one.id for one in made.requests} <= made.answered.keys()
    assert not {one.id for one in made.requests} & made.messages.keys()
