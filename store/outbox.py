"""The outbox: one row per platform message, written before the first attempt and updated after each."""

import json
import re
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from store.chat_owners import LIVES, OWNS, ChatOwners, owners_of
from store.conversations import ConversationKey, key_from_row, key_params, lock_conversation
from store.database import Database, Params, Row, Statement, Transaction
from store.errors import RowConflict, RowNotFound
from store.message_topics import set_topic_statement
from store.outbox_files import OutboxFiles
from store.rows import from_row

NEWEST = 2**63 - 1
"""The upper bound of a page that starts with the newest row: larger than every ID that SQLite assigns."""

DeliveryState = Literal["pending", "sending", "delivered", "uncertain", "failed"]

DISCARDED = "discarded"
"""The state in which discarded rows are listed. They have left the outbox (store/discarded_deliveries.py)."""

ListedState = DeliveryState | Literal["discarded"]


@dataclass(frozen=True, slots=True, kw_only=True)
class NewOutboxRow:
    """A platform message to send.

    Attributes:
        key: Unique forever. Identifies a repeated send ("<inbox id>:reply:0").
        conversation: Rows of one conversation are sent in order.
        body: The encoded message (bus/messages.py).
        not_before: When the first attempt is due, Unix seconds. Later rows do not wait for it.
        supersedes: Key of a row to delete, unless it was attempted, because this one replaces it; "" = none.
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
        uncertain_attempts: Number of attempts with an unknown outcome: the message may have arrived.
        failed_attempts: A line of JSON for each failed attempt, even if a later one succeeded: `at` (Unix seconds) and
            `error`. About 4,000 characters are kept.
        discarded_at: When an administrator discarded it; None = it is in the outbox.
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
    failed_attempts: str = ""
    discarded_at: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class DeliveryFilter:
    """Which rows to list for an administrator; "" = any.

    Attributes:
        states: Any of these; empty = all rows of the outbox, which has no discarded ones.
        channel, chat: IDs.
        error: A part of the error, ignoring case.
    """

    states: Sequence[ListedState] = ()
    channel: str = ""
    chat: str = ""
    error: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class UnreadMessage:
    """A message that the agent has not read: from the outbox if `is_sent`, else from the inbox. `at`: Unix seconds."""

    body: str
    at: float
    is_sent: bool


_SELECT = """
SELECT outbox.*, channel, workspace, chat, topic
FROM outbox JOIN conversation ON conversation.id = outbox.conversation_id
"""
_INSERT = """
INSERT INTO outbox (key, conversation_id, body, not_before, created_at, updated_at)
VALUES (:key, :conversation_id, :body, :not_before, :now, :now)
ON CONFLICT (key) DO NOTHING
"""
_SUPERSEDE = "DELETE FROM outbox WHERE key = :key AND state = 'pending' AND attempts = 0"
_BY_KEY = f"{_SELECT} WHERE outbox.key = :key"
_BY_KEYS = f"{_SELECT} WHERE outbox.key IN (SELECT value FROM json_each(:keys))"  # noqa: S608 - literals only
_BY_ID = f"{_SELECT} WHERE outbox.id = :id"
_OPEN = f"{_SELECT} WHERE outbox.state IN ('pending', 'sending') ORDER BY outbox.id"
# Without INDEXED BY, SQLite reads every row of the conversation. There is no join, so that PostgreSQL, too, reads from
# `from_id` on.
_OPEN_FROM_ID = """
SELECT * FROM outbox INDEXED BY outbox_open
WHERE state IN ('pending', 'sending') AND id >= :from_id AND conversation_id = (
    SELECT id FROM conversation
    WHERE channel = :channel AND workspace = :workspace AND chat = :chat AND topic = :topic)
"""
# Two ordered reads, the second only if the first finds nothing: sorting would read every open row.
NEXT_OPEN = f"""
SELECT * FROM ({_OPEN_FROM_ID} AND (attempts > 0 OR not_before <= :now) ORDER BY id LIMIT 1) AS due
UNION ALL
SELECT * FROM ({_OPEN_FROM_ID} AND attempts = 0 AND not_before > :now ORDER BY not_before LIMIT 1) AS later
LIMIT 1
"""  # noqa: S608 - statements of this module only
_OPEN_CONVERSATIONS = """
SELECT channel, workspace, chat, topic FROM conversation
WHERE id IN (SELECT conversation_id FROM outbox WHERE state IN ('pending', 'sending'))
"""
_OPEN_OWN = f"""
SELECT channel, workspace, chat, topic, first_id FROM (
    SELECT conversation_id, min(id) AS first_id FROM outbox
    WHERE state IN ('pending', 'sending') AND id > :after_id GROUP BY conversation_id) AS found
