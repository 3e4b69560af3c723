"""The topic of each platform message, so that a reply to it finds its conversation."""

import time
from collections.abc import Callable

from store.conversations import ConversationKey, key_params
from store.database import Database, Statement

_SET = """
INSERT INTO message_topic (channel, workspace, chat, message_id, topic, created_at)
VALUES (:channel, :workspace, :chat, :message_id, :topic, :now)
ON CONFLICT (channel, workspace, chat, message_id) DO UPDATE SET topic = excluded.topic
"""
_FIND = """
SELECT topic FROM message_topic
WHERE channel = :channel AND workspace = :workspace AND chat = :chat AND message_id = :message_id
"""


class MessageTopicStore:
    """The message_topic table: messages of people and of the bot, by their platform ids."""

    def __init__(self, database: Database, *, now: Callable[[], float] = time.time) -> None:
        self._database = database
        self._now = now

    async def set_topic(self, key: ConversationKey, message_id: str) -> None:
        """Store that `message_id` belongs to the topic of `key`."""
        statement = set_topic_statement(key, message_id, now=self._now())
        await self._database.transaction(lambda tx: tx.run(*statement))

    async def find_topic(self, key: ConversationKey, message_id: str) -> str | None:
        """Return the topic of `message_id` in the channel, workspace and chat of `key`."""
        rows = await self._database.read(_FIND, {**key_params(key), "message_id": message_id})
        return str(rows[0]["topic"]) if rows else None


def set_topic_statement(key: ConversationKey, message_id: str, *, now: float) -> Statement:
    """Return the statement of `MessageTopicStore.set_topic`, for another store's transaction."""
    return _SET, {**key_params(key), "message_id": message_id, "now": now}


def topic_statement(key: ConversationKey, message_id: str) -> Statement:
    """Return the statement of `MessageTopicStore.find_topic`, for another store's transaction."""
    return _FIND, {**key_params(key), "message_id": message_id}
