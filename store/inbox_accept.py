"""Rows of the inbox, and the unit of work that accepts a message."""

import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Literal

from store.chat_owners import ChatOwners
from store.conversations import ConversationKey, key_from_row, lock_conversation
from store.errors import TakenOver
from store.message_topics import set_topic_statement, topic_statement
from store.rows import from_row
from store.transaction import Params, Row, Statement, Transaction

USED_EVERY_S = 60.0
"""How often a conversation is marked as used, seconds.

While a client holds a snapshot open, PostgreSQL keeps all versions of a changed row. So accepting a message locks the
row of its conversation but does not change it.
"""

InboxKind = Literal["chat", "command"]
InboxState = Literal["new", "running", "done", "dead"]
TurnOutcome = Literal[
    "failed", "waiting", "silent", "stopped", "interrupted", "deleted", "joined", "taken_over"
]
"""How a turn ended, if not with an answer.

`waiting` = it waits for a person's answer, `joined` = another turn answered it, `taken_over` = a person answers instead
of the agent.
"""


@dataclass(frozen=True, slots=True)
class TurnEnd:
    """How a turn ended.

    Attributes:
        outcome: None = with an answer.
        problem: Why it failed, for administrators.
        signed_at: When people saw the first sign of the turn, Unix seconds; None = not before the answer.
    """

    outcome: TurnOutcome | None = None
    problem: str | None = None
    signed_at: float | None = None


ANSWERED = TurnEnd()


@dataclass(frozen=True, slots=True, kw_only=True)
class NewInboxRow:
    """A message to accept.

    Attributes:
        key: Its conversation. The topic of a known message in `replies_to` replaces `key.topic`.
        event_id: The platform's id of the event, stable over redeliveries.
        is_event_global: Whether the event's ID is unique in its channel, not only in its workspace.
        message_id: The platform's id of the message itself, unique within `key.chat`; "" if it has none.
        replies_to: Platform ids of the messages it replies to, nearest first.
        remember: Store `message_id`, so that a later reply to it finds this conversation.
        kind: Commands do not count toward the queue's limit.
        may_start: Whether accepting it also starts its turn, if the conversation has no other unfinished row.
        body: The encoded message (bus/messages.py).
        needs_agent: Whether only the agent can handle it, so it is refused while a person has taken over.
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
    is_event_global: bool = False
    needs_agent: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnStart:
    """The start of a turn.

    Attributes:
        thread_id: Its thread.
        follows_question: An earlier turn of its conversation ended with a question.
        has_new_thread: Its conversation had no thread before.
        is_taken_over: A person has taken over the conversation since the turn first started.
    """

    thread_id: str
    follows_question: bool
    has_new_thread: bool = False
    is_taken_over: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class InboxRow:
    """An accepted message. `(conversation_id, seq)` is its position in the conversation.

    Attributes:
        question: The question its turn ended with (encoded by the bus); None = none.
        speech: The transcripts of its recordings (encoded by the bus); None = none.
        outcome: How its turn ended; None = with an answer, or it has not ended.
        problem: Why it failed, for administrators.
        signed_at: See `TurnEnd`.
        follows_question: An earlier turn of the conversation ended with a question; set once the turn starts.
        thread_id: Its thread, set when its turn starts or by `assign_thread`.
        current_thread_id: The conversation's thread when the row was read or accepted.
        taken_over_by: The person who answered there instead of the agent at that time; None = the agent answered.
        start: The start of its turn, if accepting it has just recorded the start.
        owner: The node that works on it, if the row has just been accepted.
        earlier_ids: The unfinished rows of its conversation when it was accepted.
        open_from: A position before which no row was unfinished when it was accepted.
    """

    id: int
    conversation_id: int
    seq: int
    key: ConversationKey
    event_id: str
    kind: InboxKind
    body: str
    state: InboxState
    starts: int
    thread_id: str | None
    run_id: str | None
    received_at: float
    current_thread_id: str | None = None
    question: str | None = None
    speech: str | None = None
    outcome: TurnOutcome | None = None
    problem: str | None = None
    signed_at: float | None = None
    follows_question: bool = False
    taken_over_by: str | None = field(default=None, compare=False)
    start: TurnStart | None = None
    owner: int = field(default=0, compare=False)
    earlier_ids: frozenset[int] = field(default=frozenset(), compare=False)
    open_from: int = field(default=0, compare=False)


@dataclass(frozen=True, slots=True)
class DuplicateMessage:
    """The event, or its message, was accepted before."""


@dataclass(frozen=True, slots=True)
class QueueFull:
    """The conversation has `pending` queued chat messages, its cap. The event counts as received."""

    pending: int
    key: ConversationKey
    conversation_id: int


SELECT_ROWS = """
SELECT inbox.*, channel, workspace, chat, topic, conversation.thread_id AS current_thread_id, taken_over_by
FROM inbox JOIN conversation ON conversation.id = inbox.conversation_id
"""
"""Selects inbox rows with their conversation's key and current thread. A condition on `inbox` may follow."""