JOIN conversation ON conversation.id = conversation_id WHERE {OWNS}
"""  # noqa: S608 - statements of the store only
# Here and below, do not use `IN ('pending', 'sending')`: PostgreSQL would look up the ID in `outbox_open`, by
# conversation. While a client holds a snapshot open, it would read every row sent since then.
_MARK_SENDING = """
UPDATE outbox SET state = 'sending', attempts = attempts + 1, last_sent_at = :now, updated_at = :now,
    first_sent_at = coalesce(first_sent_at, :now), uncertain_attempts = coalesce(:uncertain, uncertain_attempts)
WHERE id = :id AND state NOT IN ('delivered', 'uncertain', 'failed')
RETURNING id
"""
_ADD_FAILURE = """
failed_attempts = CASE WHEN length(failed_attempts) < 4000 THEN failed_attempts || :failure ELSE failed_attempts END
"""
_CLOSE = f"""
UPDATE outbox SET state = :state, platform_id = :platform_id, error = :error, updated_at = :now, {_ADD_FAILURE}
WHERE id = :id AND state NOT IN ('delivered', 'uncertain', 'failed')
RETURNING id
"""  # noqa: S608 - literals only
_RESCHEDULE = f"""
UPDATE outbox SET state = 'pending', not_before = :not_before, error = :error, updated_at = :now, {_ADD_FAILURE},
    uncertain_attempts = uncertain_attempts + :unknown,
    first_sent_at = CASE WHEN :not_sent = 1 AND uncertain_attempts = 0 THEN NULL ELSE first_sent_at END
WHERE id = :id AND state NOT IN ('delivered', 'uncertain', 'failed')
"""  # noqa: S608 - literals only
# A row from the future was written before the clock was set back. Only the length of its wait can be trusted.
_REBASE_WAITS = """
UPDATE outbox SET updated_at = :now,
    not_before = CASE WHEN not_before > updated_at THEN not_before - updated_at + :now ELSE 0 END
WHERE state = 'pending' AND updated_at > :now AND not_before > :now AND conversation_id = (
    SELECT id FROM conversation
    WHERE channel = :channel AND workspace = :workspace AND chat = :chat AND topic = :topic)
"""
_START_PART = """
UPDATE outbox SET state = 'pending', body = :body, attempts = 0, not_before = 0, error = NULL,
    first_sent_at = NULL, last_sent_at = NULL, uncertain_attempts = 0, updated_at = :now
WHERE id = :id AND state NOT IN ('delivered', 'uncertain', 'failed')
RETURNING id
"""
_RESEND = """
UPDATE outbox SET state = 'pending', attempts = 0, not_before = 0, error = NULL, updated_at = :now,
    first_sent_at = NULL, last_sent_at = NULL, uncertain_attempts = 0
WHERE id = :id AND state IN ('failed', 'uncertain')
RETURNING id
"""
_SENT_TO = f"""{_SELECT}
WHERE outbox.conversation_id = :conversation_id AND key >= 'notification:' AND key < 'notification;'
    AND outbox.id < :before ORDER BY outbox.id DESC LIMIT :limit
"""
_DELETE = "DELETE FROM outbox WHERE id = :id AND state <> 'sending' RETURNING id"
_FILTERS: Mapping[str, str] = {
    "channel": "conversation.channel = :channel",
    "chat": "conversation.chat = :chat",
    "error": "lower(found.error) LIKE :error ESCAPE '!'",
}
_CLOSED = " UNION ALL ".join(
    f"SELECT * FROM (SELECT * FROM outbox WHERE state = '{state}' ORDER BY id DESC LIMIT :limit) AS found"  # noqa: S608 - literals only
    for state in ("delivered", "uncertain", "failed")
)
# A row from the future was written while the clock was ahead, perhaps long ago.
_LAST_CLOSED = f"""
WITH last AS ({_CLOSED})
SELECT last.*, channel, workspace, chat, topic FROM last JOIN conversation ON conversation.id = last.conversation_id
WHERE last.updated_at > (SELECT coalesce(max(updated_at), 0) FROM last WHERE updated_at <= :now) - :within_s
AND NOT EXISTS (
    SELECT 1 FROM chat_owner WHERE chat_owner.channel = conversation.channel
    AND chat_owner.workspace = conversation.workspace AND chat_owner.chat = conversation.chat
    AND chat_owner.node <> :node AND {LIVES})
