"""Rows of the inbox, and what becomes of a message that is to be one."""

from dataclasses import dataclass, field
from typing import Literal

from store.conversations import ConversationKey, key_from_row
from store.rows import from_row
from store.transaction import Row

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
        thread_id: Its thread.
        follows_question: An earlier turn of its conversation ended with a question.
        has_new_thread: Its conversation had no thread before.
    """

    thread_id: str
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
        owner: The node that is to work on it, where it was accepted just now and several nodes share the database.
        earlier_ids: The unfinished rows of its conversation at that moment.
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
    owner: int = field(default=0, compare=False)
    earlier_ids: frozenset[int] = field(default=frozenset(), compare=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class AcceptedBody:
    """The encoded message of a row, and where and when (Unix seconds) it was accepted."""

    channel: str
    workspace: str
    body: str
    received_at: float


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
SELECT inbox.*, channel, workspace, chat, topic, conversation.thread_id AS current_thread_id
FROM inbox JOIN conversation ON conversation.id = inbox.conversation_id
"""
"""Inbox rows with their conversation's key and current thread; a condition on `inbox` may follow."""


def inbox_row_from(row: Row) -> InboxRow:
    """Return a row of `SELECT_ROWS`."""
    return from_row(InboxRow, row, key=key_from_row(row))
