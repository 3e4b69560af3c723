"""What was accepted from the platforms: remembered before it is acknowledged, until it is answered."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from store.conversations import ConversationKey, ensure_conversation, key_from_row, key_params
from store.database import Database, Params, Row, Transaction
from store.outbox import (
    NEWEST,
    NewOutboxRow,
    insert_message_topic,
    insert_outbox_rows,
    select_topic,
)

InboxKind = Literal["chat", "command"]
InboxState = Literal["new", "running", "done", "dead"]


@dataclass(frozen=True, slots=True, kw_only=True)
class NewInboxRow:
    """A message about to be accepted.

    Attributes:
        key: Its conversation. If one of `replies_to` is known, that message's topic replaces `key.topic`.
        event_id: The platform's id of the delivery, stable over redeliveries.
        message_id: The platform's id of the message itself, unique within `key.chat`; "" if it has none.
        replies_to: Platform ids of messages that this one answers, nearest first.
        remember: Whether `message_id` may later be replied to and must then find this conversation.
        kind: Chat waits in the mailbox; a command does not count towards the mailbox's cap.
        body: The encoded message (bus/messages.py).
    """

    key: ConversationKey
    event_id: str
    message_id: str
    replies_to: tuple[str, ...] = ()
    remember: bool = False
    kind: InboxKind
    body: str
    received_at: float


@dataclass(frozen=True, slots=True, kw_only=True)
class InboxRow:
    """An accepted message. `(conversation_id, seq)` is its place in the conversation's order.

    Attributes:
        question: What its turn ended with asking (encoded by the bus); None = nothing.
        follows_question: Of a row whose turn began: whether one before it ended with asking something.
        thread_id: The thread that it was tied to, by a turn that began or by `InboxStore.pin`.
        current_thread_id: The conversation's thread when the row was read, or accepted.
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


@dataclass(frozen=True, slots=True)
class DuplicateMessage:
    """The event, or its message, was accepted before."""


@dataclass(frozen=True, slots=True)
class TurnStart:
    """A turn began. `follows_question`: an earlier one of its conversation ended with asking something."""

    follows_question: bool


@dataclass(frozen=True, slots=True)
class QueueFull:
    """The conversation has `pending` chat messages waiting, its cap. The event is remembered as refused."""

    pending: int
    key: ConversationKey
    conversation_id: int


DEDUPE_DAYS = 7
"""How long ids are remembered. Feishu pushes an event again up to 7.1 hours later, Telegram after 24 hours."""
PRUNE_ROWS = 500
"""Rows deleted in one transaction, so that pruning never holds the writer for long."""

_NOTE_SEEN = """
INSERT INTO seen (channel, workspace, kind, chat, external_id, seen_at)
VALUES (:channel, :workspace, :kind, :chat, :external_id, :seen_at)
ON CONFLICT (channel, workspace, kind, chat, external_id) DO NOTHING
RETURNING seen_at
"""
_IS_SEEN = """
SELECT 1 FROM seen
WHERE channel = :channel AND workspace = :workspace AND kind = 'event' AND chat = '' AND external_id = :event_id
UNION ALL
SELECT 1 FROM seen
WHERE channel = :channel AND workspace = :workspace AND kind = 'message' AND chat = :chat
AND external_id = :message_id
LIMIT 1
"""
_WAITING = """
SELECT count(*) AS waiting FROM inbox
WHERE conversation_id = :id AND state IN ('new', 'running') AND state = 'new' AND kind = 'chat'
"""
_NEXT = """
UPDATE conversation SET last_seq = last_seq + 1, pending = pending + :chat, updated_at = :now
WHERE id = :id
RETURNING last_seq, thread_id
"""
_INSERT = """
INSERT INTO inbox (conversation_id, seq, event_id, message_id, kind, body, received_at)
VALUES (:conversation_id, :seq, :event_id, :message_id, :kind, :body, :received_at)
RETURNING id
"""
SELECT_ROWS = """
SELECT inbox.*, channel, workspace, chat, topic, conversation.thread_id AS present_thread
FROM inbox JOIN conversation ON conversation.id = inbox.conversation_id
"""
"""Inbox rows with their conversation's key and present thread; a condition on `inbox` may follow."""
_UNFINISHED = f"""{SELECT_ROWS}
WHERE inbox.state IN ('new', 'running') ORDER BY inbox.conversation_id, inbox.seq
"""
_WAITING_BY_STATE = """
SELECT state, count(*) AS rows FROM inbox WHERE state IN ('new', 'running') GROUP BY state
"""
_RECENT = f"{SELECT_ROWS} WHERE inbox.id < :before ORDER BY inbox.id DESC LIMIT :limit"
_BEGIN = """
UPDATE inbox SET state = 'running', attempts = attempts + 1, thread_id = :thread_id,
    run_id = CASE WHEN thread_id = :thread_id AND attempts > 0 THEN run_id END
WHERE id = :id AND state IN ('new', 'running')
RETURNING id
"""
_FOLLOWS_QUESTION = """
SELECT 1 FROM inbox AS begun JOIN inbox AS earlier
ON earlier.conversation_id = begun.conversation_id AND earlier.seq < begun.seq AND earlier.asks IS NOT NULL
WHERE begun.id = :id LIMIT 1
"""
_NOTE_RUN = "UPDATE inbox SET run_id = :run_id WHERE id = :id"
_REWRITE = (
    "UPDATE inbox SET body = :body WHERE id = :id AND state IN ('new', 'running') RETURNING id"
)
_PIN = """
UPDATE inbox SET thread_id = :thread_id
WHERE conversation_id = :conversation_id AND state IN ('new', 'running') AND kind = 'chat'
AND thread_id IS NULL AND seq < :before_seq
"""
_FINISH = """
UPDATE inbox SET state = :state, asks = :asks WHERE id = :id AND state IN ('new', 'running')
RETURNING conversation_id, kind
"""
_COUNT_DOWN = "UPDATE conversation SET pending = pending - 1 WHERE id = :id"
_PRUNE = """
DELETE FROM inbox WHERE id IN (
    SELECT id FROM inbox WHERE state IN ('done', 'dead') AND received_at < :before LIMIT :rows
)
RETURNING id
"""
_PRUNE_SEEN = """
DELETE FROM seen WHERE (channel, workspace, kind, chat, external_id) IN (
    SELECT channel, workspace, kind, chat, external_id FROM seen WHERE seen_at < :before LIMIT :rows
)
RETURNING seen_at
"""


