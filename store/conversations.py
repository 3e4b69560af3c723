"""Conversations: the thread of each chat and topic."""

import json
import time
from collections.abc import Callable
from dataclasses import dataclass, replace

from store.database import Database, Row, Transaction, Value
from store.rows import from_row


@dataclass(frozen=True, slots=True, kw_only=True)
class ConversationKey:
    """Identifies a conversation: one thread, messages strictly in order.

    Attributes:
        channel: The configured name of the bot account: `slack`, `telegram-support`.
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
    """A row of the conversation table.

    Attributes:
        last_seq: The position of its last message.
        pending: Number of its unfinished chat messages.
        updated_at: When it was last used, up to a minute too early, Unix seconds.
        taken_over_by: The person who answers instead of the agent; None = the agent answers.
        taken_over_at: When that person took over, Unix seconds.
    """

    id: int
    key: ConversationKey
    thread_id: str | None
    last_seq: int
    pending: int
    created_at: float
    updated_at: float
    taken_over_by: str | None = None
    taken_over_at: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ChatMigration:
    """A chat whose id changed: a Telegram group that became a supergroup."""

    channel: str
    workspace: str
    old_chat: str
    new_chat: str

    def apply(self, key: ConversationKey) -> ConversationKey:
        """Return a key of the old chat as a key of the new one; any other key unchanged.

        >>> move = ChatMigration(channel="t", workspace="w", old_chat="-1", new_chat="-100")
        >>> move.apply(ConversationKey(channel="t", workspace="w", chat="-1", topic="5")).topic
        '-1:5'
        """
        if (key.channel, key.workspace, key.chat) != (self.channel, self.workspace, self.old_chat):
            return key
        topic = f"{self.old_chat}:{key.topic}" if key.topic else ""
        return replace(key, chat=self.new_chat, topic=topic)


LAST_SEQ = """
coalesce((SELECT max(seq) FROM inbox WHERE conversation_id = conversation.id AND seq > last_seq), last_seq)
"""
"""The position of a conversation's last message. Its `last_seq` counts deleted messages only."""

_SELECT = f"""
SELECT id, channel, workspace, chat, topic, thread_id, created_at, updated_at, taken_over_by, taken_over_at,
    {LAST_SEQ} AS last_seq,
    (SELECT count(*) FROM inbox WHERE conversation_id = conversation.id AND state IN ('new', 'running')
        AND kind = 'chat') AS pending
FROM conversation
"""  # noqa: S608 - statements of this module only
_FIND = f"""{_SELECT}
WHERE channel = :channel AND workspace = :workspace AND chat = :chat AND topic = :topic
"""
_LOCK = """
SELECT id, chat, thread_id, last_seq, updated_at, taken_over_by FROM conversation
WHERE channel = :channel AND workspace = :workspace AND chat = :chat AND topic = :topic
/* FOR UPDATE */
"""
_ENSURE = """
INSERT INTO conversation (channel, workspace, chat, topic, created_at, updated_at)
VALUES (:channel, :workspace, :chat, :topic, :now, :now)
ON CONFLICT (channel, workspace, chat, topic) DO UPDATE SET updated_at = conversation.updated_at
RETURNING id, chat, thread_id, last_seq, updated_at, taken_over_by
"""
# Rows that ended without a thread were never answered. If the conversation has no rows, retention deleted them.
_HAS_MESSAGES = """
SELECT 1 FROM conversation WHERE id = :id AND thread_id IS NOT NULL
AND NOT EXISTS (SELECT 1 FROM inbox WHERE conversation_id = conversation.id)
UNION ALL
SELECT 1 FROM inbox JOIN conversation ON conversation.id = inbox.conversation_id
WHERE conversation.id = :id AND inbox.kind = 'chat'
AND (inbox.thread_id = conversation.thread_id OR inbox.thread_id IS NULL AND inbox.state IN ('new', 'running'))
LIMIT 1
"""
_OF_THREAD = f"{_SELECT} WHERE thread_id = :thread_id LIMIT 1"
_METADATA = "SELECT metadata FROM thread WHERE thread_id = :thread_id"
_BIND = """
UPDATE conversation SET thread_id = :thread_id, updated_at = :now
WHERE id = :id AND (thread_id IS NULL OR thread_id = :instead_of)
"""
_THREAD = "SELECT thread_id FROM conversation WHERE id = :id"
_MIGRATION = """
SELECT new_chat FROM chat_migration
WHERE channel = :channel AND workspace = :workspace AND old_chat = :chat
"""
_LISTING = f"""{_SELECT}
WHERE :channel = '' OR channel = :channel
ORDER BY updated_at DESC, id DESC LIMIT :limit OFFSET :offset
"""