"""  # noqa: S608 - statements of this module only
_LAST_READ = """
FROM inbox WHERE inbox.conversation_id = :conversation_id AND kind = 'chat' AND seq < :seq AND run_id IS NOT NULL
ORDER BY seq DESC LIMIT 1
"""
# The prefix is the one that `bus.notifications` uses. A person may get a notification before their private chat is
# known.
_UNREAD = f"""
SELECT * FROM (
    SELECT 1 AS is_sent, outbox.id AS id, body, outbox.updated_at AS at
    FROM outbox JOIN conversation ON conversation.id = outbox.conversation_id
    WHERE channel = :channel AND workspace IN (:workspace, '') AND chat IN (:chat, :person) AND topic = :topic
        AND key >= 'notification:' AND key < 'notification;' AND state IN ('delivered', 'uncertain')
        AND outbox.updated_at <= :before
        AND outbox.updated_at > coalesce((SELECT received_at {_LAST_READ}), 0)
    ORDER BY outbox.id DESC LIMIT :limit
) AS found
UNION ALL SELECT * FROM (
    SELECT 0 AS is_sent, id, body, received_at AS at FROM inbox
    WHERE inbox.conversation_id = :conversation_id AND outcome = 'taken_over' AND thread_id = :thread_id
        AND run_id IS NULL AND seq < :seq AND seq > coalesce((SELECT seq {_LAST_READ}), 0)
    ORDER BY seq DESC LIMIT :limit
) AS found
"""  # noqa: S608 - literals only
_UNDELIVERED_BY_STATE = """
SELECT state, count(*) AS rows FROM outbox
WHERE state IN ('pending', 'sending', 'uncertain', 'failed') GROUP BY state
"""


class OutboxStore:
    """The outbox table.

    Attributes:
        owners: The node that owns each chat, as this process knows it.
        files: The files that rows send and that belong to no thread.
    """

    def __init__(
        self,
        database: Database,
        *,
        owners: ChatOwners | None = None,
        now: Callable[[], float] = time.time,
    ) -> None:
        self.owners = owners or owners_of(database)
        self.files = OutboxFiles(database, now=now)
        self._database = database
        self._now = now

    @property
    def is_owner(self) -> bool:
        """See `Database.is_owner`."""
        return self._database.is_owner

    async def enqueue(self, rows: Sequence[NewOutboxRow]) -> list[OutboxRow]:
        """Insert rows; skip keys that exist already. Return the rows as they are now.

        A row that existed is missing from the result if another node discards it meanwhile.
        """
        now = self._now()

        def work(tx: Transaction) -> list[OutboxRow]:
            insert_outbox_rows(tx, rows, now=now)
            found = tx.run_all([(_BY_KEY, {"key": new.key}) for new in rows])
            return [_outbox_row(row) for stored in found for row in stored]

        return await self._database.transaction(work)

    async def find(self, key: str) -> OutboxRow | None:
        """Return the row with this key."""
        rows = await self._database.read(_BY_KEY, {"key": key})
        return _outbox_row(rows[0]) if rows else None

    async def find_all(self, keys: Sequence[str]) -> list[OutboxRow]:
        """Return the rows with these keys, in any order."""
        rows = await self._database.read(_BY_KEYS, {"keys": json.dumps(keys)})
        return [_outbox_row(row) for row in rows]

    async def get(self, row_id: int) -> OutboxRow:
        """Return one row. Raises RowNotFound."""
        rows = await self._database.read(_BY_ID, {"id": row_id})
        if not rows:
            raise RowNotFound(f"There is no delivery {row_id}.")
        return _outbox_row(rows[0])

    async def list_open(self) -> list[OutboxRow]:
        """Return pending and sending rows in order of their ids."""
        return [_outbox_row(row) for row in await self._database.read(_OPEN)]

    async def next_open(
        self, conversation: ConversationKey, *, now: float, from_id: int = 0
    ) -> OutboxRow | None:
        """Return the first pending or sending row of a conversation.

        Rows that wait for their first attempt come last, in the order in which they are due. `now`: Unix seconds.
        `from_id`: the caller knows that no row before this ID is open.
        """
        params = {**key_params(conversation), "now": now, "from_id": from_id}
        rows = await self._database.read(NEXT_OPEN, params)
        return from_row(OutboxRow, rows[0], conversation=conversation) if rows else None

    async def list_open_conversations(self) -> list[ConversationKey]:
        """Return the conversations with open rows."""
        return [key_from_row(row) for row in await self._database.read(_OPEN_CONVERSATIONS)]

    async def find_own_open(self, after_id: int = 0) -> dict[ConversationKey, int]:
        """Return the first open row after `after_id` of each conversation in this node's chats."""
        params: Params = {"node": self.owners.number, "after_id": after_id}
        rows = await self._database.read(_OPEN_OWN, params)
        return {key_from_row(row): int(row["first_id"]) for row in rows}

    async def mark_sending(
        self, row_id: int, *, now: float, uncertain_attempts: int | None = None
    ) -> bool:
        """Record the start of an attempt. False if the row is closed.

        Args:
            row_id: The row.
            now: Start of the attempt, Unix seconds.
            uncertain_attempts: Replaces the row's counter; None = keep it.
        """
        params: Params = {"id": row_id, "now": now, "uncertain": uncertain_attempts}
        return bool(await self._database.execute(_MARK_SENDING, params))

    async def mark_delivered(
        self,
        row_id: int,
        platform_id: str | None,
        *,
        now: float,
        uncertain: bool = False,
        message_id: str = "",
        begins_topic: bool = False,
    ) -> None:
        """Close a row that was sent, and store its message's topic in the same transaction.

        Args:
            row_id: The row.
            platform_id: What the adapter needs to find the message again.
            now: Unix seconds.
            uncertain: Whether the message may have been sent twice, or not at all.
            message_id: The ID by which replies refer to the message; "" = none.
            begins_topic: Whether replies to the message form a new topic, if it was sent outside of topics.
        """
        params: Params = {
            "id": row_id,
            "state": "uncertain" if uncertain else "delivered",
            "platform_id": platform_id,
            "error": None,
            "failure": "",
            "now": now,
        }

        close = _CLOSE, params
        topic = message_id if begins_topic else ""
        await self._database.transaction(
            lambda tx: _change(tx, [close], row_id, message_id, topic, now)
        )

    async def start_part(
        self,
        row_id: int,
        body: str,
        *,
        now: float,
        message_id: str = "",
        begins_topic: bool = False,
        supersedes: str = "",
    ) -> None:
        """Advance a row to its next message, as if it were new; store the sent message's topic.

        `message_id`: the message that was sent for the row; "" = none. `begins_topic`: see `mark_delivered`.
        `supersedes`: see `NewOutboxRow`.
        """
        start: Statement = _START_PART, {"id": row_id, "body": body, "now": now}
        drop: Statement = _SUPERSEDE, {"key": supersedes}
        topic = message_id if begins_topic else ""
        await self._database.transaction(
            lambda tx: _change(tx, [start, drop], row_id, message_id, topic, now)
        )

    async def reschedule(
        self,
        row_id: int,
        *,
        not_before: float,
        error: str,
        now: float,
        outcome_unknown: bool = False,
        not_sent: bool = False,
        has_failed: bool = True,
    ) -> None:
        """Set a row back to pending; it is not sent before the given time.

        `outcome_unknown`: the attempt that just ended may have succeeded (uncertain_attempts + 1).
        `not_sent`: it certainly failed. Unless an earlier attempt is in doubt, the next attempt sets `first_sent_at`.
        `has_failed`: an attempt just ended. False = the row is only postponed.
        """
        params: Params = {
            "id": row_id,
            "not_before": not_before,
            "error": error,
            "failure": _failure(error, now) if has_failed else "",
            "now": now,
            "unknown": int(outcome_unknown),
            "not_sent": int(not_sent),
        }
        await self._database.execute(_RESCHEDULE, params)

    async def rebase_waits(self, conversation: ConversationKey, *, now: float) -> None:
        """Restart the waits of a conversation's pending rows that are dated after `now` (Unix seconds)."""
        await self._database.execute(_REBASE_WAITS, {**key_params(conversation), "now": now})

    async def mark_failed(
        self, row_id: int, *, error: str, now: float, uncertain: bool = False
    ) -> None:
        """Give up on a row; the administrator sees it. `uncertain`: an earlier attempt may have succeeded."""
        params: Params = {
            "id": row_id,
            "state": "uncertain" if uncertain else "failed",
            "platform_id": None,
            "error": error,
            "failure": _failure(error, now),
            "now": now,
        }
        await self._database.execute(_CLOSE, params)

    async def resend(self, row_ids: Sequence[int], *, now: float) -> list[OutboxRow]:
        """Set failed and uncertain rows back to pending, and return them. Other rows stay unchanged."""

        def work(tx: Transaction) -> list[OutboxRow]:
            changed = tx.run_all([(_RESEND, {"id": row_id, "now": now}) for row_id in row_ids])
            return read_rows(tx, [row["id"] for rows in changed for row in rows])

        return await self._database.transaction(work)

    async def delete(self, row_id: int) -> None:
        """Delete a row for good, unless it is being sent. Raises RowNotFound, RowConflict."""

        def work(tx: Transaction) -> None:
            if not read_rows(tx, [row_id]):
                raise RowNotFound(f"There is no delivery {row_id}.")
            if not tx.run(_DELETE, {"id": row_id}):
                raise RowConflict(f"Delivery {row_id} is being sent.")

        await self._database.transaction(work)

    async def list_recent(
        self,
        *,
        states: Sequence[ListedState] = (),
        channel: str = "",
        chat: str = "",
        error: str = "",
        limit: int = 100,
        before: int = NEWEST,
    ) -> list[OutboxRow]:
        """Return rows that match the filter and have an ID below `before`, newest first."""
        wanted = DeliveryFilter(states=states, channel=channel, chat=chat, error=error)
        # One state at a time: with several, SQLite would sort all of their rows.
        found = [
            _outbox_row(row)
            for state in states or ("",)
            for row in await self._database.read(
                listing_statement(state, wanted), _listing_params(state, wanted, limit, before)
            )
        ]
        return sorted(found, key=lambda row: row.id, reverse=True)[:limit]

    async def list_of_messages(
        self, inbox_ids: Sequence[int], state: DeliveryState | None = None
    ) -> list[OutboxRow]:
        """Return the rows that answer messages, in order of their IDs. `state`: only these; None = all."""
        if not inbox_ids:
            return []
        params: dict[str, str] = {} if state is None else {"state": state}
        for number, row_id in enumerate(inbox_ids):
            params |= {f"from{number}": f"{row_id}:", f"to{number}": f"{row_id};"}
        ranges = (f"key >= :from{number} AND key < :to{number}" for number in range(len(inbox_ids)))
        condition = "" if state is None else "outbox.state = :state AND "
        statement = f"{_SELECT} WHERE {condition}({' OR '.join(ranges)}) ORDER BY outbox.id"
        found: Params = params
        return [_outbox_row(row) for row in await self._database.read(statement, found)]

    async def list_sent_to(
        self, conversation_id: int, *, limit: int, before: int = NEWEST
    ) -> list[OutboxRow]:
        """Return the notifications and broadcasts to a conversation, newest first: ids below `before`."""
        params: Params = {"conversation_id": conversation_id, "limit": limit, "before": before}
        return [_outbox_row(row) for row in await self._database.read(_SENT_TO, params)]

    async def count(self, wanted: DeliveryFilter) -> int:
        """Return how many rows match."""
        total = 0
        for state in wanted.states or ("",):
            params = _listing_params(state, wanted, 0, NEWEST)
            rows = await self._database.read(_counting_statement(state, wanted), params)
            total += int(str(rows[0]["rows"]))
        return total

    async def list_last_closed(self, *, now: float, limit: int, within_s: float) -> list[OutboxRow]:
        """Return the rows closed within `within_s` seconds before the last closed row, newest first.

        Returns only rows of this node's chats and of chats without an owner. `now`: Unix seconds.
        """
        node = self.owners.number
        params: Params = {"now": now, "limit": limit, "within_s": within_s, "node": node}
        found = [_outbox_row(row) for row in await self._database.read(_LAST_CLOSED, params)]
        return sorted(found, key=lambda row: row.id, reverse=True)[:limit]

    async def list_unread(
        self,
        conversation: ConversationKey,
        *,
        conversation_id: int,
        thread_id: str,
        person: str,
        seq: int,
        before: float,
        limit: int,
    ) -> list[UnreadMessage]:
        """Return the messages in a conversation that the agent has not seen since its last run there, oldest first.

        These are the notifications that people saw, and the messages that people wrote while a person had taken over.

        Args:
            conversation: The conversation.
            conversation_id: Its ID.
            thread_id: The thread of the current message. Messages of other threads are left out.
            person: The person in a private chat, who may have received messages before the chat was known; "" = a
                group.
            seq: The position of the current message in the conversation.
            before: When it was accepted, Unix seconds.
            limit: How many of the newest messages of each kind to return.
        """
        params: Params = {
            **key_params(conversation),
            "conversation_id": conversation_id,
            "thread_id": thread_id,
            "person": person or conversation.chat,
            "seq": seq,
            "before": before,
            "limit": limit,
        }
        rows = await self._database.read(_UNREAD, params)
        return [
            UnreadMessage(body=str(row["body"]), at=row["at"], is_sent=bool(row["is_sent"]))
            for row in sorted(rows, key=lambda row: (row["at"], row["id"]))
        ]

    async def count_by_state(self) -> dict[str, int]:
        """Return the number of undelivered rows by state."""
        rows = await self._database.read(_UNDELIVERED_BY_STATE)
        return {str(row["state"]): int(str(row["rows"])) for row in rows}


