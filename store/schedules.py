"""Schedules, and the outcome of each time at which a schedule was due."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from typing import Any, Literal

import orjson

from store.conversations import ConversationKey, key_params
from store.database import Database, Params, Row, Transaction, Value
from store.errors import RowConflict, RowNotFound
from store.outbox import NewOutboxRow, insert_outbox_rows
from store.rows import from_row
from store.threads import encode

ScheduleKind = Literal["once", "every", "cron"]
MissedPolicy = Literal["once", "skip"]
OverlapPolicy = Literal["queue", "skip", "replace"]
OccurrenceOutcome = Literal[
    "queued", "answered", "silent", "unchanged", "skipped", "missed", "failed"
]

MAX_SCHEDULES = 200_000
"""Maximum number of schedules."""

CHAT, ENDED, FAILURES, OWNER, PERSON = "chat", "ended", "failures", "owner", "person"
"""Values of `Schedule.paused_because`: the bot is no longer in its chat, it is not due anymore, it failed several times
in a row, its owner left the chat or may no longer use the bot, or someone paused it."""

_COLUMNS = (
    *("id", "channel", "workspace", "chat", "topic", "thread_id", "assistant_id", "name", "kind"),
    *("expression", "timezone", "since", "end_at", "active_hours", "missed", "overlap"),
    *("check_command", "check_digest", "on_run_completed", "body", "metadata", "is_enabled"),
    *("paused_because", "next_at", "failures", "fired_at", "created_at", "updated_at"),
    "owner",
)
_INSERT = f"""
INSERT INTO schedule ({", ".join(_COLUMNS)}) VALUES ({", ".join(f":{one}" for one in _COLUMNS)})
"""  # noqa: S608 - literals only
_UPDATE = f"""
UPDATE schedule SET {", ".join(f"{one} = :{one}" for one in _COLUMNS[1:])} WHERE id = :id
"""  # noqa: S608 - literals only
_COUNT = "SELECT count(*) AS rows FROM schedule"
_FIND = "SELECT * FROM schedule WHERE id = :id"
_LOCK = f"{_FIND} /* FOR UPDATE */"
_DELETE = "DELETE FROM schedule WHERE id = :id RETURNING id"
_OF_CHAT = """
SELECT * FROM schedule WHERE channel = :channel AND workspace = :workspace AND chat = :chat
AND (next_at IS NOT NULL OR :ended = 1) ORDER BY created_at, id
"""
_OF_OWNER = """
SELECT * FROM schedule WHERE channel = :channel AND workspace = :workspace AND owner = :owner
AND next_at IS NOT NULL ORDER BY created_at, id LIMIT :limit
"""
_OF_CHATS = """
SELECT * FROM schedule WHERE channel <> '' AND (:channel = '' OR channel = :channel) AND (:chat = '' OR chat = :chat)
ORDER BY created_at, id LIMIT :limit OFFSET :offset
"""
_DUE = """
SELECT * FROM schedule WHERE is_enabled = 1 AND next_at IS NOT NULL AND next_at <= :now
AND channel IN (SELECT value FROM json_each(:channels)) ORDER BY next_at, id LIMIT :limit
"""
_COUNT_DUE = """
SELECT count(*) AS rows FROM schedule WHERE is_enabled = 1 AND next_at IS NOT NULL AND next_at <= :now
AND channel IN (SELECT value FROM json_each(:channels))
"""
_NEXT = """
SELECT next_at AS at FROM schedule WHERE is_enabled = 1 AND next_at IS NOT NULL AND next_at > :now
ORDER BY next_at LIMIT 1
"""
_FIRED_AFTER = "SELECT * FROM schedule WHERE is_enabled = 1 AND fired_at > :now"
_REALIGN = """
UPDATE schedule SET next_at = :next_at, fired_at = :now WHERE id = :id AND fired_at > :now
"""
_ADVANCE = """
UPDATE schedule SET next_at = :next_at, fired_at = :now, check_digest = :check_digest,
    is_enabled = CASE WHEN CAST(:next_at AS DOUBLE PRECISION) IS NULL THEN 0 ELSE is_enabled END,
    paused_because = CASE WHEN CAST(:next_at AS DOUBLE PRECISION) IS NULL THEN 'ended' ELSE paused_because END,
    updated_at = CASE WHEN CAST(:next_at AS DOUBLE PRECISION) IS NULL THEN :now ELSE updated_at END