def inbox_row_from(row: Row) -> InboxRow:
    """Return a row of `SELECT_ROWS`."""
    return from_row(InboxRow, row, key=key_from_row(row))


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
_LIST_OPEN = """
SELECT id, seq, state = 'new' AND kind = 'chat' AS is_waiting
FROM inbox WHERE conversation_id = :id AND state IN ('new', 'running') AND seq >= :open_from
"""
_LAST_SEQ = "SELECT coalesce(max(seq), 0) AS seq FROM inbox WHERE conversation_id = :id"
_HAS_QUESTION = "SELECT 1 FROM inbox WHERE conversation_id = :id AND question IS NOT NULL LIMIT 1"
_MARK_USED = "UPDATE conversation SET thread_id = :thread_id, updated_at = :now WHERE id = :id"
_INSERT = """
INSERT INTO inbox (
    conversation_id, seq, event_id, message_id, kind, body, received_at, state, starts, thread_id, outcome)
VALUES (
    :conversation_id, :seq, :event_id, :message_id, :kind, :body, :received_at, :state, :starts, :thread_id, :outcome)
RETURNING id
"""


def accept(
    tx: Transaction,
    new: NewInboxRow,
    cap: int,
    *,
    owners: ChatOwners,
    open_from: Mapping[int, int],
) -> InboxRow | DuplicateMessage | QueueFull:
    """Store a message. Start its turn if it may start and this node owns its chat.

    While a person has taken over the conversation, a chat message is stored as done, with the outcome `taken_over`.

    The row of its conversation stays locked until the end of the transaction. So nodes accept the messages of a
    conversation one by one, and the chat cannot migrate meanwhile.

    Args:
        tx: The transaction, submitted with `order=chat_order(new.key)`.
        new: The message.
        cap: See `InboxStore.accept`.
        owners: Knows which node works on which chat.
        open_from: For conversations by id, a position before which no message is unfinished. Finished messages never
            become unfinished again, so an old position stays valid.

    Raises:
        TakenOver: A person has taken over the conversation, and the message needs the agent.
    """
    key = _receive(tx, new)
    if isinstance(key, DuplicateMessage):
        return key
    conversation = lock_conversation(tx, key, now=new.received_at)
    owner = _owner(tx, new.key, conversation["chat"], owners)
    found: Params = {"id": conversation["id"], "open_from": open_from.get(conversation["id"], 0)}
    # After the lock, these reads see what other nodes have just committed.
    unfinished, last, questions = tx.run_all(
        [(_LIST_OPEN, found), (_LAST_SEQ, found), (_HAS_QUESTION, found)]
    )
    waiting = sum(bool(row["is_waiting"]) for row in unfinished)
    is_taken_over = new.kind == "chat" and conversation["taken_over_by"] is not None
    if is_taken_over and new.needs_agent:
        raise TakenOver
    if new.kind == "chat" and waiting >= cap and not is_taken_over:
        return QueueFull(pending=waiting, key=key, conversation_id=conversation["id"])
    changes = list[Statement]()
    if new.remember and new.message_id:
        changes.append(set_topic_statement(key, new.message_id, now=new.received_at))
    thread_id, start = conversation["thread_id"], None
    if new.may_start and not unfinished and owner == owners.number and not is_taken_over:
        start = TurnStart(
            thread_id=thread_id or str(uuid.uuid4()),
            follows_question=bool(questions),
            has_new_thread=thread_id is None,
        )
        thread_id = start.thread_id
    is_due = conversation["updated_at"] < new.received_at - USED_EVERY_S
    if is_due or thread_id != conversation["thread_id"]:
        used: Params = {"id": found["id"], "thread_id": thread_id, "now": new.received_at}
        changes.append((_MARK_USED, used))
    seq = max(conversation["last_seq"], last[0]["seq"]) + 1
    row = InboxRow(
        id=0,
        conversation_id=conversation["id"],
        seq=seq,
        key=key,
        event_id=new.event_id,
        kind=new.kind,
        body=new.body,
        state="done" if is_taken_over else "new" if start is None else "running",
        starts=0 if start is None else 1,
        thread_id=thread_id if is_taken_over or start is not None else None,
        run_id=None,
        received_at=new.received_at,
        current_thread_id=thread_id,
        outcome="taken_over" if is_taken_over else None,
        taken_over_by=conversation["taken_over_by"],
        start=start,
        owner=owner,
        earlier_ids=frozenset(row["id"] for row in unfinished),
        open_from=min((row["seq"] for row in unfinished), default=seq),
    )
    inserted = tx.run_all([*changes, _insert_statement(row, new.message_id)])[-1]
    return replace(row, id=int(inserted[0]["id"]))


