"""The inbox: messages accepted from the platforms, committed before they are acknowledged."""

import time
import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from store.conversations import ConversationKey, ensure_conversation, key_from_row
from store.database import Database, Params, Row, Transaction
from store.message_topics import insert_message_topic, select_topic
from store.outbox import NEWEST, NewOutboxRow, insert_outbox_rows
from store.rows import from_row

InboxKind = Literal["chat", "command"]
InboxState = Literal["new", "running", "done", "dead"]


@dataclass(frozen=True, slots=True, kw_only=True)
class NewInboxRow:
    """A message to accept.

    Attributes:
        key: Its conversation. The topic of a known message in `replies_to` replaces `key.topic`.
        event_id: The platform's id of the event, stable over redeliveries.
        message_id: The platform's id of the message itself, unique within `key.chat`; "" if it has none.
        replies_to: Platform ids of the messages it replies to, nearest first.
        remember: Store `message_id`, so that a later reply to it finds this conversation.
        kind: A command does not count towards the queue's cap.
        may_start: Whether its turn starts with the acceptance if the conversation has no other unfinished row.
        body: The encoded message (bus/messages.py).
    """

    key: ConversationKey
    event_id: str
    message_id: str
    replies_to: tuple[str, ...] = ()
    remember: bool = False
    kind: InboxKind
    may_start: bool = False
    body: str
    received_at: float


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnStart:
    """A turn started.

    Attributes:
        follows_question: An earlier turn of its conversation ended with a question.
        has_new_thread: Its conversation had no thread before.
    """

    follows_question: bool
    has_new_thread: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class InboxRow:
    """An accepted message. `(conversation_id, seq)` is its position in the conversation.

    Attributes:
        question: The question its turn ended with (encoded by the bus); None = none.
        follows_question: An earlier turn of the conversation ended with a question; set once the turn starts.
        thread_id: Its thread, set when its turn starts or by `assign_thread`.
        current_thread_id: The conversation's thread when the row was read or accepted.
        start: The start of its turn, where that was recorded with the acceptance just now.
    """

    id: int
    conversation_id: int
    seq: int
    key: ConversationKey
    event_id: str
    kind: InboxKind
    body: str
    state: InboxState
    attempts: int
    thread_id: str | None
    run_id: str | None
    received_at: float
    current_thread_id: str | None = None
    question: str | None = None
    follows_question: bool = False
    start: TurnStart | None = None


@dataclass(frozen=True, slots=True)
class DuplicateMessage:
    """The event, or its message, was accepted before."""


@dataclass(frozen=True, slots=True)
class QueueFull:
    """The conversation has `pending` queued chat messages, its cap. The event counts as received."""

    pending: int
    key: ConversationKey
    conversation_id: int


