"""The content of the service's journal, read with plain SQL, and checks of its integrity."""

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

Row = Mapping[str, Any]
Query = Callable[[str], Iterable[Row]]
"""Executes a statement and returns its rows."""

_INBOX = """
SELECT inbox.*, channel, chat, topic, run.status AS run_status, run.metadata AS run_metadata
FROM inbox JOIN conversation ON conversation.id = inbox.conversation_id
LEFT JOIN run ON run.run_id = inbox.run_id
ORDER BY inbox.conversation_id, inbox.seq
"""
_OUTBOX = """
SELECT outbox.*, channel, chat, topic
FROM outbox JOIN conversation ON conversation.id = outbox.conversation_id ORDER BY outbox.id
"""
_OPEN = """
SELECT (SELECT count(*) FROM inbox WHERE state IN ('new', 'running'))
    + (SELECT count(*) FROM outbox WHERE state IN ('pending', 'sending'))
    + (SELECT count(*) FROM notification_chat)
    + (SELECT count(*) FROM schedule WHERE channel <> '' AND is_enabled = 1) AS rows
"""
_WRONG = {
    # A cron that is due every minute. An occurrence also stands for the missed times after it.
    "due times of schedules without an occurrence after": """
        SELECT one.due_at FROM schedule_occurrence AS one
        WHERE EXISTS (SELECT 1 FROM schedule_occurrence AS later
            WHERE later.schedule_id = one.schedule_id AND later.due_at > one.due_at)
        AND NOT EXISTS (SELECT 1 FROM schedule_occurrence AS following
            WHERE following.schedule_id = one.schedule_id AND following.due_at > one.due_at
            AND following.due_at <= one.due_at + 60 * (one.missed + 1))
    """,
    "runs of schedules without an occurrence": """
        SELECT run.run_id FROM run WHERE run.start_key LIKE 'cron:%' AND run.status = 'success'
        AND NOT EXISTS (SELECT 1 FROM schedule_occurrence AS one WHERE one.run_id = run.run_id)
    """,
    "runs that are neither finished nor of a message": """
        SELECT run_id FROM run WHERE status IN ('pending', 'running') AND coalesce(start_key, '') NOT LIKE 'cron:%'
        AND run_id NOT IN (SELECT run_id FROM inbox WHERE run_id IS NOT NULL AND state IN ('new', 'running'))
    """,
    "threads that are busy without a run": """
        SELECT thread_id FROM thread WHERE status = 'busy' AND thread_id NOT IN
            (SELECT thread_id FROM run WHERE status IN ('pending', 'running'))
    """,
    "messages whose position is not behind that of the one accepted before": """
        SELECT id FROM (
            SELECT id, seq, lag(seq) OVER (PARTITION BY conversation_id ORDER BY id) AS before FROM inbox) AS accepted
        WHERE seq <= before
    """,
}
"""Contradictions: descriptions, each with a query that must find nothing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class InboxRecord:
    """An accepted message in the journal. `body` is its decoded JSON.

    Attributes:
        run_version: ID in the thread of the version that the run answers; None = no run.
    """

    id: int
    conversation_id: int
    seq: int
    channel: str
    chat: str
    topic: str
    event_id: str
    message_id: str
    kind: str
    state: str
    starts: int
    thread_id: str | None
    run_id: str | None
    run_status: str | None
    run_version: str | None
    has_question: bool
    received_at: float
    body: dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class OutboxRecord:
    """An outgoing message in the journal. `body` is its decoded JSON."""

    id: int
    key: str
    conversation_id: int
    channel: str
    chat: str
    topic: str
    state: str
    attempts: int
    uncertain_attempts: int
    platform_id: str
    error: str
    created_at: float
    updated_at: float
    body: dict[str, Any]

    @property
    def text(self) -> str:
        """Its text; "" = none."""
        return str(self.body.get("markdown", ""))

    @property
    def replies_to(self) -> str:
        """The message that it answers; "" = none."""
        return str(self.body.get("reply_target", {}).get("reply_to", ""))

    @property
    def is_content(self) -> bool:
        """Whether people see it: a text or file that no later row replaces."""
        return self.body["kind"] in ("text", "file") and not self.body.get("provisional")


@dataclass(frozen=True, slots=True, kw_only=True)
class OccurrenceRecord:
    """The journal's data about a due time. Times are Unix seconds by the service's clock."""

    due_at: float
    outcome: str
    detail: str
    missed: int
    inbox_id: int | None
    created_at: float


@dataclass(frozen=True, slots=True, kw_only=True)
class ScheduleRecord:
    """A schedule of a chat in the journal, with its occurrences by due time."""

    id: str
    channel: str
    chat: str
    name: str
    kind: str
    expression: str
    since: float
    end_at: float | None
    missed: str
    is_enabled: bool
    paused_because: str
    occurrences: tuple[OccurrenceRecord, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Journal:
    """The rows, and the problems of the databases.

    `occurrences`: number of due times of all schedules. `schedules`: those of chats.
    """

    inbox: tuple[InboxRecord, ...]
    outbox: tuple[OutboxRecord, ...]
    problems: tuple[str, ...] = ()
    occurrences: int = 0
    schedules: tuple[ScheduleRecord, ...] = ()


_OCCURRENCES = "SELECT * FROM schedule_occurrence ORDER BY due_at"
_SCHEDULES = "SELECT * FROM schedule WHERE channel <> '' ORDER BY created_at, id"


def read_journal(query: Query) -> Journal:
    """Read the journal, and find rows that contradict each other."""
    problems = []
    for description, statement in _WRONG.items():
        found = [str(value) for row in query(statement) for value in dict(row).values()]
        if found:
            problems.append(f"{len(found)} {description}: {', '.join(found[:5])}")
    occurrences = list(query(_OCCURRENCES))
    return Journal(
        inbox=tuple(_inbox_record(row) for row in query(_INBOX)),
        outbox=tuple(_outbox_record(row) for row in query(_OUTBOX)),
        problems=tuple(problems),
        occurrences=len(occurrences),
        schedules=tuple(_schedule_record(row, occurrences) for row in query(_SCHEDULES)),
    )


def count_open_rows(query: Query) -> int:
    """Return the number of messages that wait to be answered or sent, and of schedules of chats that have not ended."""
    return sum(int(row["rows"]) for row in query(_OPEN))


def _inbox_record(row: Row) -> InboxRecord:
    names = (
        "id", "conversation_id", "seq", "channel", "chat", "topic", "event_id", "message_id", "kind", "state",
        "starts", "thread_id", "run_id", "run_status", "received_at",
    )  # fmt: skip
    plain: dict[str, Any] = {name: row[name] for name in names}
    return InboxRecord(
        **plain,
        run_version=json.loads(row["run_metadata"] or "{}").get("message_id"),
        has_question=row["question"] is not None,
        body=json.loads(row["body"]),
    )


def _outbox_record(row: Row) -> OutboxRecord:
    names = (
        "id", "key", "conversation_id", "channel", "chat", "topic", "state", "attempts", "uncertain_attempts",
        "created_at", "updated_at",
    )  # fmt: skip
    plain: dict[str, Any] = {name: row[name] for name in names}
    return OutboxRecord(
        **plain,
        platform_id=str(row["platform_id"] or "").partition(" ")[0],
        error=row["error"] or "",
        body=json.loads(row["body"]),
    )


def _schedule_record(row: Row, occurrences: Iterable[Row]) -> ScheduleRecord:
    names = (
        "id", "channel", "chat", "name", "kind", "expression", "since", "end_at", "missed", "paused_because",
    )  # fmt: skip
    own = ("due_at", "outcome", "detail", "missed", "inbox_id", "created_at")
    plain: dict[str, Any] = {name: row[name] for name in names}
    return ScheduleRecord(
        **plain,
        is_enabled=bool(row["is_enabled"]),
        occurrences=tuple(
            OccurrenceRecord(**{name: one[name] for name in own})
            for one in occurrences
            if one["schedule_id"] == row["id"]
        ),
    )