def refuse(tx: Transaction, new: NewInboxRow) -> ConversationKey | DuplicateMessage:
    """Store that a message was received and is not accepted; return its conversation.

    Args:
        tx: The transaction, submitted with `order=chat_order(new.key)`.
        new: The message.
    """
    key = _receive(tx, new)
    if not isinstance(key, DuplicateMessage):
        lock_conversation(tx, key, now=new.received_at)
    return key


def _owner(tx: Transaction, key: ConversationKey, chat: str, owners: ChatOwners) -> int:
    """Return the node that owns the chat of a message. `chat` is the chat's current ID."""
    # This node cannot give up the chat meanwhile, because that waits for the chat's messages (`chat_order`).
    if chat == key.chat and owners.is_own(key):
        return owners.number
    return owners.claim_in(tx, replace(key, chat=chat))


def _insert_statement(row: InboxRow, message_id: str) -> Statement:
    """Return the statement that inserts a row; it returns the row's id."""
    params: Params = {
        "conversation_id": row.conversation_id,
        "seq": row.seq,
        "event_id": row.event_id,
        "message_id": message_id,
        "kind": row.kind,
        "body": row.body,
        "received_at": row.received_at,
        "state": row.state,
        "starts": row.starts,
        "thread_id": row.thread_id,
        "outcome": row.outcome,
    }
    return _INSERT, params


def _receive(tx: Transaction, new: NewInboxRow) -> ConversationKey | DuplicateMessage:
    """Store the IDs of a message, and find its conversation.

    Return the key with the topic of the nearest known message that it replies to.
    """
    key = new.key
    params: Params = {
        "channel": key.channel,
        "workspace": "" if new.is_event_global else key.workspace,
        "chat": key.chat,
        "event_id": new.event_id,
        "message_id": new.message_id,
        "received_at": new.received_at,
    }
    ids = _INSERT_RECEIVED_IDS if new.message_id else _INSERT_EVENT_ID
    topics = [topic_statement(key, message_id) for message_id in new.replies_to]
    stored, *found = tx.run_all([(ids, params), *topics])
    if len(stored) < (2 if new.message_id else 1):
        return DuplicateMessage()
    return replace(key, topic=next((rows[0]["topic"] for rows in found if rows), key.topic))


def mark_received(tx: Transaction, key: ConversationKey, event_id: str, *, at: float) -> bool:
    """Store the id of an event (`at` in Unix seconds); False if it was received before."""
    params: Params = {
        "channel": key.channel,
        "workspace": key.workspace,
        "event_id": event_id,
        "received_at": at,
    }
    return bool(tx.run(_INSERT_EVENT_ID, params))
