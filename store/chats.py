"""Chats in which people have written to the bot. Their rows outlive the messages in the inbox."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from anyio import to_thread

from store.database import Database, Params, Row, Statement, Transaction
from store.people import search_pattern, search_text
from store.rows import from_row, to_params

# The newest message that a person wrote in each recently used conversation. Events of other systems do not count.
_NEWEST = """
SELECT channel, workspace, chat, body, received_at FROM conversation
JOIN inbox ON inbox.conversation_id = conversation.id
WHERE conversation.updated_at >= :since
AND inbox.seq = (
    SELECT max(seq) FROM inbox WHERE conversation_id = conversation.id AND event_id NOT LIKE 'hook:%')
"""
_PUT = """
INSERT INTO chat (channel, workspace, chat, is_private, user_id, user_kind, recipient, room, title, search, received_at)
VALUES (:channel, :workspace, :chat, :is_private, :user_id, :user_kind, :recipient, :room, :title, :search,
    :received_at)
ON CONFLICT (channel, workspace, chat) DO UPDATE SET is_private = excluded.is_private, user_id = excluded.user_id,
    user_kind = excluded.user_kind, recipient = excluded.recipient, received_at = excluded.received_at,
    title = CASE WHEN excluded.title = '' THEN chat.title ELSE excluded.title END,
    search = CASE WHEN excluded.title = '' THEN chat.search ELSE excluded.search END
WHERE excluded.received_at > chat.received_at
"""
_NEWEST_TIME = "SELECT coalesce(max(received_at), 0.0) AS received_at FROM chat"
# On some platforms, the ID of a person's direct chat is not the person's ID.
_FIND = """
SELECT * FROM chat WHERE channel = :channel AND (chat = :chat OR (is_private = 1 AND user_id = :person))
AND (:workspace = '' OR workspace = :workspace) ORDER BY received_at DESC LIMIT 1
"""
_FIND_WORKSPACE = """
SELECT (SELECT min(workspace) FROM chat WHERE channel = :channel) AS first,
    (SELECT max(workspace) FROM chat WHERE channel = :channel) AS last
"""
_LIST = """
SELECT * FROM chat WHERE channel = :channel AND received_at >= :since ORDER BY workspace, chat
"""
_SEARCH = """
SELECT * FROM chat WHERE (:channel = '' OR channel = :channel)
AND (:is_private < 0 OR is_private = :is_private) AND search LIKE :search ESCAPE '!'
ORDER BY received_at DESC, channel, workspace, chat LIMIT :limit OFFSET :offset
"""
_TITLES = "SELECT room, title FROM chat WHERE room IN (SELECT value FROM json_each(:rooms))"

BATCH = 200
"""Chats per transaction."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NewestMessage:
    """The encoded newest message of a conversation, and when it was accepted (Unix seconds)."""

    channel: str
    workspace: str
    chat: str
    body: str
    received_at: float


@dataclass(frozen=True, slots=True, kw_only=True)
class KnownChat:
    """A chat in which people wrote to the bot.

    Attributes:
        is_private: Whether only one person and the bot are in it.
        user_id: The author of the newest message.
        user_kind: Their `SenderKind` (bus/messages.py).
        recipient: What the platform needs, besides the chat's ID, to send a message there (`ReplyTarget.user`).
        room: Its name in the model_usage table.
        title: The name of the group or of the other person; "" = unknown.
        received_at: When the newest message was accepted, Unix seconds.
    """

    channel: str
    workspace: str
    chat: str
    is_private: bool
    user_id: str
    user_kind: str
    recipient: str
    received_at: float
    room: str = ""
    title: str = ""


class ChatStore:
    """The chat table. It may have 100,000 rows: slow work runs in worker threads."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def list_newest(self, *, since: float) -> list[NewestMessage]:
        """Return the newest message from a person in each conversation used since a time (Unix seconds)."""
        rows = await self._database.read(_NEWEST, {"since": since})
        return await to_thread.run_sync(lambda: [from_row(NewestMessage, row) for row in rows])

    async def put(self, chats: Sequence[KnownChat]) -> None:
        """Store chats in batches, oldest message first, unless the table has a newer message.

        If this is interrupted, the table is complete up to its newest time.
        """
        for batch in await to_thread.run_sync(_batches, chats):
            await self._database.transaction(partial(_run_all, statements=batch))

    async def find_newest_time(self) -> float:
        """Return when the newest message in any chat was accepted, Unix seconds; 0.0 = the table is empty."""
        return float((await self._database.read(_NEWEST_TIME))[0]["received_at"])

    async def find(
        self, channel: str, *, chat: str, person: str, workspace: str = ""
    ) -> KnownChat | None:
        """Return a chat by its ID, or the private chat with a person; None = no one has written in it."""
        params: Params = {
            "channel": channel,
            "chat": chat,
            "person": person,
            "workspace": workspace,
        }
        rows = await self._database.read(_FIND, params)
        return _known_chat(rows[0]) if rows else None

    async def find_workspace(self, channel: str) -> str:
        """Return the workspace that all chats of a channel are in; "" = no chats, or several workspaces."""
        found = (await self._database.read(_FIND_WORKSPACE, {"channel": channel}))[0]
        return str(found["first"]) if found["first"] == found["last"] and found["first"] else ""

    async def list_channel(self, channel: str, *, since: float) -> list[KnownChat]:
        """Return the chats of a channel with a message since a time (Unix seconds), ordered by ID."""
        rows = await self._database.read(_LIST, {"channel": channel, "since": since})
        return await to_thread.run_sync(lambda: [_known_chat(row) for row in rows])

    async def search(
        self, text: str, *, channel: str, is_private: bool | None, limit: int, offset: int
    ) -> list[KnownChat]:
        """Return chats whose name or ID contains a text, most recent message first. Raises StoreError.

        `is_private`: None = both groups and private chats.
        """
        params: Params = {
            "channel": channel,
            "is_private": -1 if is_private is None else int(is_private),
            "search": search_pattern(text),
            "limit": limit,
            "offset": offset,
        }
        return [_known_chat(row) for row in await self._database.read(_SEARCH, params)]

    async def titles(self, rooms: Sequence[str]) -> Mapping[str, str]:
        """Return the titles of chats, by `room`. Raises StoreError."""
        rows = await self._database.read(_TITLES, {"rooms": json.dumps(rooms)})
        return {row["room"]: row["title"] for row in rows if row["title"]}


def _batches(chats: Sequence[KnownChat]) -> list[list[Statement]]:
    """Return the statements that store chats, oldest message first."""
    ordered = sorted(chats, key=lambda one: one.received_at)
    return [_statements(ordered[start : start + BATCH]) for start in range(0, len(ordered), BATCH)]


def _statements(chats: Sequence[KnownChat]) -> list[Statement]:
    """Return the statements of a batch, in the same order in every process, so that two processes cannot deadlock."""
    ordered = sorted(chats, key=lambda one: (one.channel, one.workspace, one.chat))
    return [chat_statement(one) for one in ordered]


def chat_statement(chat: KnownChat) -> Statement:
    """Return the statement that stores a chat, unless the table has a newer message."""
    search = search_text(chat.title, chat.chat)
    return _PUT, {**to_params(chat), "is_private": int(chat.is_private), "search": search}


def _run_all(tx: Transaction, statements: list[Statement]) -> None:
    tx.run_all(statements)


def _known_chat(row: Row) -> KnownChat:
    return from_row(KnownChat, row, is_private=bool(row["is_private"]))
