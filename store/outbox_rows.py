"""Rows of the outbox."""

from dataclasses import dataclass
from typing import Literal

from store.conversations import ConversationKey

DeliveryState = Literal["pending", "sending", "delivered", "uncertain", "failed"]


@dataclass(frozen=True, slots=True, kw_only=True)
class NewOutboxRow:
    """A platform message to send.

    Attributes:
        key: Unique for ever; identifies a repeated send ("<inbox id>:text:0").
        conversation: Rows of one conversation are sent in order.
        body: The encoded message (bus/messages.py).
        not_before: When the first attempt is due, Unix seconds. Rows behind it do not wait for that.
        supersedes: Key of a row that is deleted, unless it was attempted, because this one says it all; "" = none.
    """

    key: str
    conversation: ConversationKey
    body: str
    not_before: float = 0.0
    supersedes: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class OutboxRow:
    """A row of the outbox. Times are Unix seconds.

    Attributes:
        state: `sending` = an attempt started and its outcome is not recorded: unknown after a crash.
        first_sent_at: Start of the first attempt; the platform's idempotency window counts from here.
        last_sent_at: Start of the latest attempt.
        uncertain_attempts: Attempts whose outcome is unknown: the message may have arrived.
    """

    id: int
    key: str
    conversation: ConversationKey
    body: str
    state: DeliveryState
    attempts: int
    not_before: float
    platform_id: str | None
    error: str | None
    created_at: float
    updated_at: float
    first_sent_at: float | None = None
    last_sent_at: float | None = None
    uncertain_attempts: int = 0
