"""Accepting a message: the unit of work behind `InboxStore.accept`."""

import uuid
from dataclasses import dataclass, replace

from store.chat_owners import ChatOwners
from store.conversations import ConversationKey, ensure_conversation
from store.inbox_rows import DuplicateMessage, InboxRow, NewInboxRow, QueueFull, TurnStart
from store.message_topics import insert_message_topic, select_topic
from store.transaction import Params, Transaction

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
_LIST_QUEUED = """
SELECT id, state = 'new' AND kind = 'chat' AS is_waiting
FROM inbox WHERE conversation_id = :id AND state IN ('new', 'running')
"""
_HAS_QUESTION = "SELECT 1 FROM inbox WHERE conversation_id = :id AND question IS NOT NULL LIMIT 1"
# On PostgreSQL, a trigger adds what parley_accept did not count there.
_NEXT_SEQ = """
UPDATE conversation SET last_seq = last_seq + 1, updated_at = :now
WHERE id = :id
RETURNING last_seq, thread_id
"""
_SET_THREAD = "UPDATE conversation SET thread_id = :thread_id WHERE id = :id"
_INSERT = """
INSERT INTO inbox (conversation_id, seq, event_id, message_id, kind, body, received_at, state, attempts, thread_id)
VALUES (:conversation_id, :seq, :event_id, :message_id, :kind, :body, :received_at, :state, :attempts, :thread_id)
RETURNING id
"""


def accept(
    tx: Transaction, new: NewInboxRow, cap: int, owners: ChatOwners
) -> InboxRow | DuplicateMessage | QueueFull:
    """Store a message; start its turn, if it may start and its chat is this node's."""
    # A chat that is known as this node's may have migrated into another node's.
    owner = owners.claim_in(tx, new.key) if owners.is_shared else owners.number
    if not _first_time(tx, new):
        return DuplicateMessage()
    key = _resolve_topic(tx, new)
    conversation_id = ensure_conversation(tx, key, now=new.received_at)
    queued = _count_queued(tx, conversation_id, owners)
    if (new.kind == "chat" or cap == 0) and queued.waiting >= cap:
        return QueueFull(pending=queued.waiting, key=key, conversation_id=conversation_id)
    if new.remember and new.message_id:
        insert_message_topic(tx, key, new.message_id, now=new.received_at)
    conversation = tx.run(_NEXT_SEQ, {"id": conversation_id, "now": new.received_at})[0]
    thread_id, start = conversation["thread_id"], None
    if new.may_start and not queued.unfinished and owner == owners.number:
        start = _start(tx, conversation_id, thread_id)
        thread_id = start.thread_id
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
        owner=owner,
        earlier_ids=queued.ids,
    )
    return replace(row, id=_insert(tx, row, new.message_id))


@dataclass(frozen=True, slots=True)
class _QueuedRows:
    """The unfinished rows of a conversation; `ids` only where several nodes share the database."""

    unfinished: int
    waiting: int
    ids: frozenset[int] = frozenset()


def _count_queued(tx: Transaction, conversation_id: int, owners: ChatOwners) -> _QueuedRows:
    if not owners.is_shared:
        counted = tx.run(_COUNT_QUEUED, {"id": conversation_id})[0]
        return _QueuedRows(counted["unfinished"], counted["waiting"])
    rows = tx.run(_LIST_QUEUED, {"id": conversation_id})
    waiting = sum(bool(row["is_waiting"]) for row in rows)
    return _QueuedRows(len(rows), waiting, frozenset(int(row["id"]) for row in rows))


def _start(tx: Transaction, conversation_id: int, thread_id: str | None) -> TurnStart:
    """Return the start of a turn; a conversation without a thread gets one."""
    start = TurnStart(
        thread_id=thread_id or str(uuid.uuid4()),
        follows_question=bool(tx.run(_HAS_QUESTION, {"id": conversation_id})),
        has_new_thread=thread_id is None,
    )
    if start.has_new_thread:
        tx.run(_SET_THREAD, {"id": conversation_id, "thread_id": start.thread_id})
    return start


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