WHERE id = :id AND next_at = :due_at
"""
_NOTE = """
INSERT INTO schedule_occurrence
    (schedule_id, due_at, outcome, detail, missed, inbox_id, run_id, thread_id, created_at)
SELECT id, :due_at, :outcome, :detail, :missed, :inbox_id, :run_id, :thread_id, :now
FROM schedule WHERE id = :id
ON CONFLICT (schedule_id, due_at) DO NOTHING
RETURNING due_at
"""
_WAS_RECEIVED = """
SELECT 1 FROM received_id WHERE channel = :channel AND workspace = :workspace AND kind = 'event' AND chat = ''
AND external_id = :event_id
"""
_MESSAGE = """
SELECT inbox.id FROM inbox JOIN conversation ON conversation.id = inbox.conversation_id
WHERE channel = :channel AND workspace = :workspace AND chat = :chat AND topic = :topic
AND inbox.event_id = :event_id ORDER BY inbox.id DESC LIMIT 1
"""
_FIND_OCCURRENCE = "SELECT * FROM schedule_occurrence WHERE schedule_id = :id AND due_at = :due_at"
_FIND_SENT = "SELECT * FROM schedule_occurrence WHERE schedule_id = :id AND inbox_id = :inbox_id"
_OCCURRENCES = """
SELECT * FROM schedule_occurrence WHERE schedule_id = :id ORDER BY due_at DESC LIMIT :limit
"""
_LAST = """
SELECT * FROM schedule_occurrence AS one WHERE schedule_id IN (SELECT value FROM json_each(:ids))
AND due_at = (SELECT max(due_at) FROM schedule_occurrence WHERE schedule_id = one.schedule_id)
"""
_QUEUED = """
SELECT occurrence.*, inbox.outcome AS message_outcome, inbox.problem AS message_problem, run.status AS run_status
FROM schedule_occurrence AS occurrence
LEFT JOIN inbox ON inbox.id = occurrence.inbox_id LEFT JOIN run ON run.run_id = occurrence.run_id
WHERE occurrence.outcome = 'queued'
"""
_HAVE_ENDED = f"""{_QUEUED}
AND coalesce(inbox.state, '') NOT IN ('new', 'running') AND coalesce(run.status, '') NOT IN ('pending', 'running')
AND (:id = '' OR schedule_id = :id) ORDER BY occurrence.created_at LIMIT :limit
"""
_OPEN = f"{_QUEUED} AND schedule_id = :id ORDER BY due_at DESC LIMIT 1"
_SETTLE = """
UPDATE schedule_occurrence SET outcome = :outcome, detail = :detail
WHERE schedule_id = :id AND due_at = :due_at AND outcome = 'queued' RETURNING due_at
"""
_COUNT_FAILURE = """
UPDATE schedule SET failures = CASE WHEN :outcome = 'failed' THEN failures + 1 ELSE 0 END WHERE id = :id
RETURNING *
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Schedule:
    """A row of the schedule table; see the comments of the table. Times are Unix seconds.

    Attributes:
        key: The conversation that gets its messages; None = it starts API runs.
        body: The encoded message or the run to start. Opaque here.
    """

    id: str
    key: ConversationKey | None = None
    thread_id: str | None = None
    assistant_id: str = ""
    name: str
    kind: ScheduleKind
    expression: str
    timezone: str
    since: float
    end_at: float | None = None
    active_hours: str = ""
    missed: MissedPolicy = "once"
    overlap: OverlapPolicy = "queue"
    check_command: str = ""
    check_digest: str = ""
    on_run_completed: str | None = None
    body: str
    metadata: Mapping[str, Any] = field(default_factory=dict)
    is_enabled: bool = True
    paused_because: str = ""
    next_at: float | None
    failures: int = 0
    fired_at: float = 0.0
    created_at: float
    updated_at: float
    owner: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Occurrence:
    """The outcome of one time at which a schedule was due.

    Attributes:
        outcome: `queued`: its message or run has not ended yet. `unchanged`: the check's output was the same.
            `skipped`: the previous one had not ended. `missed`: the service was down, and the schedule skips missed
                times.
        missed: Number of further times that this one stands for, because the service was down.
    """

    schedule_id: str
    due_at: float
    outcome: OccurrenceOutcome
    detail: str = ""
    missed: int = 0
    inbox_id: int | None = None
    run_id: str | None = None
    thread_id: str | None = None
    created_at: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class EndedOccurrence:
    """A queued occurrence whose message or run has ended.

    Attributes:
        message_outcome, message_problem: See `InboxRow`.
        run_status: The status of its run; None = the row does not exist (anymore).
    """

    occurrence: Occurrence
    message_outcome: str | None
    message_problem: str | None
    run_status: str | None