_INSERT_EVENT_ID = """
INSERT INTO received_id (channel, workspace, kind, chat, external_id, received_at)
VALUES (:channel, :workspace, 'event', '', :event_id, :received_at)
ON CONFLICT (channel, workspace, kind, chat, external_id) DO NOTHING
RETURNING received_at
"""
_INSERT_RECEIVED_IDS = """
INSERT INTO received_id (channel, workspace, kind, chat, external_id, received_at)
VALUES (:channel, :workspace, 'event', '', :event_id, :received_at),
    (:channel, :workspace, 'message', :chat, :message_id, :received_at)
ON CONFLICT (channel, workspace, kind, chat, external_id) DO NOTHING
RETURNING received_at
"""
_COUNT_QUEUED = """
SELECT count(*) AS unfinished, count(*) FILTER (WHERE state = 'new' AND kind = 'chat') AS waiting
FROM inbox WHERE conversation_id = :id AND state IN ('new', 'running')
"""
_HAS_QUESTION = "SELECT 1 FROM inbox WHERE conversation_id = :id AND question IS NOT NULL LIMIT 1"
_NEXT_SEQ = """
UPDATE conversation SET last_seq = last_seq + 1, pending = pending + :chat, updated_at = :now
WHERE id = :id
RETURNING last_seq, thread_id
"""
_SET_THREAD = "UPDATE conversation SET thread_id = :thread_id WHERE id = :id"
_INSERT = """
INSERT INTO inbox (conversation_id, seq, event_id, message_id, kind, body, received_at, state, attempts, thread_id)
VALUES (:conversation_id, :seq, :event_id, :message_id, :kind, :body, :received_at, :state, :attempts, :thread_id)
RETURNING id
"""
SELECT_ROWS = """
SELECT inbox.*, channel, workspace, chat, topic, conversation.thread_id AS current_thread_id
FROM inbox JOIN conversation ON conversation.id = inbox.conversation_id
"""
"""Inbox rows with their conversation's key and current thread; a condition on `inbox` may follow."""
_UNFINISHED = f"""{SELECT_ROWS}
WHERE inbox.state IN ('new', 'running') ORDER BY inbox.conversation_id, inbox.seq
"""
_COUNT_UNFINISHED = """
SELECT state, count(*) AS rows FROM inbox WHERE state IN ('new', 'running') GROUP BY state
"""
_RECENT = f"{SELECT_ROWS} WHERE inbox.id < :before ORDER BY inbox.id DESC LIMIT :limit"
_MARK_RUNNING = """
UPDATE inbox SET state = 'running', attempts = attempts + 1, thread_id = :thread_id,
    run_id = CASE WHEN thread_id = :thread_id AND state = 'running' THEN run_id END
WHERE id = :id AND state IN ('new', 'running')
RETURNING id
"""
_HAS_EARLIER_QUESTION = """
SELECT 1 FROM inbox AS started JOIN inbox AS earlier
ON earlier.conversation_id = started.conversation_id AND earlier.seq < started.seq AND earlier.question IS NOT NULL
WHERE started.id = :id LIMIT 1
"""
_SET_RUN = "UPDATE inbox SET run_id = :run_id WHERE id = :id"
_UPDATE_BODY = (
    "UPDATE inbox SET body = :body WHERE id = :id AND state IN ('new', 'running') RETURNING id"
)
_ASSIGN_THREAD = """
UPDATE inbox SET thread_id = :thread_id
WHERE conversation_id = (SELECT conversation_id FROM inbox WHERE id = :id)
AND state IN ('new', 'running') AND kind = 'chat' AND thread_id IS NULL
AND seq < (SELECT seq FROM inbox WHERE id = :id)
"""
_FINISH = """
UPDATE inbox SET state = :state, question = :question WHERE id = :id AND state IN ('new', 'running')
RETURNING conversation_id, kind
"""
_RELEASE = """
UPDATE inbox SET run_id = NULL WHERE run_id = :run_id AND state = 'new'
AND conversation_id = (SELECT conversation_id FROM inbox WHERE id = :id)
"""
_DECREMENT_PENDING = "UPDATE conversation SET pending = pending - 1 WHERE id = :id"


