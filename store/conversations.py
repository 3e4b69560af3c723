"""Which thread a chat talks to, and which topic an earlier message belonged to."""

from dataclasses import dataclass

from store.database import Database


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


class Conversations:
    """The map from chats to threads."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def find(self, key: ConversationKey) -> Conversation | None:
        """Return the conversation of `key`, or None if nobody spoke there yet."""
        raise NotImplementedError

    async def bind(self, key: ConversationKey, thread_id: str, *, instead_of: str | None) -> str:
        """Set the thread of `key` if it still is `instead_of` (None = unset); return the one that holds now.

        Compare-and-set: of two first messages one wins and both get its thread. Makes the row when missing.
        """
        raise NotImplementedError

    async def listing(self, *, limit: int = 100, offset: int = 0) -> list[Conversation]:
        """Return conversations, most recently used first."""
        raise NotImplementedError