class ScheduleStore:
    """The tables schedule and schedule_occurrence."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def create(self, schedule: Schedule, notices: Sequence[NewOutboxRow] = ()) -> None:
        """Add a schedule, and the messages that announce it. Raises RowConflict if there are too many."""

        def work(tx: Transaction) -> None:
            if tx.run(_COUNT)[0]["rows"] >= MAX_SCHEDULES:
                raise RowConflict(f"There are {MAX_SCHEDULES} schedules already.")
            tx.run(_INSERT, _params(schedule))
            insert_outbox_rows(tx, notices, now=schedule.created_at)

        await self._database.transaction(work)

    async def find(self, schedule_id: str) -> Schedule | None:
        """Return a schedule."""
        rows = await self._database.read(_FIND, {"id": schedule_id})
        return _schedule(rows[0]) if rows else None

    async def list_chat(self, chat: ConversationKey, *, ended: bool = False) -> list[Schedule]:
        """Return the schedules of a chat, in all its topics, oldest first. `ended`: include ended ones."""
        params: Params = {**key_params(chat), "ended": int(ended)}
        return [_schedule(row) for row in await self._database.read(_OF_CHAT, params)]

    async def list_owned(
        self, channel: str, workspace: str, *, owner: str, limit: int
    ) -> list[Schedule]:
        """Return the schedules of a person in any chat of a workspace that are due again, oldest first."""
        params: Params = {
            "channel": channel,
            "workspace": workspace,
            "owner": owner,
            "limit": limit,
        }
        return [_schedule(row) for row in await self._database.read(_OF_OWNER, params)]

    async def list_chats(
        self, *, channel: str, chat: str, limit: int, offset: int
    ) -> list[Schedule]:
        """Return schedules of chats, including ended ones, oldest first; "" = any channel or chat."""
        params: Params = {"channel": channel, "chat": chat, "limit": limit, "offset": offset}
        return [_schedule(row) for row in await self._database.read(_OF_CHATS, params)]

    async def list_runs(
        self,
        *,
        assistant_id: str | None,
        thread_id: str | None,
        is_enabled: bool | None,
        sort_by: str,
        is_ascending: bool,
    ) -> list[Schedule]:
        """Return API schedules; None = any. Sorted by the column `sort_by`, then by ID."""
        if sort_by not in _COLUMNS:
            raise ValueError(f"There is no column {sort_by!r}.")
        given: dict[str, Value] = {
            "assistant_id": assistant_id,
            "thread_id": thread_id,
            "is_enabled": None if is_enabled is None else int(is_enabled),
        }
        wanted = {name: value for name, value in given.items() if value is not None}
        where = "".join(f" AND {name} = :{name}" for name in wanted)
        order = "ASC" if is_ascending else "DESC"
        sql = f"SELECT * FROM schedule WHERE channel = ''{where} ORDER BY {sort_by} {order}, id {order}"  # noqa: S608 - checked columns
        return [_schedule(row) for row in await self._database.read(sql, wanted)]

    async def change(self, schedule_id: str, change: Callable[[Schedule], Schedule]) -> Schedule:
        """Replace a schedule with the result of `change`, in one transaction. `change` must not block.

        Raises RowNotFound.
        """

        def work(tx: Transaction) -> Schedule:
            rows = tx.run(_LOCK, {"id": schedule_id})
            if not rows:
                raise missing_schedule(schedule_id)
            changed = change(_schedule(rows[0]))
            tx.run(_UPDATE, _params(changed))
            return changed

        return await self._database.transaction(work)

    async def delete(self, schedule_id: str) -> bool:
        """Delete a schedule with its occurrences. False if it does not exist."""
        return bool(await self._database.execute(_DELETE, {"id": schedule_id}))

    async def list_due(self, channels: Sequence[str], *, now: float, limit: int) -> list[Schedule]:
        """Return schedules of these channels ("" = the API) that are due, longest overdue first."""
        params: Params = {"channels": encode(channels), "now": now, "limit": limit}
        return [_schedule(row) for row in await self._database.read(_DUE, params)]

    async def count_due(self, channels: Sequence[str], *, now: float) -> int:
        """Return the number of schedules of these channels that are due."""
        params: Params = {"channels": encode(channels), "now": now}
        return int((await self._database.read(_COUNT_DUE, params))[0]["rows"])

    async def find_next_time(self, now: float) -> float | None:
        """Return when the next schedule is due after now; None = never."""
        rows = await self._database.read(_NEXT, {"now": now})
        return float(rows[0]["at"]) if rows else None

    async def list_fired_after(self, now: float) -> list[Schedule]:
        """Return schedules that were last due at a time after now, because the clock was set back."""
        return [_schedule(row) for row in await self._database.read(_FIRED_AFTER, {"now": now})]

    async def realign(self, times: Mapping[str, float], *, now: float) -> None:
        """Set the next time of these schedules, by ID."""
        for schedule_id, at in times.items():
            await self._database.execute(_REALIGN, {"id": schedule_id, "next_at": at, "now": now})

    async def was_sent(self, schedule: Schedule, event_id: str) -> bool:
        """Return whether the message of an occurrence was received before."""
        if schedule.key is None:
            return False
        params: Params = {**key_params(schedule.key), "event_id": event_id}
        return bool(await self._database.read(_WAS_RECEIVED, params))

    async def find_message(self, key: ConversationKey, event_id: str) -> int | None:
        """Return the inbox row of an event."""
        rows = await self._database.read(_MESSAGE, {**key_params(key), "event_id": event_id})
        return int(rows[0]["id"]) if rows else None

    async def note(
        self,
        schedule: Schedule,
        occurrence: Occurrence,
        *,
        next_at: float | None,
        now: float,
        pause_because: str = "",
        max_failures: int,
        notices: Callable[[Schedule, str], Sequence[NewOutboxRow]],
    ) -> bool:
        """Store the outcome of a due time once, and set the next due time, in one transaction.

        If the schedule was changed meanwhile, its next time stays as it is.

        Args:
            schedule: The schedule as it was when due; its `check_digest` is stored.
            occurrence: The outcome.
            next_at: The next time; None = it has ended.
            now: Unix seconds.
            pause_because: Pause it for this reason; "" = only after `max_failures` failures in a row.
            max_failures: See there.
            notices: Returns the messages that announce the pause. Must not block.

        Returns:
            Whether this call paused it.
        """
        params: Params = {
            **asdict(occurrence),
            "id": schedule.id,
            "next_at": next_at,
            "check_digest": schedule.check_digest,
            "now": now,
        }

        def work(tx: Transaction) -> bool:
            noted, _ = tx.run_all([(_NOTE, params), (_ADVANCE, params)])
            because = pause_because
            if noted and occurrence.outcome == "failed" and not because:
                counted = tx.run(_COUNT_FAILURE, params)
                because = FAILURES if counted and counted[0]["failures"] >= max_failures else ""
            return bool(because) and _pause(tx, schedule.id, because, notices, now)

        return await self._database.transaction(work)

    async def add_occurrence(self, occurrence: Occurrence, *, now: float) -> Occurrence:
        """Store the outcome of a run started by hand, once per message. Return the stored one, which may be earlier."""
        params: Params = {**asdict(occurrence), "id": occurrence.schedule_id, "now": now}

        def work(tx: Transaction) -> Occurrence:
            tx.run(_LOCK, {"id": occurrence.schedule_id})
            if known := tx.run(_FIND_SENT, params):
                return from_row(Occurrence, known[0])
            tx.run(_NOTE, params)
            return replace(occurrence, created_at=now)

        return await self._database.transaction(work)

    async def find_occurrence(self, schedule_id: str, due_at: float) -> Occurrence | None:
        """Return the occurrence of a time."""
        params: Params = {"id": schedule_id, "due_at": due_at}
        rows = await self._database.read(_FIND_OCCURRENCE, params)
        return from_row(Occurrence, rows[0]) if rows else None

    async def list_occurrences(self, schedule_id: str, *, limit: int) -> list[Occurrence]:
        """Return the latest occurrences, newest first."""
        params: Params = {"id": schedule_id, "limit": limit}
        return [
            from_row(Occurrence, row) for row in await self._database.read(_OCCURRENCES, params)
        ]

    async def list_last(self, schedule_ids: Sequence[str]) -> dict[str, Occurrence]:
        """Return the latest occurrence of each schedule."""
        params: Params = {"ids": encode(list(schedule_ids))}
        rows = await self._database.read(_LAST, params)
        return {row["schedule_id"]: from_row(Occurrence, row) for row in rows}

    async def find_open(self, schedule_id: str) -> Occurrence | None:
        """Return the latest occurrence of a schedule that is queued."""
        rows = await self._database.read(_OPEN, {"id": schedule_id})
        return from_row(Occurrence, rows[0]) if rows else None

    async def list_ended(self, *, limit: int, schedule_id: str = "") -> list[EndedOccurrence]:
        """Return queued occurrences that have ended, oldest first, of all schedules or of one."""
        rows = await self._database.read(_HAVE_ENDED, {"limit": limit, "id": schedule_id})
        return [
            EndedOccurrence(
                occurrence=from_row(Occurrence, row),
                message_outcome=row["message_outcome"],
                message_problem=row["message_problem"],
                run_status=row["run_status"],
            )
            for row in rows
        ]

    async def settle(
        self,
        occurrence: Occurrence,
        *,
        max_failures: int,
        notices: Callable[[Schedule, str], Sequence[NewOutboxRow]],
        now: float,
    ) -> Schedule | None:
        """Store the outcome of a queued occurrence once. Pause the schedule after several failures in a row.

        Args:
            occurrence: The occurrence with its outcome.
            max_failures: Number of failures in a row that pause the schedule.
            notices: Returns the messages that announce the pause. Must not block.
            now: Unix seconds.

        Returns:
            The schedule, if this call paused it.
        """
        params: Params = {**asdict(occurrence), "id": occurrence.schedule_id}

        def work(tx: Transaction) -> Schedule | None:
            if not tx.run(_SETTLE, params):
                return None
            rows = tx.run(_COUNT_FAILURE, params)
            schedule = _schedule(rows[0]) if rows else None
            if schedule is None or schedule.failures < max_failures:
                return None
            return schedule if _pause(tx, schedule.id, FAILURES, notices, now) else None

        return await self._database.transaction(work)


def _pause(
    tx: Transaction,
    schedule_id: str,
    because: str,
    notices: Callable[[Schedule, str], Sequence[NewOutboxRow]],
    now: float,
) -> bool:
    """Pause a schedule and store the messages that announce it. False if it is gone or already paused.

    A schedule that has ended is paused too: its last occurrence did not take place, and people are notified.
    """
    rows = tx.run(_LOCK, {"id": schedule_id})
    if not rows or not (rows[0]["is_enabled"] or rows[0]["paused_because"] == ENDED):
        return False
    schedule = paused(_schedule(rows[0]), because, now=now)
    tx.run(_UPDATE, _params(schedule))
    insert_outbox_rows(tx, notices(schedule, because), now=now)
    return True


def missing_schedule(schedule_id: str) -> RowNotFound:
    """Return the error for a schedule that does not exist."""
    return RowNotFound(f"There is no schedule {schedule_id}.")


def _schedule(row: Row) -> Schedule:
    key = from_row(ConversationKey, row) if row["channel"] else None
    metadata = orjson.loads(row["metadata"])
    return from_row(Schedule, row, key=key, metadata=metadata, is_enabled=bool(row["is_enabled"]))


_NO_KEY = ConversationKey(channel="", workspace="", chat="")


def _params(schedule: Schedule) -> dict[str, Value]:
    given = {one.name: getattr(schedule, one.name) for one in fields(schedule)}
    del given["key"]
    return {
        **given,
        **key_params(schedule.key or _NO_KEY),
        "metadata": encode(schedule.metadata),
        "is_enabled": int(schedule.is_enabled),
    }


def paused(schedule: Schedule, because: str, *, now: float) -> Schedule:
    """Return a schedule that was paused.

    Args:
        schedule: The schedule.
        because: The reason: a value of `Schedule.paused_because`.
        now: Unix seconds.
    """
    return replace(schedule, is_enabled=False, paused_because=because, updated_at=now)
