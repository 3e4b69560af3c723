"""Looks up and changes accepted messages: by ID, by position, with a question, and after an edit."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from store.conversations import ConversationKey, key_params
from store.database import Database, Params, Transaction
from store.inbox_accept import SELECT_ROWS, InboxRow, inbox_row_from, mark_received
from store.outbox import NewOutboxRow, OutboxRow, OutboxStore, insert_outbox_rows

# When a chat migrates, its conversations may be merged, and a row that was read earlier then names the old
# conversation. So the statements take the conversation and the position from the row as it is stored now.
_OF_ROW = "(SELECT conversation_id FROM inbox WHERE id = :id)"
_SEQ_OF_ROW = "(SELECT seq FROM inbox WHERE id = :id)"

_BY_ID = f"{SELECT_ROWS} WHERE inbox.id = :id"
FIND_BY_MESSAGE = f"""{SELECT_ROWS}
WHERE inbox.message_id = :message_id AND inbox.message_id <> ''
AND channel = :channel AND workspace = :workspace AND chat = :chat
ORDER BY inbox.id DESC LIMIT 1
"""
_BY_EVENT = f"""{SELECT_ROWS}
WHERE inbox.conversation_id = {_OF_ROW} AND inbox.event_id = :event_id
ORDER BY inbox.id DESC LIMIT 1
"""
_AFTER = f"""{SELECT_ROWS}
WHERE inbox.conversation_id = {_OF_ROW} AND inbox.seq > {_SEQ_OF_ROW}
AND (inbox.kind = 'chat' OR :commands = 1) ORDER BY inbox.seq LIMIT :limit
"""
_FIND_QUESTION = f"""{SELECT_ROWS}
WHERE inbox.conversation_id = {_OF_ROW} AND inbox.seq < {_SEQ_OF_ROW} AND inbox.question IS NOT NULL
ORDER BY inbox.seq DESC LIMIT 1
"""
_OPEN_QUESTIONS = f"""{SELECT_ROWS}
WHERE channel = :channel AND workspace = :workspace AND chat = :chat
AND inbox.question IS NOT NULL AND inbox.received_at > :since AND NOT EXISTS (
    SELECT 1 FROM inbox AS later
    WHERE later.conversation_id = inbox.conversation_id AND later.seq > inbox.seq AND later.kind = 'chat')
ORDER BY inbox.id DESC LIMIT :limit
"""  # noqa: S608 - literals only
_CLEAR_QUESTION = "UPDATE inbox SET question = NULL WHERE id = :id"
_UPDATE_BODY = """
UPDATE inbox SET body = :body, starts = CASE WHEN :reset_starts = 1 THEN 0 ELSE starts END
WHERE id = :id
RETURNING state
"""
_JOIN_BODY = """
UPDATE inbox SET body = :body, starts = 0 WHERE id = :id AND state IN ('new', 'running') RETURNING id
"""
_JOIN_PART = "UPDATE inbox SET body = :body, state = 'done' WHERE id = :id AND state = 'new'"
_ASSIGN_RUN = """
UPDATE inbox SET thread_id = :thread_id, run_id = :run_id WHERE id = :id AND state = 'new'
RETURNING id
"""

MAX_PARTS = 1000
"""Maximum number of parts in one answer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReceivedEvent:
    """A platform event: its ID, stable across redeliveries, and its time (Unix seconds)."""

    key: ConversationKey
    event_id: str
    at: float