def listing_statement(state: str, wanted: DeliveryFilter) -> str:
    """Return the statement that lists rows in a state ("" = any), newest first."""
    return f"""
    SELECT found.*, channel, workspace, chat, topic {_matching(state, wanted)} AND found.id < :before
    ORDER BY found.id DESC LIMIT :limit
    """


def _counting_statement(state: str, wanted: DeliveryFilter) -> str:
    return f"SELECT count(*) AS rows {_matching(state, wanted)}"


def _matching(state: str, wanted: DeliveryFilter) -> str:
    table = "discarded_delivery" if state == DISCARDED else "outbox"
    conditions = [text for name, text in _FILTERS.items() if getattr(wanted, name)]
    if state not in ("", DISCARDED):
        conditions.append("found.state = :state")
    return f"""
    FROM {table} AS found JOIN conversation ON conversation.id = found.conversation_id
    WHERE {" AND ".join(conditions) or "1 = 1"}
    """


def _listing_params(state: str, wanted: DeliveryFilter, limit: int, before: int) -> Params:
    error = re.sub(r"([!%_])", r"!\1", wanted.error.lower())
    params: Params = {
        "state": state,
        "channel": wanted.channel,
        "chat": wanted.chat,
        "error": f"%{error}%",
        "limit": limit,
        "before": before,
    }
    return params


