"""What is owed to the platforms: a row before every send, a state after every attempt."""

import json
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

from store.conversations import ConversationKey, ensure_conversation, key_from_row, key_params
from store.database import Database, Params, Row, Transaction
from store.errors import RowConflict, RowNotFound

DeliveryState = Literal["pending", "sending", "delivered", "uncertain", "failed"]

NEWEST = 2**63 - 1
"""Above every id that SQLite gives: a page that begins with the newest row."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NewOutboxRow:
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
class OutboxRow:
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


DELIVERED_RETENTION_S = 7 * 86_400.0
"""How long a delivered row is kept for the admin to see, seconds."""
PRUNE_ROWS = 500
"""Rows deleted in one transaction, so that pruning never holds the writer for long."""

_SELECT = """
SELECT outbox.*, channel, workspace, chat, topic
FROM outbox JOIN conversation ON conversation.id = outbox.conversation_id
"""
_ADD = """
INSERT INTO outbox (key, conversation_id, body, created_at, updated_at)
VALUES (:key, :conversation_id, :body, :now, :now)
ON CONFLICT (key) DO NOTHING
"""
_BY_KEY = f"{_SELECT} WHERE outbox.key = :key"
_BY_ID = f"{_SELECT} WHERE outbox.id = :id"
_OPEN = f"{_SELECT} WHERE outbox.state IN ('pending', 'sending') ORDER BY outbox.id"
_OPEN_HERE = f"""{_SELECT}
WHERE outbox.state IN ('pending', 'sending')
AND channel = :channel AND workspace = :workspace AND chat = :chat AND topic = :topic
ORDER BY outbox.id
"""
_BEGIN = """
UPDATE outbox SET state = 'sending', attempts = attempts + 1, updated_at = :now
WHERE id = :id AND state IN ('pending', 'sending')
RETURNING id
"""
_CLOSE = """
UPDATE outbox SET state = :state, platform_id = :platform_id, error = :error, updated_at = :now
WHERE id = :id AND state IN ('pending', 'sending')
"""
_POSTPONE = """
UPDATE outbox SET state = 'pending', not_before = :not_before, error = :error, updated_at = :now
WHERE id = :id AND state IN ('pending', 'sending')
"""
_RESEND = """
UPDATE outbox SET state = 'pending', attempts = 0, not_before = 0, error = NULL, updated_at = :now
WHERE id = :id AND state IN ('failed', 'uncertain')
RETURNING id
"""
_DISCARD = "DELETE FROM outbox WHERE id = :id AND state <> 'sending' RETURNING id"
_LISTING = f"{_SELECT} WHERE outbox.id < :before ORDER BY outbox.id DESC LIMIT :limit"
_LISTING_STATES = f"""{_SELECT}
WHERE outbox.state IN (SELECT value FROM json_each(:states)) AND outbox.id < :before
ORDER BY outbox.id DESC LIMIT :limit
"""  # noqa: S608 - both parts are constants
_UNDELIVERED_BY_STATE = """
SELECT state, count(*) AS rows FROM outbox
WHERE state IN ('pending', 'sending', 'uncertain', 'failed') GROUP BY state
"""
_PRUNE = """
DELETE FROM outbox WHERE id IN (
    SELECT id FROM outbox WHERE state = 'delivered' AND updated_at < :before ORDER BY id LIMIT :rows
)
RETURNING id
"""


class OutboxStore:
    """The deliveries owed and done."""

    def __init__(self, database: Database, *, now: Callable[[], float] = time.time) -> None:
        self._database = database
        self._now = now

    async def enqueue(self, deliveries: Sequence[NewOutboxRow]) -> list[OutboxRow]:
        """Owe deliveries; a key that exists already is left alone. Returns the rows as they now are."""
        now = self._now()

        def work(tx: Transaction) -> list[OutboxRow]:
            insert_outbox_rows(tx, deliveries, now=now)
            return [_delivery(tx.run(_BY_KEY, {"key": new.key})[0]) for new in deliveries]

        return await self._database.transaction(work)

    async def find(self, key: str) -> OutboxRow | None:
        """Return the row with this key."""
        rows = await self._database.read(_BY_KEY, {"key": key})
        return _delivery(rows[0]) if rows else None

    async def get(self, delivery_id: int) -> OutboxRow:
        """Return one row. Raises RowNotFound."""
        rows = await self._database.read(_BY_ID, {"id": delivery_id})
        if not rows:
            raise RowNotFound(f"There is no delivery {delivery_id}.")
        return _delivery(rows[0])

    async def list_open(self, conversation: ConversationKey | None = None) -> list[OutboxRow]:
        """Return pending and sending rows in order of their ids, of one conversation or of all."""
        if conversation is None:
            rows = await self._database.read(_OPEN)
        else:
            rows = await self._database.read(_OPEN_HERE, key_params(conversation))
        return [_delivery(row) for row in rows]

    async def mark_sending(self, delivery_id: int, *, now: float) -> bool:
        """Note an attempt (state sending, attempts + 1) before it is made. False if the row is closed."""
        params: Params = {"id": delivery_id, "now": now}
        return bool(await self._database.transaction(lambda tx: tx.run(_BEGIN, params)))

    async def mark_delivered(
        self, delivery_id: int, platform_id: str | None, *, now: float, uncertain: bool = False
    ) -> None:
        """Close a row. `uncertain`: it was repeated without knowing whether the first send arrived."""
        params: Params = {
            "id": delivery_id,
            "state": "uncertain" if uncertain else "delivered",
            "platform_id": platform_id,
            "error": None,
            "now": now,
        }
        await self._database.transaction(lambda tx: tx.run(_CLOSE, params))

    async def reschedule(
        self, delivery_id: int, *, not_before: float, error: str, now: float
    ) -> None:
        """Back to pending, not to be tried before the given time."""
        params: Params = {"id": delivery_id, "not_before": not_before, "error": error, "now": now}
        await self._database.transaction(lambda tx: tx.run(_POSTPONE, params))

    async def mark_failed(self, delivery_id: int, *, error: str, now: float) -> None:
        """Give a row up; the admin sees it."""
        params: Params = {
            "id": delivery_id,
            "state": "failed",
            "platform_id": None,
            "error": error,
            "now": now,
        }
        await self._database.transaction(lambda tx: tx.run(_CLOSE, params))

    async def resend(self, delivery_id: int, *, now: float) -> OutboxRow:
        """Put a failed or uncertain row back to pending. Raises RowNotFound, RowConflict (state differs)."""
        params: Params = {"id": delivery_id, "now": now}

        def work(tx: Transaction) -> OutboxRow:
            before = _existing(tx, delivery_id)
            if not tx.run(_RESEND, params):
                raise RowConflict(
                    f"Delivery {delivery_id} is {before.state}, not failed or uncertain."
                )
            return _existing(tx, delivery_id)

        return await self._database.transaction(work)

    async def discard(self, delivery_id: int) -> None:
        """Delete a row that is not being sent. Raises RowNotFound, RowConflict."""

        def work(tx: Transaction) -> None:
            _existing(tx, delivery_id)
            if not tx.run(_DISCARD, {"id": delivery_id}):
                raise RowConflict(f"Delivery {delivery_id} is being sent.")

        await self._database.transaction(work)

    async def list_recent(
        self, *, states: Sequence[DeliveryState] = (), limit: int = 100, before: int = NEWEST
    ) -> list[OutboxRow]:
        """Return rows, newest first; only those with an id below `before`."""
        params: Params = {"limit": limit, "before": before, "states": json.dumps(list(states))}
        rows = await self._database.read(_LISTING_STATES if states else _LISTING, params)
        return [_delivery(row) for row in rows]

    async def count_by_state(self) -> dict[str, int]:
        """Return how many deliveries are not delivered, by state."""
        rows = await self._database.read(_UNDELIVERED_BY_STATE)
        return {str(row["state"]): int(str(row["rows"])) for row in rows}

    async def prune(self, *, now: float) -> int:
        """Forget delivered rows older than 7 days."""
        params: Params = {"before": now - DELIVERED_RETENTION_S, "rows": PRUNE_ROWS}
        gone = 0
        while True:
            batch = len(await self._database.transaction(lambda tx: tx.run(_PRUNE, params)))
            gone += batch
            if batch < PRUNE_ROWS:
                return gone


def insert_outbox_rows(tx: Transaction, deliveries: Sequence[NewOutboxRow], *, now: float) -> None:
    """Insert deliveries inside another table's transaction; a key that exists already is left alone."""
    for new in deliveries:
        conversation_id = ensure_conversation(tx, new.conversation, now=now)
        tx.run(
            _ADD,
            {"key": new.key, "conversation_id": conversation_id, "body": new.body, "now": now},
        )