class MessageHistoryStore:
    """The inbox table, for messages that were accepted before. Finished rows are deleted after 7 days."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._outbox = OutboxStore(database)

    async def find(self, inbox_id: int) -> InboxRow | None:
        """Return one row; None if it does not exist (anymore)."""
        return await self._first(_BY_ID, {"id": inbox_id})

    async def find_by_message(self, key: ConversationKey, message_id: str) -> InboxRow | None:
        """Return the row of a message of a chat, in any topic; None if it does not exist (anymore)."""
        if not message_id:
            return None
        return await self._first(FIND_BY_MESSAGE, {**key_params(key), "message_id": message_id})

    async def find_by_event(self, row: InboxRow, event_id: str) -> InboxRow | None:
        """Return the row that an event created in the conversation of a row."""
        return await self._first(_BY_EVENT, {"id": row.id, "event_id": event_id})

    async def list_after(
        self, row: InboxRow, *, limit: int = 20, commands: bool = False
    ) -> list[InboxRow]:
        """Return the chat rows (and `commands`) after a row in its conversation, first to last."""
        params: Params = {"id": row.id, "limit": limit, "commands": int(commands)}
        return [inbox_row_from(found) for found in await self._database.read(_AFTER, params)]

    async def find_question(self, row: InboxRow) -> InboxRow | None:
        """Return the last row before this one in its conversation whose turn ended with a question."""
        return await self._first(_FIND_QUESTION, {"id": row.id})

    async def list_open_questions(
        self, key: ConversationKey, *, since: float, limit: int
    ) -> list[InboxRow]:
        """Return the rows of a chat that ended with a question and that no message follows, newest first.

        `since`: only rows received after this time, Unix seconds.
        """
        params: Params = {**key_params(key), "since": since, "limit": limit}
        found = await self._database.read(_OPEN_QUESTIONS, params)
        return [inbox_row_from(row) for row in found]

    async def clear_question(self, row: InboxRow) -> None:
        """Delete the question of a row: it was answered or is obsolete."""
        await self._database.transaction(lambda tx: tx.run(_CLEAR_QUESTION, {"id": row.id}))

    async def find_last_text(self, row: InboxRow) -> OutboxRow | None:
        """Return the last text message of a row's answer."""
        last = None
        for index in range(MAX_PARTS):
            found = await self._outbox.find(f"{row.id}:reply:{index}")
            if found is None:
                break
            last = found
        return last

    async def update_body(
        self,
        inbox_id: int,
        body: str,
        event: ReceivedEvent,
        *,
        reset_starts: bool = False,
        offers: Sequence[NewOutboxRow] = (),
    ) -> bool:
        """Replace a row's body, once per event; False if the event was received before.

        `offers` are inserted if the row is finished. Otherwise the caller that finishes it finds the new body.

        `reset_starts`: set the starts to 0, because the message has changed.
        """
        params: Params = {"id": inbox_id, "body": body, "reset_starts": int(reset_starts)}

        def work(tx: Transaction) -> bool:
            if not mark_received(tx, event.key, event.event_id, at=event.at):
                return False
            rows = tx.run(_UPDATE_BODY, params)
            if rows and rows[0]["state"] in ("done", "dead"):
                insert_outbox_rows(tx, offers, now=event.at)
            return True

        return await self._database.transaction(work)

    async def join(self, inbox_id: int, body: str, parts: Mapping[int, str]) -> bool:
        """Replace the body of an unfinished row with one that includes further rows. Finish those rows without answers.

        `parts`: the new bodies of those rows by id. Returns False and writes nothing if the row is finished.
        """
        params: Params = {"id": inbox_id, "body": body}

        def work(tx: Transaction) -> bool:
            if not tx.run(_JOIN_BODY, params):
                return False
            tx.run_all([(_JOIN_PART, {"id": part, "body": said}) for part, said in parts.items()])
            return True

        return await self._database.transaction(work)

    async def assign_run(self, inbox_id: int, *, thread_id: str, run_id: str) -> bool:
        """Assign a queued row to the run it is about to be injected into. False if it is no longer queued."""
        params: Params = {"id": inbox_id, "thread_id": thread_id, "run_id": run_id}
        return bool(await self._database.execute(_ASSIGN_RUN, params))

    async def _first(self, statement: str, params: Params) -> InboxRow | None:
        rows = await self._database.read(statement, params)
        return inbox_row_from(rows[0]) if rows else None
