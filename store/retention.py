"""Deletes old rows: one indexed statement per table, in batches of a few milliseconds.

| table | bound |
|---|---|
| inbox | finished rows: 7 days, the time in which a platform may deliver an event again |
| message_words | with its message |
| refused_message | 7 days, and at most the newest 100,000 |
| received_id | 7 days, for the same reason |
| outbox | delivered rows: 7 days; failed and uncertain rows: `retention_days` |
| discarded_delivery | 7 days, in which discarding can be undone |
| message_topic | `retention_days`: a later reply to such a message starts a new topic |
| conversation | `retention_days` after its last message: the next message starts a new thread |
| past_message | `retention_days` after it was said, and with its thread |
| guardrail_decision | `retention_days`, at most the newest 10,000, and with its thread |
| run | `retention_days` after its end |
| run_request | until its run ends |
| run_webhook | until it is posted or was refused three times |
| model_usage | kept: after `retention_days` without person and room |
| usage_counter | until the month of its period is over |
| usage_reservation | until its call ends |
| pairing | open requests: 1 hour. Approved people stay until an hour after they are revoked |
| console_session | until it expires: a session 7 days after its last use, a link after 12 hours |
| conversation_settings | kept: at most one small row per chat with a settings command |
| chat | `retention_days` after the last message in it |
| person | `retention_days` after their last message |
| notification | to one chat: until its rows of the outbox are deleted; a broadcast: kept, a small row without text |
| notification_chat | until its message is in the outbox, in seconds to minutes |
| outbox_file | until the rows of its notification were delivered or are deleted, and no chat waits; at least an hour |
| schedule | ended ones: `retention_days`; others are kept until someone deletes them |
| schedule_occurrence | `retention_days` |
| chat_migration | kept: one small row per Telegram group that became a supergroup |
| thread, checkpoints | kept until deleted over the API or by their TTL: they are people's conversations |
| assistant, assistant_version | at most 10,000 assistants with 1,000 versions each |
| item | kept until deleted or expired: the data of graphs and clients |

Pending outbox rows are bounded by time: delivery gives up after a day, and after `retention_days` while the
platform refuses the bot's credentials (bus/outbound/retry_policy.py).
"""

import json
import time
from datetime import UTC, datetime

from store.database import Database, Params, Transaction
from store.pairings import CODE_TTL_S

DAY_S = 86_400.0
REDELIVERY_DAYS = 7
"""How long to keep received IDs, days. Feishu repeats an event up to 7.1 hours later, Telegram up to 24 hours."""

BATCH_S = 0.005
"""How long one batch should take, including the commit and the wait for other writers, seconds."""

MIN_ROWS, MAX_ROWS = 5, 500
"""Rows in the smallest batch, with which each statement begins, and in the largest. `BATCH_S` determines the size."""

FILES_AFTER_S = 3600.0
"""Minimum age of an outbox file to delete, seconds. Storing a file and its row takes less."""


def _is_of(row: str) -> str:
    """Return the condition that `key` belongs to a delivery of the notification whose channel and key are in `row`."""
    first = f"'notification:' || {row}.channel || ':' || {row}.key"
    return f"key > {first} || ':' AND key < {first} || ';'"


DELETE_NOTIFICATIONS = f"""
DELETE FROM notification WHERE id IN (
    SELECT id FROM notification INDEXED BY notification_by_age
    WHERE channel <> '' AND created_at < :before
        AND NOT EXISTS (SELECT 1 FROM outbox WHERE {_is_of("notification")})
    LIMIT :rows)
RETURNING id
"""  # noqa: S608 - literals only
FIND_FILES = f"""
SELECT file_id FROM outbox_file AS stored
WHERE part = 0 AND created_at < :before
    AND NOT EXISTS (SELECT 1 FROM outbox WHERE {_is_of("stored")} AND state <> 'delivered')
    AND NOT EXISTS (SELECT 1 FROM discarded_delivery WHERE {_is_of("stored")})
    AND NOT EXISTS (
        SELECT 1 FROM notification JOIN notification_chat ON notification_id = notification.id
        WHERE notification.channel = stored.channel AND notification.key = stored.key)
"""  # noqa: S608 - literals only
# Delete the first part last, because the other parts are not found without it.
DELETE_FILES = """
DELETE FROM outbox_file WHERE (file_id, part) IN (
    SELECT file_id, part FROM outbox_file
    WHERE file_id IN (SELECT value FROM json_each(:ids)) ORDER BY part DESC LIMIT :rows)
RETURNING part
"""

