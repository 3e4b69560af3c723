"""Notifications: messages from API clients to one chat or to many (broadcasts), and chats waiting for a broadcast."""

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from anyio import to_thread

from store.chats import KnownChat
from store.conversations import ConversationKey
from store.database import Database, Params, Transaction
from store.errors import RowConflict, RowNotFound
from store.outbox import NewOutboxRow, insert_outbox_rows
from store.rows import from_row

BROADCAST = ""
"""The channel in the row of a broadcast."""

_INSERT = """
INSERT INTO notification (channel, key, digest, text, files, recipients, created_at)
VALUES (:channel, :key, :digest, :text, :files, :recipients, :created_at)
ON CONFLICT (channel, key) DO NOTHING
RETURNING id
"""
_FIND = "SELECT * FROM notification WHERE channel = :channel AND key = :key"
_INSERT_CHATS = """
INSERT INTO notification_chat (channel, notification_id, workspace, chat, is_private, recipient)
SELECT json_extract(value, '$.channel'), :notification_id, json_extract(value, '$.workspace'),
    json_extract(value, '$.chat'), CAST(json_extract(value, '$.is_private') AS BIGINT),
    json_extract(value, '$.recipient')
FROM json_each(:chats)
"""
_COUNT = "SELECT count(*) AS chats FROM notification_chat WHERE notification_id = :id"
_NEXT = """
SELECT * FROM notification WHERE id = (
    SELECT notification_id FROM notification_chat WHERE channel = :channel ORDER BY channel, notification_id LIMIT 1)
"""
_TAKE = """
DELETE FROM notification_chat WHERE (channel, notification_id, workspace, chat) IN (
    SELECT channel, notification_id, workspace, chat FROM notification_chat
    WHERE channel = :channel AND notification_id = :id ORDER BY channel, notification_id, workspace, chat LIMIT :rows)
RETURNING *
"""
_BROADCASTS = """
SELECT notification.*, (
    SELECT count(*) FROM notification_chat WHERE notification_id = notification.id) AS waiting
FROM notification WHERE channel = '' ORDER BY id DESC LIMIT :limit
"""
_COUNT_STATES = """
SELECT state, count(*) AS rows, (
    SELECT body FROM outbox WHERE key > :first AND key < :after ORDER BY key LIMIT 1) AS body
FROM outbox WHERE key > :first AND key < :after GROUP BY state
"""
_FORGET_CONTENT = """
UPDATE notification SET text = '', files = ''
WHERE id = :id AND (text <> '' OR files <> '') AND NOT EXISTS (
    SELECT 1 FROM notification_chat WHERE notification_id = notification.id)
"""
_STOP = "DELETE FROM notification_chat WHERE notification_id = :id RETURNING chat"
_STILL_OPEN = """
SELECT key FROM outbox
WHERE key IN (SELECT value FROM json_each(:keys)) AND state IN ('pending', 'sending')
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class NewNotification:
    """A notification to accept.

    Attributes:
        channel: The channel; `BROADCAST` = a broadcast.
        key: The client's name for it.
        digest: A hash of the request, the same when the request is repeated.
        text: The Markdown of a broadcast.
        files: Its files. Opaque here.
        recipients: Who gets it, as stated in the response. Opaque here.
        created_at: Unix seconds.
    """

    channel: str
    key: str
    digest: str
    text: str = ""
    files: str = ""
    recipients: str
    created_at: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Notification(NewNotification):
    """An accepted notification."""

    id: int


@dataclass(frozen=True, slots=True, kw_only=True)
class WaitingChat:
    """A chat that waits for a broadcast. Fields as in `KnownChat`."""

    conversation: ConversationKey
    is_private: bool
    recipient: str


class NotificationStore:
    """The tables notification and notification_chat."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def find(self, channel: str, key: str) -> Notification | None:
        """Return the notification with this key."""
        rows = await self._database.read(_FIND, {"channel": channel, "key": key})
        return from_row(Notification, rows[0]) if rows else None

    async def find_repeated(self, channel: str, key: str, digest: str) -> Notification | None:
        """Return the notification that a request repeats. Raises RowConflict if a different one has this key."""
        found = await self.find(channel, key)
        if found is not None and found.digest != digest:
            raise _key_conflict(channel, key)
        return found

    async def list_broadcasts(self, *, limit: int) -> list[tuple[Notification, int]]:
        """Return the newest broadcasts, newest first, each with the number of chats that wait for it."""
        rows = await self._database.read(_BROADCASTS, {"limit": limit})
        return [
            (
                from_row(Notification, {k: v for k, v in row.items() if k != "waiting"}),
                int(row["waiting"]),
            )
            for row in rows
        ]

    async def count_states(self, key_prefix: str) -> tuple[dict[str, int], str]:
        """Return the number of outbox rows in each state, and the body of the first row; "" = there are no rows.

        The keys of the rows begin with `key_prefix`, which ends with `:`.
        """
        after = f"{key_prefix[:-1]};"
        rows = await self._database.read(_COUNT_STATES, {"first": key_prefix, "after": after})
        states = {str(row["state"]): int(row["rows"]) for row in rows}
        return states, str(rows[0]["body"]) if rows else ""

    async def count_waiting(self, notification_id: int) -> int:
        """Return the number of chats for which the message is not in the outbox yet."""
        return int((await self._database.read(_COUNT, {"id": notification_id}))[0]["chats"])

    async def accept(
        self,
        new: NewNotification,
        *,
        rows: Sequence[NewOutboxRow] = (),
        chats: Sequence[KnownChat] = (),
    ) -> bool:
        """Store a notification, its outbox rows and the chats that wait for it, unless it is stored already.

        Return whether this call stored it.

        Raises:
            RowConflict: Another notification has this key.
        """
        addresses = await to_thread.run_sync(_encode, chats)
        kept = new if chats else replace(new, text="", files="")  # No chat waits for them.

        def work(tx: Transaction) -> bool:
            number = _insert(tx, kept)
            if number is None:
                return False
            insert_outbox_rows(tx, rows, now=new.created_at)
            if chats:
                tx.run(_INSERT_CHATS, {"notification_id": number, "chats": addresses})
            return True

        return await self._database.transaction(work)

    async def stop(self, key: str) -> int:
        """Cancel a broadcast for the waiting chats. Return their number. Raises RowNotFound."""

        def work(tx: Transaction) -> int:
            rows = tx.run(_FIND, {"channel": BROADCAST, "key": key})
            if not rows:
                raise RowNotFound(f"There is no broadcast {key}.")
            mine: Params = {"id": rows[0]["id"]}
            stopped, _ = tx.run_all([(_STOP, mine), (_FORGET_CONTENT, mine)])
            return len(stopped)

        return await self._database.transaction(work)

    async def find_next(self, channel: str) -> Notification | None:
        """Return the first broadcast that chats of the channel are waiting for; None = no chat is waiting."""
        rows = await self._database.read(_NEXT, {"channel": channel})
        return from_row(Notification, rows[0]) if rows else None

    async def enqueue_next(
        self,
        channel: str,
        broadcast: Notification,
        limit: int,
        *,
        rows_for: Callable[[WaitingChat], list[NewOutboxRow]],
        now: float,
    ) -> list[NewOutboxRow]:
        """Move the messages to some chats of a channel into the outbox, in one transaction. Return the rows.

        `rows_for` must not block.
        """
        mine: Params = {"channel": channel, "id": broadcast.id}

        def work(tx: Transaction) -> list[NewOutboxRow]:
            taken = tx.run(_TAKE, {**mine, "rows": limit})
            chats = [
                WaitingChat(
                    conversation=from_row(ConversationKey, row),
                    is_private=bool(row["is_private"]),
                    recipient=str(row["recipient"]),
                )
                for row in sorted(taken, key=lambda one: (one["workspace"], one["chat"]))
            ]
            rows = [row for chat in chats for row in rows_for(chat)]
            insert_outbox_rows(tx, rows, now=now)
            tx.run(_FORGET_CONTENT, {"id": broadcast.id})
            return rows

        return await self._database.transaction(work)

    async def list_open_keys(self, keys: Sequence[str]) -> set[str]:
        """Return the given outbox keys whose rows are pending or being sent."""
        rows = await self._database.read(_STILL_OPEN, {"keys": json.dumps(list(keys))})
        return {str(row["key"]) for row in rows}


def _insert(tx: Transaction, new: NewNotification) -> int | None:
    """Insert a notification and return its ID; None if it is stored already. Raises RowConflict."""
    params: Params = {
        "channel": new.channel,
        "key": new.key,
        "digest": new.digest,
        "text": new.text,
        "files": new.files,
        "recipients": new.recipients,
        "created_at": new.created_at,
    }
    if inserted := tx.run(_INSERT, params):
        return int(inserted[0]["id"])
    found = tx.run(_FIND, {"channel": new.channel, "key": new.key})
    if found[0]["digest"] != new.digest:
        raise _key_conflict(new.channel, new.key)
    return None


def _key_conflict(channel: str, key: str) -> RowConflict:
    """Return the error for a request with the key of a different request."""
    what = "message" if channel else "broadcast"
    return RowConflict(f"Another {what} has the key {key!r}.")


def _encode(chats: Sequence[KnownChat]) -> str:
    """Return the addresses of chats as JSON, for one statement that stores them all."""
    return json.dumps(
        [
            {
                "channel": one.channel,
                "workspace": one.workspace,
                "chat": one.chat,
                "is_private": int(one.is_private),
                "recipient": one.recipient,
            }
            for one in chats
        ]
    )
