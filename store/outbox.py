"""What is owed to the platforms: a row before every send, a state after every attempt."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from store.conversations import ConversationKey
from store.database import Database

DeliveryState = Literal["pending", "sending", "delivered", "uncertain", "failed"]


@dataclass(frozen=True, slots=True, kw_only=True)
class NewDelivery:
    """One platform message owed.

    Attributes:
        key: Unique for ever; what makes a repeated send recognisable ("<inbox id>:text:0").
        conversation: Where it belongs. Rows of one conversation go out in order.
        body: The encoded delivery (bus/messages.py).
    """

    key: str
    conversation: ConversationKey
    body: str


@dataclass(frozen=True, slots=True, kw_only=True)
class DeliveryRow:
    """A row of the outbox. Times are Unix seconds.

    `sending` means an attempt was begun and its outcome is not recorded: after a crash it is in doubt.
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


class Outbox:
    """The deliveries owed and done."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def add(self, deliveries: Sequence[NewDelivery]) -> list[DeliveryRow]:
        """Owe deliveries; a key that exists already is left alone. Returns the rows as they now are."""
        raise NotImplementedError

    async def find(self, key: str) -> DeliveryRow | None:
        """Return the row with this key."""
        raise NotImplementedError

    async def get(self, delivery_id: int) -> DeliveryRow:
        """Return one row. Raises NotFound."""
        raise NotImplementedError

    async def open_rows(self, conversation: ConversationKey | None = None) -> list[DeliveryRow]:
        """Return pending and sending rows in order of their ids, of one conversation or of all."""
        raise NotImplementedError

    async def begin(self, delivery_id: int, *, now: float) -> bool:
        """Note an attempt (state sending, attempts + 1) before it is made. False if the row is closed."""
        raise NotImplementedError

    async def delivered(
        self, delivery_id: int, platform_id: str | None, *, now: float, uncertain: bool = False
    ) -> None:
        """Close a row. `uncertain`: it was repeated without knowing whether the first send arrived."""
        raise NotImplementedError

    async def postpone(
        self, delivery_id: int, *, not_before: float, error: str, now: float
    ) -> None:
        """Back to pending, not to be tried before the given time."""
        raise NotImplementedError

    async def fail(self, delivery_id: int, *, error: str, now: float) -> None:
        """Give a row up; the admin sees it."""
        raise NotImplementedError

    async def resend(self, delivery_id: int, *, now: float) -> DeliveryRow:
        """Put a failed or uncertain row back to pending. Raises NotFound, Conflict (state differs)."""
        raise NotImplementedError

    async def discard(self, delivery_id: int) -> None:
        """Delete a row that is not being sent. Raises NotFound, Conflict."""
        raise NotImplementedError

    async def listing(
        self, *, states: Sequence[DeliveryState] = (), limit: int = 100
    ) -> list[DeliveryRow]:
        """Return rows, newest first."""
        raise NotImplementedError

    async def prune(self, *, now: float) -> int:
        """Forget delivered rows older than 7 days."""
        raise NotImplementedError


class Origins:
    """Which conversation a platform message belonged to, so that a reply to it finds the way back."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def remember(self, key: ConversationKey, message_id: str) -> None:
        """Note that `message_id` was said in `key` (by the bot, or by a person)."""
        raise NotImplementedError

    async def topic_of(self, key: ConversationKey, message_id: str) -> str | None:
        """Return the topic in which `message_id` of this channel, workspace and chat was said."""
        raise NotImplementedError