def insert_outbox_rows(
    tx: Transaction,
    rows: Sequence[NewOutboxRow],
    *,
    now: float,
    known: Mapping[ConversationKey, int] | None = None,
) -> None:
    """Insert rows inside another store's transaction; skip keys that exist already.

    `known`: ids of conversations that the transaction has locked.
    """
    ids = {
        key: (known or {}).get(key) or lock_conversation(tx, key, now=now)["id"]
        for key in dict.fromkeys(new.conversation for new in rows)
    }
    statements: list[Statement] = []
    for new in rows:
        if new.supersedes:
            statements.append((_SUPERSEDE, {"key": new.supersedes}))
        row: Params = {
            "key": new.key,
            "conversation_id": ids[new.conversation],
            "body": new.body,
            "not_before": new.not_before,
            "now": now,
        }
        statements.append((_INSERT, row))
    if statements:
        tx.run_all(statements)


def _change(
    tx: Transaction,
    statements: Sequence[Statement],
    row_id: int,
    message_id: str,
    topic: str,
    now: float,
) -> None:
    """Change a row; if it was open, store the topic of the message that was sent for it ("" = none).

    `topic`: the topic that the message begins if it was sent outside of topics.
    """
    found, changed, *_ = tx.run_all([(_BY_ID, {"id": row_id}), *statements])
    key = key_from_row(found[0]) if changed and message_id else None
    if key is not None and (key.topic or topic):
        sent_in = replace(key, topic=key.topic or topic)
        tx.run(*set_topic_statement(sent_in, message_id, now=now))


def _failure(error: str, now: float) -> str:
    return json.dumps({"at": now, "error": error}, ensure_ascii=False) + "\n"


def read_rows(tx: Transaction, row_ids: Sequence[int]) -> list[OutboxRow]:
    """Return the rows with these IDs, inside another store's transaction."""
    found = tx.run_all([(_BY_ID, {"id": row_id}) for row_id in row_ids])
    return [_outbox_row(row) for rows in found for row in rows]


def _outbox_row(row: Row) -> OutboxRow:
    return from_row(OutboxRow, row, conversation=key_from_row(row))
