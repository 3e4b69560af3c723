"""What was accepted from the platforms: remembered before it is acknowledged, until it is answered."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from store.conversations import ConversationKey
from store.database import Database
from store.outbox import NewDelivery

InboxKind = Literal["chat", "command"]
InboxState = Literal["new", "running", "done", "dead"]


@dataclass(frozen=True, slots=True, kw_only=True)
class NewInbox:
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
    """An accepted message. `(conversation_id, seq)` is its place in the conversation's order."""

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


@dataclass(frozen=True, slots=True)
class Duplicate:
    """The event, or its message, was accepted before."""


@dataclass(frozen=True, slots=True)
class Overfull:
    """The conversation has `pending` chat messages waiting, its cap. The event is remembered as refused."""

    pending: int
    key: ConversationKey
    conversation_id: int


class Inbox:
    """The accepted messages and the ids that were seen (kept for `DEDUPE_DAYS`)."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def accept(self, new: NewInbox, *, cap: int) -> InboxRow | Duplicate | Overfull:
        """Commit a message, once.

        One transaction: look the ids up, settle the topic, count the conversation's `last_seq` and
        `pending` up, insert. Returns after the commit: only then may the platform be acknowledged.
        """
        raise NotImplementedError

    async def seen(self, key: ConversationKey, event_id: str, message_id: str) -> bool:
        """Return whether `accept` would say Duplicate."""
        raise NotImplementedError

    async def begin(self, inbox_id: int, *, thread_id: str) -> bool:
        """Note that a turn starts (state running, attempts + 1). False if the row is already done or dead."""
        raise NotImplementedError

    async def note_run(self, inbox_id: int, run_id: str) -> None:
        """Note the run that answers the row."""
        raise NotImplementedError

    async def finish(
        self, inbox_id: int, deliveries: Sequence[NewDelivery], *, dead: bool = False
    ) -> bool:
        """Mark a row done (or dead) and owe its deliveries, in one transaction.

        False, and nothing is written, if the row was finished before: the caller must then send nothing.
        """
        raise NotImplementedError

    async def unfinished(self) -> list[InboxRow]:
        """Return the rows in state new or running, by conversation and sequence."""
        raise NotImplementedError

    async def recent(self, *, limit: int = 100) -> list[InboxRow]:
        """Return the newest rows, newest first."""
        raise NotImplementedError

    async def prune(self, *, now: float) -> int:
        """Forget finished rows and seen ids older than 7 days; return how many rows went."""
        raise NotImplementedError
