"""Which thread a chat talks to, and which topic an earlier message belonged to."""

import time
from collections.abc import Callable
from dataclasses import dataclass, replace

from store.database import Database, Row, Transaction, Value


@dataclass(frozen=True, slots=True, kw_only=True)
class ConversationKey:
    """A place where people talk: one conversation, one thread, strictly in order.

    Attributes:
        channel: The platform's name: `slack`, `telegram`, `feishu`, `terminal`.
        workspace: Slack team id, Feishu tenant key, Telegram bot id. Opaque.
        chat: The platform's chat id. Opaque.
        topic: Thread root, forum topic or first message of a reply chain; empty for a flat chat.
    """

    channel: str
    workspace: str
    chat: str
    topic: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Conversation:
    """A row of the conversation table."""

    id: int
    key: ConversationKey
    thread_id: str | None
    last_seq: int
    pending: int
    created_at: float
    updated_at: float


@dataclass(frozen=True, slots=True, kw_only=True)
class ChatMigration:
    """A chat that got another id."""

    channel: str
    workspace: str
    old_chat: str
    new_chat: str

    def apply(self, key: ConversationKey) -> ConversationKey:
        """Return a key of the old chat as it is in the new one; any other key as it is.

        >>> move = ChatMigration(channel="t", workspace="w", old_chat="-1", new_chat="-100")
        >>> move.present(ConversationKey(channel="t", workspace="w", chat="-1", topic="5")).topic
        '-1:5'
        """
        if (key.channel, key.workspace, key.chat) != (self.channel, self.workspace, self.old_chat):
            return key
        topic = f"{self.old_chat}:{key.topic}" if key.topic else ""
        return replace(key, chat=self.new_chat, topic=topic)


_FIND = """
SELECT * FROM conversation
WHERE channel = :channel AND workspace = :workspace AND chat = :chat AND topic = :topic
"""
_ID = """
SELECT id FROM conversation
WHERE channel = :channel AND workspace = :workspace AND chat = :chat AND topic = :topic
"""
_ENSURE = """
INSERT INTO conversation (channel, workspace, chat, topic, created_at, updated_at)
VALUES (:channel, :workspace, :chat, :topic, :now, :now)
ON CONFLICT (channel, workspace, chat, topic) DO UPDATE SET updated_at = conversation.updated_at
RETURNING id
"""
_BIND = """
UPDATE conversation SET thread_id = :thread_id, updated_at = :now
WHERE id = :id AND (thread_id IS NULL OR thread_id = :instead_of)
"""
_THREAD = "SELECT thread_id FROM conversation WHERE id = :id"
_MOVED = """
SELECT now_chat FROM moved_chat
WHERE channel = :channel AND workspace = :workspace AND chat = :chat
"""
_LISTING = """
SELECT * FROM conversation ORDER BY updated_at DESC, id DESC LIMIT :limit OFFSET :offset
"""


class ConversationStore:
    """The map from chats to threads."""

    def __init__(self, database: Database, *, now: Callable[[], float] = time.time) -> None:
        self._database = database
        self._now = now

    async def find(self, key: ConversationKey) -> Conversation | None:
        """Return the conversation of `key`, or None if nobody spoke there yet."""
        rows = await self._database.read(_FIND, key_params(key))
        if not rows:
            moved = await self._database.read(_MOVED, key_params(key))
            if moved:
                present = _present(key, moved[0])
                rows = await self._database.read(_FIND, key_params(present))
        return _conversation(rows[0]) if rows else None

    async def bind_thread(
        self, key: ConversationKey, thread_id: str, *, instead_of: str | None
    ) -> str:
        """Set the thread of `key` if it still is `instead_of` (None = unset); return the one that holds now.

        Compare-and-set: of two first messages one wins and both get its thread. Makes the row when missing.
        """
        now = self._now()

        def work(tx: Transaction) -> str:
            mine = {"id": ensure_conversation(tx, key, now=now)}
            tx.run(_BIND, {**mine, "thread_id": thread_id, "instead_of": instead_of, "now": now})
            return str(tx.run(_THREAD, mine)[0]["thread_id"])

        return await self._database.transaction(work)

    async def list_recent(self, *, limit: int = 100, offset: int = 0) -> list[Conversation]:
        """Return conversations, most recently used first."""
        rows = await self._database.read(_LISTING, {"limit": limit, "offset": offset})
        return [_conversation(row) for row in rows]


def ensure_conversation(tx: Transaction, key: ConversationKey, *, now: float) -> int:
    """Return the id of the row of `key`, made if it was missing. For the other tables' transactions.

    A key whose chat has another id by now means the conversation that moved with it.
    """
    params = key_params(key)
    found = tx.run(_ID, params)
    if not found:
        moved = tx.run(_MOVED, params)
        params = key_params(_present(key, moved[0])) if moved else params
        found = tx.run(_ENSURE, {**params, "now": now})
    return int(found[0]["id"])


def _present(key: ConversationKey, moved: Row) -> ConversationKey:
    move = ChatMigration(
        channel=key.channel,
        workspace=key.workspace,
        old_chat=key.chat,
        new_chat=moved["now_chat"],
    )
    return move.apply(key)


def key_params(key: ConversationKey) -> dict[str, Value]:
    """Return the statement parameters of a key."""
    return {
        "channel": key.channel,
        "workspace": key.workspace,
        "chat": key.chat,
        "topic": key.topic,
    }


def key_from_row(row: Row) -> ConversationKey:
    """Return the key in a row that was joined with its conversation."""
    return ConversationKey(
        channel=row["channel"], workspace=row["workspace"], chat=row["chat"], topic=row["topic"]
    )


def _conversation(row: Row) -> Conversation:
    return Conversation(
        id=row["id"],
        key=key_from_row(row),
        thread_id=row["thread_id"],
        last_seq=row["last_seq"],
        pending=row["pending"],
        created_at=row["created_at"],
        updated_at=row["updated_at"],
    )