class InboxStore:
    """The accepted messages and the ids that were seen (kept for `DEDUPE_DAYS`)."""

    def __init__(self, database: Database, *, now: Callable[[], float] = time.time) -> None:
        self._database = database
        self._now = now

    async def accept(
        self, new: NewInboxRow, *, cap: int
    ) -> InboxRow | DuplicateMessage | QueueFull:
        """Commit a message, once.

        One transaction: look the ids up, settle the topic, count the conversation's `last_seq` and
        `pending` up, insert. Returns after the commit: only then may the platform be acknowledged.
        A message that is being answered does not wait: `cap` counts chat rows in state new. A cap of 0
        takes nothing, no command either.
        """
        return await self._database.transaction(lambda tx: _accept(tx, new, cap))

    async def is_duplicate(self, key: ConversationKey, event_id: str, message_id: str) -> bool:
        """Return whether `accept` would say Duplicate."""
        params = {**key_params(key), "event_id": event_id, "message_id": message_id}
        return bool(await self._database.read(_IS_SEEN, params))

    async def mark_running(self, inbox_id: int, *, thread_id: str) -> TurnStart | None:
        """Note that a turn starts (state running, attempts + 1). None if the row is already done or dead.

        The run noted before is kept as long as the thread is the same; one that the row was only said to is not.
        """

        def work(tx: Transaction) -> TurnStart | None:
            if not tx.run(_BEGIN, {"id": inbox_id, "thread_id": thread_id}):
                return None
            return TurnStart(bool(tx.run(_FOLLOWS_QUESTION, {"id": inbox_id})))

        return await self._database.transaction(work)

    async def set_run(self, inbox_id: int, run_id: str) -> None:
        """Note the run that answers the row."""
        params: Params = {"id": inbox_id, "run_id": run_id}
        await self._database.transaction(lambda tx: tx.run(_NOTE_RUN, params))

    async def update_body(self, inbox_id: int, body: str) -> bool:
        """Replace the encoded message of a row. False if the row is already done or dead."""
        params: Params = {"id": inbox_id, "body": body}
        return bool(await self._database.transaction(lambda tx: tx.run(_REWRITE, params)))

    async def assign_thread(self, conversation_id: int, *, before_seq: int, thread_id: str) -> None:
        """Tie the chat rows that wait to the thread they were written for, before it is replaced."""
        params: Params = {
            "conversation_id": conversation_id,
            "before_seq": before_seq,
            "thread_id": thread_id,
        }
        await self._database.transaction(lambda tx: tx.run(_PIN, params))

    async def finish(
        self,
        inbox_id: int,
        deliveries: Sequence[NewOutboxRow],
        *,
        dead: bool = False,
        question: str | None = None,
        answered_ids: Sequence[int] = (),
    ) -> bool:
        """Mark a row done (or dead), note what it ended with asking, and owe its deliveries, in one transaction.

        `answered_ids`: rows that the same turn answered; they are done without rows of their own.

        False, and nothing is written, if the row was finished before: the caller must then send nothing.
        """
        now = self._now()

        def work(tx: Transaction) -> bool:
            ending: Params = {"id": inbox_id, "state": "dead" if dead else "done", "asks": question}
            if not _finished(tx, ending):
                return False
            for other in answered_ids:
                _finished(tx, {"id": other, "state": "done", "asks": None})
            insert_outbox_rows(tx, deliveries, now=now)
            return True

        return await self._database.transaction(work)

    async def list_unfinished(self) -> list[InboxRow]:
        """Return the rows in state new or running, by conversation and sequence."""
        return [inbox_row_from(row) for row in await self._database.read(_UNFINISHED)]

    async def count_by_state(self) -> dict[str, int]:
        """Return how many messages are not finished, by state."""
        rows = await self._database.read(_WAITING_BY_STATE)
        return {str(row["state"]): int(str(row["rows"])) for row in rows}

    async def list_recent(self, *, limit: int = 100, before: int = NEWEST) -> list[InboxRow]:
        """Return rows, newest first; only those with an id below `before`."""
        params: Params = {"limit": limit, "before": before}
        return [inbox_row_from(row) for row in await self._database.read(_RECENT, params)]

    async def prune(self, *, now: float) -> int:
        """Forget finished rows and seen ids older than 7 days; return how many rows went."""
        before = now - DEDUPE_DAYS * 86_400.0
        return await self._drop(_PRUNE, before) + await self._drop(_PRUNE_SEEN, before)

    async def _drop(self, sql: str, before: float) -> int:
        params: Params = {"before": before, "rows": PRUNE_ROWS}
        gone = 0
        while True:
            batch = len(await self._database.transaction(lambda tx: tx.run(sql, params)))
            gone += batch
            if batch < PRUNE_ROWS:
                return gone