class InboxStore:
    """The inbox table, and the ids of received events and messages."""

    def __init__(self, database: Database, *, now: Callable[[], float] = time.time) -> None:
        self._database = database
        self._now = now

    @property
    def outage(self) -> str:
        """Why the database cannot be used now; "" while it can (see `Database.outage`)."""
        return self._database.outage

    async def accept(
        self,
        new: NewInboxRow,
        *,
        cap: int,
        notice: Callable[[QueueFull], NewOutboxRow] | None = None,
    ) -> InboxRow | DuplicateMessage | QueueFull:
        """Commit a message, once.

        One transaction: check the ids, resolve the topic, increment the conversation's `last_seq` and
        `pending`, insert, and start the turn of a row that `may_start` (as `mark_running` does; a conversation
        without a thread gets a new one). Returns after the commit: only then may the platform be acknowledged.
        `cap` limits the chat rows in state new. A cap of 0 refuses everything, commands included.
        `notice` makes the outbox row that tells of a refusal, in the same transaction; it must not block.
        """

        def work(tx: Transaction) -> InboxRow | DuplicateMessage | QueueFull:
            result = _accept(tx, new, cap)
            if notice is not None and isinstance(result, QueueFull):
                insert_outbox_rows(tx, [notice(result)], now=new.received_at)
            return result

        order = f"{new.key.channel}/{new.key.workspace}/{new.key.chat}"
        return await self._database.transaction(work, order=order)

    async def mark_running(self, inbox_id: int, *, thread_id: str) -> TurnStart | None:
        """Record the start of a turn (state running, attempts + 1). None if the row is already done or dead.

        The row keeps its run while the thread is the same, unless it was only injected into that run.
        """

        def work(tx: Transaction) -> TurnStart | None:
            if not tx.run(_MARK_RUNNING, {"id": inbox_id, "thread_id": thread_id}):
                return None
            has_question = bool(tx.run(_HAS_EARLIER_QUESTION, {"id": inbox_id}))
            return TurnStart(follows_question=has_question)

        return await self._database.transaction(work)

    async def set_run(self, inbox_id: int, run_id: str) -> None:
        """Store the run that answers the row."""
        params: Params = {"id": inbox_id, "run_id": run_id}
        await self._database.transaction(lambda tx: tx.run(_SET_RUN, params))

    async def update_body(self, inbox_id: int, body: str) -> bool:
        """Replace the encoded message of a row. False if the row is already done or dead."""
        params: Params = {"id": inbox_id, "body": body}
        return bool(await self._database.transaction(lambda tx: tx.run(_UPDATE_BODY, params)))

    async def assign_thread(self, inbox_id: int, *, thread_id: str) -> None:
        """Assign the queued chat rows before a row of their conversation to a thread that is about to be replaced."""
        params: Params = {"id": inbox_id, "thread_id": thread_id}
        await self._database.transaction(lambda tx: tx.run(_ASSIGN_THREAD, params))

    async def finish(
        self,
        inbox_id: int,
        deliveries: Sequence[NewOutboxRow],
        *,
        dead: bool = False,
        question: str | None = None,
        answered_ids: Sequence[int] = (),
        released_run_id: str | None = None,
    ) -> bool:
        """Mark a row done (or dead), store its question and insert its outbox rows, in one transaction.

        `answered_ids`: rows that the same turn answered; they are marked done as well.
        `released_run_id`: a run that answers nothing any more; queued rows that were injected into it forget it.

        False, and nothing is written, if the row is finished already: the caller must then send nothing.
        """
        now = self._now()

        def work(tx: Transaction) -> bool:
            ending: Params = {
                "id": inbox_id,
                "state": "dead" if dead else "done",
                "question": question,
            }
            if not _finish(tx, ending):
                return False
            for other in answered_ids:
                _finish(tx, {"id": other, "state": "done", "question": None})
            if released_run_id is not None:
                tx.run(_RELEASE, {"id": inbox_id, "run_id": released_run_id})
            insert_outbox_rows(tx, deliveries, now=now)
            return True

        return await self._database.transaction(work)

    async def list_unfinished(self) -> list[InboxRow]:
        """Return the rows in state new or running, by conversation and sequence."""
        return [inbox_row_from(row) for row in await self._database.read(_UNFINISHED)]

    async def count_by_state(self) -> dict[str, int]:
        """Return how many rows are not finished, by state."""
        rows = await self._database.read(_COUNT_UNFINISHED)
        return {str(row["state"]): int(str(row["rows"])) for row in rows}

    async def list_recent(self, *, limit: int = 100, before: int = NEWEST) -> list[InboxRow]:
        """Return rows, newest first; only those with an id below `before`."""
        params: Params = {"limit": limit, "before": before}
        return [inbox_row_from(row) for row in await self._database.read(_RECENT, params)]


def _finish(tx: Transaction, ending: Params) -> bool:
    rows = tx.run(_FINISH, ending)
    if rows and rows[0]["kind"] == "chat":
        tx.run(_DECREMENT_PENDING, {"id": rows[0]["conversation_id"]})
    return bool(rows)