DELETE_MESSAGES = """
DELETE FROM inbox WHERE id IN (
    SELECT id FROM inbox INDEXED BY inbox_finished
    WHERE state IN ('done', 'dead') AND received_at < :before LIMIT :rows)
RETURNING conversation_id, seq
"""
KEEP_LAST_SEQ = "UPDATE conversation SET last_seq = :seq WHERE id = :id AND last_seq < :seq"
SHORT_TERM = (
    DELETE_MESSAGES,
    """
    DELETE FROM received_id WHERE (channel, workspace, kind, chat, external_id) IN (
        SELECT channel, workspace, kind, chat, external_id FROM received_id
        WHERE received_at < :before LIMIT :rows)
    RETURNING received_at
    """,
    """
    DELETE FROM refused_message WHERE id IN (
        SELECT id FROM refused_message WHERE received_at < :before LIMIT :rows)
    RETURNING id
    """,
    """
    DELETE FROM outbox WHERE id IN (
        SELECT id FROM outbox INDEXED BY outbox_delivered
        WHERE state = 'delivered' AND updated_at < :before LIMIT :rows)
    RETURNING id
    """,
    """
    DELETE FROM discarded_delivery WHERE id IN (
        SELECT id FROM discarded_delivery WHERE discarded_at < :before LIMIT :rows)
    RETURNING id
    """,
    DELETE_NOTIFICATIONS,
)
"""Statements for rows older than `REDELIVERY_DAYS`. Each returns the rows that it deleted."""

LONG_TERM = (
    """
    DELETE FROM outbox WHERE id IN (
        SELECT id FROM outbox INDEXED BY outbox_undelivered
        WHERE state IN ('failed', 'uncertain') AND updated_at < :before LIMIT :rows)
    RETURNING id
    """,
    """
    DELETE FROM message_topic WHERE (channel, workspace, chat, message_id) IN (
        SELECT channel, workspace, chat, message_id FROM message_topic WHERE created_at < :before LIMIT :rows)
    RETURNING created_at
    """,
    """
    DELETE FROM chat WHERE (channel, workspace, chat) IN (
        SELECT channel, workspace, chat FROM chat WHERE received_at < :before LIMIT :rows)
    RETURNING received_at
    """,
    """
    DELETE FROM person WHERE id IN (
        SELECT id FROM person WHERE received_at < :before LIMIT :rows)
    RETURNING id
    """,
    """
    DELETE FROM past_message WHERE id IN (
        SELECT id FROM past_message WHERE said_at < :before LIMIT :rows)
    RETURNING id
    """,
    """
    DELETE FROM guardrail_decision WHERE id IN (
        SELECT id FROM guardrail_decision WHERE created_at < :before LIMIT :rows)
    RETURNING id
    """,
    """
    DELETE FROM schedule_occurrence WHERE (schedule_id, due_at) IN (
        SELECT schedule_id, due_at FROM schedule_occurrence WHERE created_at < :before LIMIT :rows)
    RETURNING due_at
    """,
    """
    DELETE FROM schedule WHERE id IN (
        SELECT id FROM schedule WHERE next_at IS NULL AND updated_at < :before LIMIT :rows)
    RETURNING id
    """,
    """
    DELETE FROM run WHERE seq IN (
        SELECT seq FROM run INDEXED BY run_finished
        WHERE status IN ('success', 'error', 'timeout', 'interrupted') AND updated_at < :before LIMIT :rows)
    RETURNING seq
    """,
)
"""Statements for rows older than `retention_days`."""

_IS_UNUSED = """
updated_at < :before
AND NOT EXISTS (SELECT 1 FROM inbox WHERE inbox.conversation_id = conversation.id)
AND NOT EXISTS (SELECT 1 FROM outbox WHERE outbox.conversation_id = conversation.id)
AND NOT EXISTS (SELECT 1 FROM discarded_delivery WHERE discarded_delivery.conversation_id = conversation.id)
"""
# Runs on a reading connection: old conversations that still have rows make it slower.
FIND_CONVERSATIONS = (
    f"SELECT id FROM conversation WHERE {_IS_UNUSED} ORDER BY updated_at, id LIMIT :rows"  # noqa: S608 - literals only
)
DELETE_CONVERSATIONS = f"""
DELETE FROM conversation WHERE id IN (SELECT CAST(value AS BIGINT) FROM json_each(:ids)) AND {_IS_UNUSED} RETURNING id
"""  # noqa: S608 - literals only