class ConversationStore:
    """The conversation table."""

    def __init__(self, database: Database, *, now: Callable[[], float] = time.time) -> None:
        self._database = database
        self._now = now

    async def find(self, key: ConversationKey) -> Conversation | None:
        """Return the conversation of `key`, or None if it has no messages yet."""
        rows = await self._database.read(_FIND, key_params(key))
        while not rows:
            migrated = await self._database.read(_MIGRATION, key_params(key))
            if not migrated:
                return None
            key = _migrated(key, migrated[0])
            rows = await self._database.read(_FIND, key_params(key))
        return _conversation(rows[0])

    async def find_of_thread(self, thread_id: str) -> Conversation | None:
        """Return the conversation that a thread was created for; None if there is none.

        The thread's metadata names the conversation. Threads of another server have no row here: for them, this returns
        the conversation that uses the thread now.
        """
        params: dict[str, Value] = {"thread_id": thread_id}
        for row in await self._database.read(_METADATA, params):
            names = json.loads(row["metadata"])
            key = {name: names.get(name) for name in ("channel", "workspace", "chat", "topic")}
            if not all(isinstance(part, str) for part in key.values()):
                return None
            return await self.find(ConversationKey(**key))
        rows = await self._database.read(_OF_THREAD, params)
        return _conversation(rows[0]) if rows else None

    async def has_messages(self, key: ConversationKey) -> bool:
        """Return whether the current thread of `key` has messages. Right after /new it has none."""
        found = await self.find(key)
        return found is not None and bool(
            await self._database.read(_HAS_MESSAGES, {"id": found.id})
        )

    async def bind_thread(
        self, key: ConversationKey, thread_id: str, *, instead_of: str | None
    ) -> str:
        """Set the thread of `key` if it still is `instead_of` (None = unset); return the current one.

        Compare-and-set: if two first messages race, one wins and both get its thread. Inserts a missing row.
        """
        now = self._now()

        def work(tx: Transaction) -> str:
            mine = {"id": lock_conversation(tx, key, now=now)["id"]}
            tx.run(_BIND, {**mine, "thread_id": thread_id, "instead_of": instead_of, "now": now})
            return str(tx.run(_THREAD, mine)[0]["thread_id"])

        return await self._database.transaction(work)

    async def list_recent(
        self, *, channel: str = "", limit: int = 100, offset: int = 0
    ) -> list[Conversation]:
        """Return conversations of a channel, or of all, most recently used first."""
        rows = await self._database.read(
            _LISTING, {"channel": channel, "limit": limit, "offset": offset}
        )
        return [_conversation(row) for row in rows]


def lock_conversation(tx: Transaction, key: ConversationKey, *, now: float) -> Row:
    """Lock the row of `key`, inserting it if it is missing. For other stores' transactions.

    The key of a migrated chat means the conversation under the chat's new ID.

    Returns:
        Its `id`, `chat`, `thread_id`, `last_seq`, `updated_at` and `taken_over_by`.
    """
    while True:
        if found := tx.run(_LOCK, key_params(key)):
            return found[0]
        if not (migrated := tx.run(_MIGRATION, key_params(key))):
            return tx.run(_ENSURE, {**key_params(key), "now": now})[0]
        key = _migrated(key, migrated[0])


def current_key_in(tx: Transaction, key: ConversationKey) -> ConversationKey:
    """Return the key under which a conversation is stored now. For other stores' transactions."""
    while migrated := tx.run(_MIGRATION, key_params(key)):
        key = _migrated(key, migrated[0])
    return key


def _migrated(key: ConversationKey, row: Row) -> ConversationKey:
    migration = ChatMigration(
        channel=key.channel, workspace=key.workspace, old_chat=key.chat, new_chat=row["new_chat"]
    )
    return migration.apply(key)


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
    return from_row(ConversationKey, row)


def _conversation(row: Row) -> Conversation:
    return from_row(Conversation, row, key=key_from_row(row))
