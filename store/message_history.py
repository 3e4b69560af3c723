"""Looks accepted messages up: by id, the rows after one, the open question before one, the answer of one."""

from store.database import Database, Params
from store.inbox import SELECT_ROWS, InboxRow, inbox_row_from
from store.outbox import OutboxRow, OutboxStore

_BY_ID = f"{SELECT_ROWS} WHERE inbox.id = :id"
_AFTER = f"""{SELECT_ROWS}
WHERE inbox.conversation_id = :conversation_id AND inbox.seq > :seq AND inbox.kind = 'chat'
ORDER BY inbox.seq LIMIT :limit
"""
_FIND_QUESTION = f"""{SELECT_ROWS}
WHERE inbox.conversation_id = :conversation_id AND inbox.seq < :seq AND inbox.question IS NOT NULL
ORDER BY inbox.seq DESC LIMIT 1
"""

_CLEAR_QUESTION = "UPDATE inbox SET question = NULL WHERE id = :id"

MAX_PARTS = 1000
"""Maximum parts of one answer."""


class MessageHistoryStore:
    """Reads the inbox and outbox. Finished rows are deleted after 7 days."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._outbox = OutboxStore(database)

    async def find(self, inbox_id: int) -> InboxRow | None:
        """Return one row; None if it does not exist (any more)."""
        rows = await self._database.read(_BY_ID, {"id": inbox_id})
        return inbox_row_from(rows[0]) if rows else None

    async def list_after(self, row: InboxRow, *, limit: int = 20) -> list[InboxRow]:
        """Return the chat rows that came after a row in its conversation, first to last."""
        params: Params = {
            "conversation_id": row.conversation_id,
            "seq": row.seq,
            "limit": limit,
        }
        return [inbox_row_from(found) for found in await self._database.read(_AFTER, params)]

    async def find_question(self, row: InboxRow) -> InboxRow | None:
        """Return the last row before this one in its conversation whose turn ended with a question."""
        params: Params = {"conversation_id": row.conversation_id, "seq": row.seq}
        rows = await self._database.read(_FIND_QUESTION, params)
        return inbox_row_from(rows[0]) if rows else None

    async def clear_question(self, row: InboxRow) -> None:
        """Delete the question of a row: it was answered, or is obsolete."""
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