ANONYMIZE_USAGE = """
UPDATE model_usage SET person = '', room = '', topic = '' WHERE day < :day AND (person > '' OR room > '')
"""
ENDED_COUNTERS = "DELETE FROM usage_counter WHERE period < :month"

EXPIRED_PAIRINGS = "DELETE FROM pairing WHERE approved_at IS NULL AND created_at < :before"
REVOKED_PAIRINGS = "DELETE FROM pairing WHERE revoked_at < :before"


class Retention:
    """Prunes every table that has a bound.

    Args:
        database: The database. `retention_days` = 0 keeps long-term rows forever.
    """

    def __init__(self, database: Database) -> None:
        self._database = database

    async def prune(self, *, now: float) -> int:
        """Delete old rows (`now` in Unix seconds). Return their number. Raises StoreError."""
        before = now - REDELIVERY_DAYS * DAY_S
        old: Params = {"before": before}
        deleted = sum([await self._delete(statement, old) for statement in SHORT_TERM])
        deleted += await self._delete_files(now - FILES_AFTER_S)
        if days := self._database.retention_days:
            before = now - max(days, REDELIVERY_DAYS) * DAY_S
            old = {"before": before}
            deleted += sum([await self._delete(statement, old) for statement in LONG_TERM])
            deleted += await self._delete_conversations(before)
            await self._database.execute(ANONYMIZE_USAGE, {"day": _utc_day(before)})
        month = _utc_day(now)[: len("2026-11")]
        await self._database.execute(ENDED_COUNTERS, {"month": month})
        expired: Params = {"before": now - CODE_TTL_S}
        both = [(EXPIRED_PAIRINGS, expired), (REVOKED_PAIRINGS, expired)]
        await self._database.transaction(lambda tx: tx.run_all(both))
        return deleted

    async def _delete_conversations(self, before: float) -> int:
        deleted, rows = 0, MIN_ROWS
        while True:
            params: Params = {"before": before, "rows": rows}
            found = [row["id"] for row in await self._database.read(FIND_CONVERSATIONS, params)]
            batch: Params = {"before": before, "ids": json.dumps(found)}
            count, took_s = await self._run_batch(DELETE_CONVERSATIONS, batch)
            deleted += count
            if len(found) < rows:
                return deleted
            rows = next_batch_rows(rows, took_s)

    async def _delete_files(self, before: float) -> int:
        """Delete files that no chat needs anymore. With 5,000 chats, finding a file takes 6 ms."""
        found = await self._database.read(FIND_FILES, {"before": before})
        ids = json.dumps([row["file_id"] for row in found])
        return await self._delete(DELETE_FILES, {"ids": ids})

    async def _delete(self, statement: str, params: Params) -> int:
        deleted, rows = 0, MIN_ROWS
        while True:
            count, took_s = await self._run_batch(statement, {**params, "rows": rows})
            deleted += count
            if count < rows:
                return deleted
            rows = next_batch_rows(rows, took_s)

    async def _run_batch(self, statement: str, params: Params) -> tuple[int, float]:
        """Return the number of rows that a statement deleted, and how long it took, seconds."""
        began = time.perf_counter()
        count = await self._database.transaction(lambda tx: _delete_batch(tx, statement, params))
        return count, time.perf_counter() - began


def _utc_day(at: float) -> str:
    """Return the UTC day of a time.

    >>> _utc_day(0.0)
    '1970-01-01'
    """
    return datetime.fromtimestamp(at, UTC).date().isoformat()


def _delete_batch(tx: Transaction, statement: str, params: Params) -> int:
    """Delete rows and return their number. A conversation never reuses the position of a deleted message."""
    deleted = tx.run(statement, params)
    if statement == DELETE_MESSAGES:
        last = {
            row["conversation_id"]: row["seq"]
            for row in sorted(deleted, key=lambda row: row["seq"])
        }
        tx.run_all([(KEEP_LAST_SEQ, {"id": number, "seq": seq}) for number, seq in last.items()])
    return len(deleted)


def next_batch_rows(rows: int, took_s: float) -> int:
    """Return the size of the next batch after one of `rows` rows took `took_s` seconds.

    The size at most doubles, and it shrinks at once to fit into `BATCH_S`.

    >>> [next_batch_rows(20, took_s) for took_s in (0.0001, 0.004, 0.01, 10.0)]
    [40, 25, 10, 5]
    """
    fitting = int(rows * BATCH_S / max(took_s, 1e-6))
    return max(MIN_ROWS, min(fitting, 2 * rows, MAX_ROWS))