def _accept(tx: Transaction, new: NewInboxRow, cap: int) -> InboxRow | DuplicateMessage | QueueFull:
    if not _first_time(tx, new):
        return DuplicateMessage()
    key = _resolve_topic(tx, new)
    conversation_id = ensure_conversation(tx, key, now=new.received_at)
    queued = tx.run(_COUNT_QUEUED, {"id": conversation_id})[0]
    if (new.kind == "chat" or cap == 0) and queued["waiting"] >= cap:
        return QueueFull(pending=queued["waiting"], key=key, conversation_id=conversation_id)
    if new.remember and new.message_id:
        insert_message_topic(tx, key, new.message_id, now=new.received_at)
    counted = {"id": conversation_id, "chat": int(new.kind == "chat"), "now": new.received_at}
    conversation = tx.run(_NEXT_SEQ, counted)[0]
    thread_id, start = conversation["thread_id"], None
    if new.may_start and not queued["unfinished"]:
        thread_id, start = _start(tx, conversation_id, thread_id)
    row = InboxRow(
        id=0,
        conversation_id=conversation_id,
        seq=int(conversation["last_seq"]),
        key=key,
        event_id=new.event_id,
        kind=new.kind,
        body=new.body,
        state="new" if start is None else "running",
        attempts=0 if start is None else 1,
        thread_id=None if start is None else thread_id,
        run_id=None,
        received_at=new.received_at,
        current_thread_id=thread_id,
        start=start,
    )
    return replace(row, id=_insert(tx, row, new.message_id))


def _start(tx: Transaction, conversation_id: int, thread_id: str | None) -> tuple[str, TurnStart]:
    """Return the thread of a turn that starts, and its start; a conversation without a thread gets one."""
    start = TurnStart(
        follows_question=bool(tx.run(_HAS_QUESTION, {"id": conversation_id})),
        has_new_thread=thread_id is None,
    )
    if thread_id is None:
        thread_id = str(uuid.uuid4())
        tx.run(_SET_THREAD, {"id": conversation_id, "thread_id": thread_id})
    return thread_id, start


def _insert(tx: Transaction, row: InboxRow, message_id: str) -> int:
    """Insert a row; return its id."""
    params: Params = {
        "conversation_id": row.conversation_id,
        "seq": row.seq,
        "event_id": row.event_id,
        "message_id": message_id,
        "kind": row.kind,
        "body": row.body,
        "received_at": row.received_at,
        "state": row.state,
        "attempts": row.attempts,
        "thread_id": row.thread_id,
    }
    return int(tx.run(_INSERT, params)[0]["id"])


def _first_time(tx: Transaction, new: NewInboxRow) -> bool:
    """Store the ids of a message; False if one of them was received before."""
    if not new.message_id:
        return mark_received(tx, new.key, new.event_id, at=new.received_at)
    key = new.key
    params: Params = {
        "channel": key.channel,
        "workspace": key.workspace,
        "chat": key.chat,
        "event_id": new.event_id,
        "message_id": new.message_id,
        "received_at": new.received_at,
    }
    return len(tx.run(_INSERT_RECEIVED_IDS, params)) > 1  # both are new


def mark_received(tx: Transaction, key: ConversationKey, event_id: str, *, at: float) -> bool:
    """Store the id of an event (`at` in Unix seconds); False if it was received before."""
    params: Params = {
        "channel": key.channel,
        "workspace": key.workspace,
        "event_id": event_id,
        "received_at": at,
    }
    return bool(tx.run(_INSERT_EVENT_ID, params))


def _resolve_topic(tx: Transaction, new: NewInboxRow) -> ConversationKey:
    """Return the key with the topic of the nearest known message that this one answers."""
    for message_id in new.replies_to:
        topic = select_topic(tx, new.key, message_id)
        if topic is not None:
            return replace(new.key, topic=topic)
    return new.key


def inbox_row_from(row: Row) -> InboxRow:
    """Return a row of `SELECT_ROWS`."""
    return from_row(InboxRow, row, key=key_from_row(row))
