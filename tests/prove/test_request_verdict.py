"""The verdict on clients finds planted problems: schedules that fired twice or never, messages lost or shown twice."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest

from gateway.playground.telegram.server import TelegramServer
from tests.people.chat_user import ShownMessage
from tests.people.telegram import TelegramPrivateUser
from tests.prove.clients import MadeRequest
from tests.prove.journal import InboxRecord, Journal, OccurrenceRecord, OutboxRecord, ScheduleRecord
from tests.prove.model import answer_text
from tests.prove.plan import ModelBehavior, PlaceTraits, PlannedRequest, RequestKind
from tests.prove.platforms import Place
from tests.prove.request_verdict import judge_all
from tests.prove.test_verdict import CHANNEL, CHAT, PLACE, accepted, delivered
from tests.prove.verdict import Evidence, Outcome, Verdict, ViolationKind

MARK = "r00001"
BEGUN = 6000.0


def made(kind: RequestKind, **changes: Any) -> MadeRequest:  # noqa: ANN401
    traits = PlaceTraits(name=PLACE, channel=CHANNEL, private=True)
    user = TelegramPrivateUser(TelegramServer(), user=int(CHAT))
    planned = PlannedRequest(
        id=MARK,
        kind=kind,
        place=PLACE,
        at_s=0.0,
        text=f"{MARK}v1 bread",
        behavior=ModelBehavior.ANSWER,
        is_doubled=False,
        repeats_s=(),
        delay_s=0.0,
        skips=False,
        has_file=False,
    )
    request = MadeRequest(
        planned=planned,
        place=Place(user, traits),
        at=BEGUN,
        answers=Counter(accepted=1, repeated=2, duplicate=2),
        state="delivered",
    )
    return replace(request, **changes)


def schedule(*occurrences: OccurrenceRecord, **changes: Any) -> ScheduleRecord:  # noqa: ANN401
    """Return a schedule that is due three times, every minute."""
    record = ScheduleRecord(
        id="s",
        channel=CHANNEL,
        chat=CHAT,
        name=MARK,
        kind="every",
        expression="1m",
        since=BEGUN,
        end_at=BEGUN + 200,
        missed="once",
        is_enabled=False,
        paused_because="ended",
        occurrences=occurrences,
    )
    return replace(record, **changes)


def due(number: int, **changes: Any) -> OccurrenceRecord:  # noqa: ANN401
    at = BEGUN + 60 * number
    record = OccurrenceRecord(
        due_at=at, outcome="answered", detail="", missed=0, inbox_id=number, created_at=at + 0.2
    )
    return replace(record, **changes)


def sent(number: int, **changes: Any) -> InboxRecord:  # noqa: ANN401
    at = BEGUN + 60 * number
    body = {"text": f"{MARK}v1 bread", "is_private": True}
    row = accepted(number, message_id="", event_id=f"schedule:s:{at:.3f}", body=body)
    return replace(row, **changes)


def answer(number: int) -> ShownMessage:
    return ShownMessage(id=str(200 + number), text=answer_text(MARK, 1))


def judged(
    request: MadeRequest,
    inbox: Sequence[InboxRecord] = (),
    outbox: Sequence[OutboxRecord] = (),
    seen: Sequence[ShownMessage] = (),
    *schedules: ScheduleRecord,
) -> Verdict:
    journal = Journal(inbox=tuple(inbox), outbox=tuple(outbox), schedules=schedules)
    chats = {PLACE: (CHANNEL, CHAT)}
    evidence = Evidence(messages=[], shown={PLACE: seen}, chats=chats, journal=journal)
    return judge_all(evidence, [request])


def kinds(found: Verdict) -> list[ViolationKind]:
    return [violation.kind for violation in found.violations]


def of_schedule(*occurrences: OccurrenceRecord, **changes: Any) -> list[ViolationKind]:  # noqa: ANN401
    """Return the violations if a schedule ran at the given times, each with its answer."""
    numbers = [one.inbox_id for one in occurrences if one.inbox_id is not None]
    rows = [sent(number) for number in numbers]
    outbox = [delivered(number) for number in numbers]
    seen = [answer(number) for number in numbers]
    made_schedule = schedule(*occurrences, **changes)
    return kinds(judged(made(RequestKind.EVERY), rows, outbox, seen, made_schedule))


def test_each_due_time_runs_once_or_is_told_as_missed() -> None:
    assert of_schedule(due(1), due(2), due(3)) == []
    assert of_schedule(due(1), due(2, missed=1, created_at=BEGUN + 185)) == []
    late = due(2, outcome="missed", inbox_id=None, created_at=BEGUN + 190)
    assert of_schedule(due(1), late, due(3), missed="skip") == []
    back = due(-50, inbox_id=9)  # While the clock was an hour behind.
    row = sent(9, event_id=f"schedule:s:{BEGUN - 3000:.3f}")
    found = judged(
        made(RequestKind.EVERY),
        [row, *map(sent, (1, 2, 3))],
        [delivered(number) for number in (9, 1, 2, 3)],
        [answer(number) for number in (9, 1, 2, 3)],
        schedule(back, due(1), due(2), due(3)),
    )
    assert kinds(found) == [ViolationKind.UNEXPECTED]


@pytest.mark.parametrize(
    ("occurrences", "changes", "expected"),
    [
        ((due(1), due(3)), {}, [ViolationKind.SILENT]),
        ((due(1), due(2)), {}, [ViolationKind.SILENT]),
        ((due(1), due(2), due(3)), {"is_enabled": True}, [ViolationKind.STUCK]),
        ((due(1), due(2), due(3)), {"paused_because": "owner"}, [ViolationKind.STUCK]),
        ((due(1), due(2, created_at=BEGUN), due(3)), {}, [ViolationKind.UNEXPECTED]),
        ((due(1), due(2, inbox_id=None), due(3)), {}, [ViolationKind.SILENT]),
        ((due(1), due(2, inbox_id=None, outcome="missed"), due(3)), {}, [ViolationKind.SILENT]),
        ((due(1), due(2, inbox_id=None, outcome="skipped"), due(3)), {}, [ViolationKind.SILENT]),
        (
            (due(1), due(2), due(3), due(2, due_at=BEGUN + 140, inbox_id=None, outcome="failed")),
            {},
            [ViolationKind.UNEXPECTED],
        ),
    ],
)
def test_a_due_time_that_is_lost_or_not_one_is_found(
    occurrences: tuple[OccurrenceRecord, ...],
    changes: dict[str, Any],
    expected: list[ViolationKind],
) -> None:
    assert of_schedule(*occurrences, **changes) == expected


def test_a_schedule_that_fires_twice_is_found() -> None:
    all_due = [due(number) for number in (1, 2, 3)]
    rows = [sent(number) for number in (1, 2, 3)]
    outbox = [delivered(number) for number in (1, 2, 3, 4)]
    seen = [answer(number) for number in (1, 2, 3, 4)]
    for event_id in ("schedule:s:6180.000", "schedule:s:6181.000"):
        twice = [*rows, sent(4, event_id=event_id)]
        found = judged(made(RequestKind.EVERY), twice, outbox, seen, schedule(*all_due))
        assert ViolationKind.DOUBLED in kinds(found)
    copied = judged(made(RequestKind.EVERY), rows, outbox[:3], seen, schedule(*all_due))
    assert kinds(copied) == [ViolationKind.DOUBLED]


def test_a_schedule_that_is_due_once_runs_once() -> None:
    once = schedule(
        due(1),
        kind="once",
        expression=datetime.fromtimestamp(BEGUN + 60, UTC).isoformat(),
        end_at=None,
    )
    request = made(RequestKind.ONCE)
    found = judged(request, [sent(1)], [delivered(1)], [answer(1)], once)
    assert (kinds(found), [one.outcome for one in found.histories]) == ([], [Outcome.ANSWERED])
    assert kinds(judged(request, [], [], [], replace(once, occurrences=()))) == [
        ViolationKind.SILENT
    ]
    assert kinds(judged(request)) == [ViolationKind.SILENT]


def event(number: int = 1, **changes: Any) -> InboxRecord:  # noqa: ANN401
    body = {"text": f"<hook_data>{MARK}v1 bread</hook_data>", "is_private": True}
    event_id = f"hook:{PLACE.replace(' ', '-')}:{MARK}"
    return accepted(number, message_id="", event_id=event_id, body=body, **changes)


def test_an_event_of_a_hook_is_answered_once() -> None:
    request = made(RequestKind.HOOK)
    found = judged(request, [event()], [delivered()], [answer(1)])
    assert (kinds(found), [one.outcome for one in found.histories]) == ([], [Outcome.ANSWERED])
    twice = judged(
        request, [event(), event(2)], [delivered(), delivered(2)], [answer(1), answer(2)]
    )
    assert set(kinds(twice)) == {ViolationKind.DOUBLED}
    renamed = [event(), replace(event(2), event_id="hook:other")]
    found = judged(request, renamed, [delivered(), delivered(2)], [answer(1), answer(2)])
    assert ViolationKind.DOUBLED in kinds(found)
    assert kinds(judged(request)) == [ViolationKind.SILENT]
    never = judged(made(RequestKind.HOOK, answers=Counter(), refusal="503"))
    assert kinds(never) == [ViolationKind.STUCK, ViolationKind.STUCK]
    again = made(RequestKind.HOOK, answers=Counter(accepted=2))
    assert kinds(judged(again, [event()], [delivered()], [answer(1)])) == [ViolationKind.DOUBLED]


def notice(number: int = 1) -> ShownMessage:
    return ShownMessage(id=str(200 + number), text=f"Notice {MARK}v1 bread")


@pytest.mark.parametrize("kind", [RequestKind.SEND, RequestKind.BROADCAST])
def test_a_message_of_a_client_is_shown_once(kind: RequestKind) -> None:
    rest = f"{CHANNEL}::{CHAT}:0"
    key = f"notification::{MARK}:{rest}"
    if kind is RequestKind.SEND:
        key = f"notification:{CHANNEL}:{MARK}:0"
    row = delivered(key=key)
    request = made(kind, reach={CHANNEL: 1})
    found = judged(request, [], [row], [notice()])
    assert (kinds(found), [one.outcome for one in found.histories]) == ([], [Outcome.SENT])
    assert kinds(judged(request)) == [ViolationKind.SILENT]
    assert kinds(judged(request, [], [row])) == [ViolationKind.SILENT]
    twice = judged(request, [], [row], [notice(), notice(2)])
    assert set(kinds(twice)) == {ViolationKind.DOUBLED}
    unknown = judged(request, [], [], [notice()])
    assert ViolationKind.UNEXPECTED in kinds(unknown)
    doubtful = judged(request, [], [replace(row, uncertain_attempts=1)], [notice(), notice(2)])
    assert [one.outcome for one in doubtful.histories] == [Outcome.REPEATED]
    lost = judged(request, [], [replace(row, state="uncertain")])
    assert (kinds(lost), [one.outcome for one in lost.histories]) == ([], [Outcome.UNCERTAIN])
    if kind is RequestKind.BROADCAST:
        left_out = made(kind, reach={CHANNEL: 0}, known=[PLACE])
        assert kinds(judged(left_out)) == [ViolationKind.SILENT]
    if kind is RequestKind.SEND:
        assert kinds(judged(replace(request, state="failed"), [], [row], [notice()])) == [
            ViolationKind.STUCK
        ]
