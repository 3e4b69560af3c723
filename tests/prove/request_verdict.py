"""The verdict on the requests of clients, next to the verdict on the messages of people. Pure.

Accepted events of hooks and messages of schedules are judged like messages of people. A notification must be shown
once. Each due time of a schedule must have its message or be reported as missed.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Final

from tests.people.chat_user import Arrival, ShownMessage
from tests.prove.clients import PERIOD_S, MadeRequest, hook_name
from tests.prove.journal import InboxRecord, Journal, OccurrenceRecord, OutboxRecord, ScheduleRecord
from tests.prove.model import own_words
from tests.prove.plan import MessageKind, ModelBehavior, RequestKind
from tests.prove.verdict import (
    Evidence,
    MessageHistory,
    Outcome,
    SentMessage,
    Verdict,
    Violation,
    ViolationKind,
    judge,
)

LATE_S: Final = 60.0
"""How late a due time may be missed, seconds."""

CLOCK_S: Final = 1.0
"""Tolerance for comparing times, seconds."""

_REFUSED: Final = frozenset({"queue_full", "rate_limited"})
"""Details of occurrences whose message was refused, as `/schedule` shows them."""

_STATES: Final = frozenset({"delivered", "uncertain"})


def judge_all(evidence: Evidence, requests: Sequence[MadeRequest]) -> Verdict:
    """Judge every message and every request."""
    schedules = {schedule.id: schedule for schedule in evidence.journal.schedules}
    places = {made.planned.id: made.place.name for made in requests if made.place is not None}
    behaviors = {made.planned.id: made.planned.behavior for made in requests}
    hooks = [_event_of(made) for made in requests if made.planned.kind is RequestKind.HOOK]
    due = [
        _message_of(schedule, one, places.get(schedule.name, ""), behaviors)
        for schedule in schedules.values()
        for one in schedule.occurrences
        if one.inbox_id is not None
    ]
    found = judge(replace(evidence, messages=[*evidence.messages, *hooks, *due]))
    histories, violations = list(found.histories), list(found.violations)
    for made in requests:
        violations += _judge_answers(made)
        if made.planned.kind is RequestKind.SEND:
            assert made.place is not None
            chat = made.place.traits.channel, made.place.user.chat
            histories.append(_judge_notification(evidence, made, *chat))
            violations += histories[-1].violations
        elif made.planned.kind is RequestKind.BROADCAST:
            broadcast = list(_judge_broadcast(evidence, made))
            histories += broadcast
            violations += [one for history in broadcast for one in history.violations]
            violations += _judge_reach(evidence, made, broadcast)
        elif made.planned.kind.is_schedule:
            violations += _judge_schedules(evidence.journal, made)
    return Verdict(histories=histories, violations=violations)


def _judge_answers(made: MadeRequest) -> Iterator[Violation]:
    """Check that a request was accepted, and accepted as new at most once."""
    if not made.is_accepted:
        text = f"{made.planned.kind} was never accepted: {made.refusal}"
        yield _violation(ViolationKind.STUCK, made.planned.id, text)
    if made.answers["accepted"] > 1:
        text = f"{made.planned.kind} was accepted {made.answers['accepted']} times"
        yield _violation(ViolationKind.DOUBLED, made.planned.id, text)
    if made.planned.kind is RequestKind.SEND and made.state not in _STATES:
        text = f"the API says that it is {made.state or 'unknown'}"
        yield _violation(ViolationKind.STUCK, made.planned.id, text)


def _event_of(made: MadeRequest) -> SentMessage:
    assert made.place is not None
    message = made.planned.message
    return SentMessage(
        id=message.id,
        place=message.place,
        channel=made.place.traits.channel,
        chat=made.place.user.chat,
        kind=message.kind,
        behavior=message.behavior,
        versions=message.versions,
        message_id=f"hook:{hook_name(made.place)}:{message.id}",
        sent_at=made.at,
        arrival=Arrival.CONFIRMED if made.is_accepted else Arrival.WAITING,
    )


def _event_id(schedule: ScheduleRecord, due_at: float) -> str:
    return f"schedule:{schedule.id}:{due_at:.3f}"


def _message_of(
    schedule: ScheduleRecord,
    occurrence: OccurrenceRecord,
    place: str,
    behaviors: Mapping[str, ModelBehavior],
) -> SentMessage:
    return SentMessage(
        id=schedule.name,
        place=place,
        channel=schedule.channel,
        chat=schedule.chat,
        kind=MessageKind.SCHEDULE,
        behavior=behaviors.get(schedule.name, ModelBehavior.ANSWER),
        versions=(schedule.name,),
        message_id=_event_id(schedule, occurrence.due_at),
        sent_at=occurrence.created_at,
        arrival=Arrival.CONFIRMED,
    )


def _judge_schedules(journal: Journal, made: MadeRequest) -> Iterator[Violation]:
    """Check each schedule that a request set up. There may be two if the answer to the first attempt was lost."""
    mark = made.planned.id
    mine = [one for one in journal.schedules if one.name == mark]
    if made.is_accepted and not mine:
        yield _violation(ViolationKind.SILENT, mark, "the schedule is not in the database")
    expected: set[str] = set()
    for schedule in mine:
        sent = [one for one in schedule.occurrences if one.inbox_id is not None]
        expected |= {_event_id(schedule, one.due_at) for one in sent}
        for kind, text in _judge_times(schedule):
            yield _violation(kind, mark, f"schedule {schedule.id}: {text}")
    found = [row.event_id for row in journal.inbox if _is_of(row, mark)]
    for event_id in sorted(set(found)):
        if event_id not in expected:
            text = f"{event_id} was sent, and is no occurrence"
            yield _violation(ViolationKind.DOUBLED, mark, text)
        elif found.count(event_id) > 1:
            text = f"{event_id} was sent {found.count(event_id)} times"
            yield _violation(ViolationKind.DOUBLED, mark, text)


def _is_of(row: InboxRecord, mark: str) -> bool:
    """Return whether a schedule sent a message. A repetition after a button press does not count."""
    words = own_words(str(row.body.get("text")))
    return row.event_id.partition(":")[0] not in {"press", "rerun"} and f"{mark}v1" in words


def _judge_times(schedule: ScheduleRecord) -> Iterator[tuple[ViolationKind, str]]:
    """Check that each due time has one occurrence or is reported as missed, and that there are no other occurrences."""
    if schedule.is_enabled or schedule.paused_because != "ended":
        yield ViolationKind.STUCK, f"has not ended: {schedule.paused_because or 'enabled'}"
    for one in schedule.occurrences:
        if _is_due(schedule, one.due_at):
            problem = _problem_of(schedule, one)
        else:
            problem = (ViolationKind.UNEXPECTED, "ran and was not due")
        if problem is not None:
            yield problem[0], f"{one.due_at:.3f}: {problem[1]}"
    covered = [
        (one.due_at - CLOCK_S, one.due_at + PERIOD_S * one.missed + CLOCK_S)
        for one in schedule.occurrences
    ]
    for due_at in _due_times(schedule):
        if not any(first <= due_at <= last for first, last in covered):
            yield ViolationKind.SILENT, f"{due_at:.3f}: was due, and did not run"


def _problem_of(
    schedule: ScheduleRecord, one: OccurrenceRecord
) -> tuple[ViolationKind, str] | None:
    late_s = one.created_at - one.due_at
    is_missed = schedule.missed == "skip" and late_s > LATE_S
    problems = {
        f"is {one.outcome} without a message": one.inbox_id is None
        and one.outcome in {"queued", "answered", "silent"},
        f"was missed, {late_s:.1f} s late": one.outcome == "missed" and not is_missed,
        f"failed: {one.detail}": one.inbox_id is None
        and one.outcome == "failed"
        and one.detail not in _REFUSED,
        f"is {one.outcome} without a reason": one.outcome in {"skipped", "unchanged"},
    }
    if late_s < -CLOCK_S:
        return ViolationKind.UNEXPECTED, f"ran {-late_s:.1f} s before it was due"
    found = [text for text, holds in problems.items() if holds]
    return (ViolationKind.SILENT, found[0]) if found else None


def _is_due(schedule: ScheduleRecord, at: float) -> bool:
    """Return whether a schedule is due at a time, even if the clock was set back to before its creation."""
    if schedule.end_at is not None and at > schedule.end_at:
        return False
    return any(abs(due_at - at) < CLOCK_S for due_at in _due_times(schedule, around=at))


def _due_times(schedule: ScheduleRecord, *, around: float | None = None) -> Iterable[float]:
    """Return a schedule's due times: one, or every minute from beginning to end, or those around a given time."""
    if schedule.kind == RequestKind.ONCE:
        return (datetime.fromisoformat(schedule.expression).timestamp(),)
    origin = 0.0 if schedule.kind == RequestKind.CRON else schedule.since
    after = schedule.since if around is None else around - PERIOD_S
    until = (schedule.end_at or after) if around is None else around + PERIOD_S
    number = max(1, int((after - origin) // PERIOD_S) + 1)
    times = []
    while (at := origin + number * PERIOD_S) <= until:
        times.append(at)
        number += 1
    return times


def _judge_broadcast(evidence: Evidence, made: MadeRequest) -> Iterator[MessageHistory]:
    """Judge a broadcast in each chat that got it."""
    seen = {
        place
        for place, shown in evidence.shown.items()
        if any(_is_notice(message, made) for message in shown)
    }
    chats = {evidence.chats[place] for place in seen}
    chats |= {(row.channel, row.chat) for row in _rows_of(evidence.journal, made, "")}
    for channel, chat in sorted(chats):
        yield _judge_notification(evidence, made, channel, chat)


def _judge_reach(
    evidence: Evidence, made: MadeRequest, histories: Sequence[MessageHistory]
) -> Iterator[Violation]:
    """Check that the announced number of chats of each channel got it, including those of people who had written."""
    found = [(one.sent.channel, one.sent.chat) for one in histories if one.outbox]
    counts = Counter(channel for channel, _ in found)
    for channel in sorted({*made.reach, *counts}):
        if counts[channel] != made.reach.get(channel, 0):
            text = f"{counts[channel]} chats of {channel} have it, not {made.reach.get(channel, 0)}"
            yield _violation(ViolationKind.SILENT, made.planned.id, text)
    for place in sorted(made.known):
        channel, chat = evidence.chats[place]
        if channel in made.reach and (channel, chat) not in found:
            yield _violation(ViolationKind.SILENT, made.planned.id, f"{place} was left out")


def _judge_notification(
    evidence: Evidence, made: MadeRequest, channel: str, chat: str
) -> MessageHistory:
    """Find a notification in a chat, with its messages as people there saw them."""
    rows = [row for row in _rows_of(evidence.journal, made, channel) if row.chat == chat]
    places = [name for name, of in evidence.chats.items() if of == (channel, chat)]
    shown = {
        message.id: message
        for place in places
        for message in evidence.shown.get(place, ())
        if _is_notice(message, made) or message.file == f"{made.planned.id}.txt"
    }
    sent = SentMessage(
        id=made.planned.id,
        place=places[0] if places else chat,
        channel=channel,
        chat=chat,
        kind=MessageKind.NOTIFICATION,
        behavior=made.planned.behavior,
        versions=(made.planned.text,),
        message_id="",
        sent_at=made.at,
        arrival=Arrival.CONFIRMED if made.is_accepted else Arrival.WAITING,
    )
    history = MessageHistory(sent=sent, marks={sent.id}, outbox=rows, shown=list(shown.values()))
    history.outcome = _outcome_of(history, made)
    return history


def _outcome_of(history: MessageHistory, made: MadeRequest) -> Outcome | None:
    """Return the outcome of a notification in a chat. Its text and its file must each be shown once."""
    texts = [row for row in history.outbox if row.body["kind"] == "text"]
    files = [row for row in history.outbox if row.body["kind"] == "file"]
    outcomes = []
    wanted = [(texts, [one for one in history.shown if not one.file])]
    if made.planned.has_file:
        wanted.append((files, [one for one in history.shown if one.file]))
    for rows, shown in wanted:
        doubt = sum(row.uncertain_attempts + (row.state == "uncertain") for row in rows)
        if not rows:
            text = f"shown {len(shown)} times, and not in the outbox"
            kind = ViolationKind.UNEXPECTED if shown else ViolationKind.SILENT
            history.violations.append(_violation(kind, history.sent.id, text))
        elif not shown and rows[0].state != "uncertain":
            text = f"{rows[0].key} is {rows[0].state}, and not shown"
            history.violations.append(_violation(ViolationKind.SILENT, history.sent.id, text))
        elif len(rows) > 1 or len(shown) > 1 + doubt:
            text = f"shown {len(shown)} times by {len(rows)} rows, {doubt} attempts are uncertain"
            history.violations.append(_violation(ViolationKind.DOUBLED, history.sent.id, text))
        elif len(shown) > 1:
            outcomes.append(Outcome.REPEATED)
        else:
            outcomes.append(Outcome.SENT if shown else Outcome.UNCERTAIN)
    if history.violations:
        return None
    return next((one for one in outcomes if one is not Outcome.SENT), Outcome.SENT)


def _rows_of(journal: Journal, made: MadeRequest, channel: str) -> list[OutboxRecord]:
    """Return the rows of a message to one chat in a channel, or of a broadcast in a channel ("" = in all)."""
    if made.planned.kind is RequestKind.BROADCAST:
        key = f"notification::{made.planned.id}:{channel + ':' if channel else ''}"
    else:
        key = f"notification:{channel}:{made.planned.id}:"
    return [row for row in journal.outbox if row.key.startswith(key)]


def _is_notice(message: ShownMessage, made: MadeRequest) -> bool:
    return message.text.startswith(f"Notice {made.planned.id}v1")


def _violation(kind: ViolationKind, mark: str, text: str) -> Violation:
    return Violation(kind=kind, text=text, message=mark)