def _existing(tx: Transaction, delivery_id: int) -> OutboxRow:
    rows = tx.run(_BY_ID, {"id": delivery_id})
    if not rows:
        raise RowNotFound(f"There is no delivery {delivery_id}.")
    return _delivery(rows[0])


def _delivery(row: Row) -> OutboxRow:
    return OutboxRow(
        id=row["id"],
        key=row["key"],
        conversation=key_from_row(row),
        body=row["body"],
        state=row["state"],
        attempts=row["attempts"],
        not_before=row["not_before"],
        platform_id=row["platform_id"],
        error=row["error"],
        created_at=row["created_at"],
        updated_at=row["updated_at"],
    )


_REMEMBER = """
INSERT INTO origin (channel, workspace, chat, message_id, topic)
VALUES (:channel, :workspace, :chat, :message_id, :topic)
ON CONFLICT (channel, workspace, chat, message_id) DO UPDATE SET topic = excluded.topic
"""
_TOPIC_OF = """
SELECT topic FROM origin
WHERE channel = :channel AND workspace = :workspace AND chat = :chat AND message_id = :message_id
"""


class MessageTopicStore:
    """Which conversation a platform message belonged to, so that a reply to it finds the way back."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def set_topic(self, key: ConversationKey, message_id: str) -> None:
        """Note that `message_id` was said in `key` (by the bot, or by a person)."""
        await self._database.transaction(lambda tx: insert_message_topic(tx, key, message_id))

    async def find_topic(self, key: ConversationKey, message_id: str) -> str | None:
        """Return the topic in which `message_id` of this channel, workspace and chat was said."""
        rows = await self._database.read(_TOPIC_OF, {**key_params(key), "message_id": message_id})
        return str(rows[0]["topic"]) if rows else None


def insert_message_topic(tx: Transaction, key: ConversationKey, message_id: str) -> None:
    """`MessageTopicStore.remember` inside another table's transaction."""
    tx.run(_REMEMBER, {**key_params(key), "message_id": message_id})


def select_topic(tx: Transaction, key: ConversationKey, message_id: str) -> str | None:
    """`MessageTopicStore.topic_of` inside another table's transaction."""
    rows = tx.run(_TOPIC_OF, {**key_params(key), "message_id": message_id})
    return str(rows[0]["topic"]) if rows else None