def _finished(tx: Transaction, ending: Params) -> bool:
    rows = tx.run(_FINISH, ending)
    if rows and rows[0]["kind"] == "chat":
        tx.run(_COUNT_DOWN, {"id": rows[0]["conversation_id"]})
    return bool(rows)


def _accept(tx: Transaction, new: NewInboxRow, cap: int) -> InboxRow | DuplicateMessage | QueueFull:
    if not _first_time(tx, new):
        return DuplicateMessage()
    key = _resolve_topic(tx, new)
    conversation_id = ensure_conversation(tx, key, now=new.received_at)
    if new.kind == "chat" or cap == 0:
        waiting = int(tx.run(_WAITING, {"id": conversation_id})[0]["waiting"])
        if waiting >= cap:
            return QueueFull(pending=waiting, key=key, conversation_id=conversation_id)
    if new.remember and new.message_id:
        insert_message_topic(tx, key, new.message_id)
    return _insert(tx, new, key, conversation_id)


def _insert(
    tx: Transaction, new: NewInboxRow, key: ConversationKey, conversation_id: int
) -> InboxRow:
    counted = {"id": conversation_id, "chat": int(new.kind == "chat"), "now": new.received_at}
    conversation = tx.run(_NEXT, counted)[0]
    seq = int(conversation["last_seq"])
    inserted = tx.run(
        _INSERT,
        {
            "conversation_id": conversation_id,
            "seq": seq,
            "event_id": new.event_id,
            "message_id": new.message_id,
            "kind": new.kind,
            "body": new.body,
            "received_at": new.received_at,
        },
    )
    return InboxRow(
        id=int(inserted[0]["id"]),
        conversation_id=conversation_id,
        seq=seq,
        key=key,
        event_id=new.event_id,
        kind=new.kind,
        body=new.body,
        state="new",
        attempts=0,
        thread_id=None,
        run_id=None,
        received_at=new.received_at,
        current_thread_id=conversation["thread_id"],
    )


def _first_time(tx: Transaction, new: NewInboxRow) -> bool:
    """Store the ids of a message; False if one of them was received before."""
    fresh = mark_received(tx, new.key, new.event_id, at=new.received_at)
    if new.message_id:
        ids: Params = {"kind": "message", "chat": new.key.chat, "external_id": new.message_id}
        fresh = _insert_id(tx, new.key, ids, at=new.received_at) and fresh
    return fresh


def mark_received(tx: Transaction, key: ConversationKey, event_id: str, *, at: float) -> bool:
    """Store the id of an event (`at` in Unix seconds); False if it was received before."""
    return _insert_id(tx, key, {"kind": "event", "chat": "", "external_id": event_id}, at=at)


def _insert_id(tx: Transaction, key: ConversationKey, ids: Params, *, at: float) -> bool:
    params = {"channel": key.channel, "workspace": key.workspace, "seen_at": at, **ids}
    return bool(tx.run(_NOTE_SEEN, params))


def _resolve_topic(tx: Transaction, new: NewInboxRow) -> ConversationKey:
    """Return the key with the topic of the nearest known message that this one answers."""
    for message_id in new.replies_to:
        topic = select_topic(tx, new.key, message_id)
        if topic is not None:
            return replace(new.key, topic=topic)
    return new.key


def inbox_row_from(row: Row) -> InboxRow:
    """Return what a row of `SELECT_ROWS` says."""
    return InboxRow(
        id=row["id"],
        conversation_id=row["conversation_id"],
        seq=row["seq"],
        key=key_from_row(row),
        event_id=row["event_id"],
        kind=row["kind"],
        body=row["body"],
        state=row["state"],
        attempts=row["attempts"],
        thread_id=row["thread_id"],
        run_id=row["run_id"],
        received_at=row["received_at"],
        current_thread_id=row["present_thread"],
        question=row["asks"],
    )
