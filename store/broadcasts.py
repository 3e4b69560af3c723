"""Broadcasts: messages of an administrator to many chats, and the chats that wait for them."""

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

from anyio import to_thread

from store.chats import KnownChat
from store.conversations import ConversationKey
from store.database import Database, Params, Transaction
from store.errors import RowConflict, RowNotFound
from store.outbox import NewOutboxRow, insert_outbox_rows
from store.rows import from_row

_INSERT = """
INSERT INTO broadcast (key, digest, text, audience, created_at) VALUES (:key, :digest, :text, :audience, :created_at)
ON CONFLICT (key) DO NOTHING
RETURNING id
"""
_FIND = "SELECT * FROM broadcast WHERE key = :key"
_INSERT_CHATS = """
INSERT INTO broadcast_chat (channel, broadcast_id, workspace, chat, recipient)
SELECT json_extract(value, '$.channel'), :broadcast_id, json_extract(value, '$.workspace'),
    json_extract(value, '$.chat'), json_extract(value, '$.recipient')
FROM json_each(:chats)
"""
_COUNT = "SELECT count(*) AS chats FROM broadcast_chat WHERE broadcast_id = :id"
_TAKE = """
DELETE FROM broadcast_chat WHERE (channel, broadcast_id, workspace, chat) IN (
    SELECT channel, broadcast_id, workspace, chat FROM broadcast_chat
    WHERE channel = :channel ORDER BY channel, broadcast_id, workspace, chat LIMIT :rows)
RETURNING *
"""
_TEXT = "SELECT id, key, text FROM broadcast WHERE id = :id"
_FORGET_TEXT = """
UPDATE broadcast SET text = ''
WHERE id = :id AND text <> '' AND NOT EXISTS (SELECT 1 FROM broadcast_chat WHERE broadcast_id = broadcast.id)
"""
_IS_WAITING = "SELECT 1 FROM broadcast_chat WHERE channel = :channel LIMIT 1"
_STOP = "DELETE FROM broadcast_chat WHERE broadcast_id = :id RETURNING chat"
_STILL_OPEN = """
SELECT key FROM outbox
WHERE key IN (SELECT value FROM json_each(:keys)) AND state IN ('pending', 'sending')
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class NewBroadcast:
    """A broadcast to accept.

    Attributes:
        key: The administrator's name for it, which is never reused.
        digest: A hash of the request, equal for repetitions.
        text: The Markdown.
        audience: The response to the request and its repetitions. Opaque here.
        created_at: Unix seconds.
    """

    key: str
    digest: str
    text: str
    audience: str
    created_at: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Broadcast:
    """An accepted broadcast. `waiting`: number of chats whose message is not in the outbox yet."""

    id: int
    key: str
    digest: str
    audience: str
    created_at: float
    waiting: int


@dataclass(frozen=True, slots=True, kw_only=True)
class BroadcastMessage:
    """The message of a broadcast to one chat."""

    broadcast_key: str
    conversation: ConversationKey
    recipient: str
    text: str


class BroadcastStore:
    """The tables broadcast and broadcast_chat."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def find(self, key: str) -> Broadcast | None:
        """Return the broadcast with this key."""
        rows = await self._database.read(_FIND, {"key": key})
        if not rows:
            return None
        [count] = await self._database.read(_COUNT, {"id": rows[0]["id"]})
        return from_row(Broadcast, rows[0], waiting=int(count["chats"]))

    async def accept(self, new: NewBroadcast, chats: Sequence[KnownChat]) -> bool:
        """Store a broadcast and its chats, unless it is stored already. Return whether this call stored it.

        Raises:
            RowConflict: Another broadcast has this key.
        """
        params: Params = {
            "key": new.key,
            "digest": new.digest,
            "text": new.text if chats else "",
            "audience": new.audience,
            "created_at": new.created_at,
        }
        addresses = await to_thread.run_sync(_encode, chats)

        def work(tx: Transaction) -> bool:
            if inserted := tx.run(_INSERT, params):
                tx.run(_INSERT_CHATS, {"broadcast_id": inserted[0]["id"], "chats": addresses})
                return True
            if tx.run(_FIND, {"key": new.key})[0]["digest"] != new.digest:
                raise RowConflict(f"Another broadcast has the id {new.key!r}.")
            return False

        return await self._database.transaction(work)

    async def stop(self, key: str) -> int:
        """Cancel a broadcast for the waiting chats. Return their number. Raises RowNotFound."""

        def work(tx: Transaction) -> int:
            rows = tx.run(_FIND, {"key": key})
            if not rows:
                raise RowNotFound(f"There is no broadcast {key}.")
            mine: Params = {"id": rows[0]["id"]}
            stopped, _ = tx.run_all([(_STOP, mine), (_FORGET_TEXT, mine)])
            return len(stopped)

        return await self._database.transaction(work)

    async def is_waiting(self, channel: str) -> bool:
        """Return whether a chat of the channel waits for a broadcast."""
        return bool(await self._database.read(_IS_WAITING, {"channel": channel}))

    async def enqueue_next(
        self,
        channel: str,
        limit: int,
        *,
        make_row: Callable[[BroadcastMessage], NewOutboxRow],
        now: float,
    ) -> list[NewOutboxRow]:
        """Move the messages to some chats of a channel into the outbox, in one transaction. Return the rows.

        Broadcasts follow each other in the order of acceptance. `make_row` must not block.
        """
        unit = partial(
            _enqueue_next, params={"channel": channel, "rows": limit}, make_row=make_row, now=now
        )
        return await self._database.transaction(unit)

    async def list_open_keys(self, keys: Sequence[str]) -> set[str]:
        """Return the given outbox keys whose rows are pending or being sent."""
        rows = await self._database.read(_STILL_OPEN, {"keys": json.dumps(list(keys))})
        return {str(row["key"]) for row in rows}


def _encode(chats: Sequence[KnownChat]) -> str:
    """Return the addresses of chats as JSON, for one statement that stores them all."""
    return json.dumps(
        [
            {"channel": one.channel, "workspace": one.workspace, "chat": one.chat, "recipient": one.recipient}
            for one in chats
        ]
    )  # fmt: skip


def _enqueue_next(
    tx: Transaction,
    params: Params,
    make_row: Callable[[BroadcastMessage], NewOutboxRow],
    now: float,
) -> list[NewOutboxRow]:
    taken = tx.run(_TAKE, params)
    found = {
        number: tx.run(_TEXT, {"id": number})[0]
        for number in {row["broadcast_id"] for row in taken}
    }
    rows = [
        make_row(
            BroadcastMessage(
                broadcast_key=str(found[row["broadcast_id"]]["key"]),
                conversation=from_row(ConversationKey, row),
                recipient=str(row["recipient"]),
                text=str(found[row["broadcast_id"]]["text"]),
            )
        )
        for row in sorted(
            taken, key=lambda one: (one["broadcast_id"], one["workspace"], one["chat"])
        )
    ]
    insert_outbox_rows(tx, rows, now=now)
    tx.run_all([(_FORGET_TEXT, {"id": number}) for number in found])
    return rows
