"""What became of accepted messages: a row by its id, the rows after it, the question before it, its answer."""

from store.database import Database, Params
from store.inbox import SELECT_ROWS, InboxRow, inbox_row_from
from store.outbox import OutboxRow, OutboxStore

_ONE = f"{SELECT_ROWS} WHERE inbox.id = :id"
_AFTER = f"""{SELECT_ROWS}
WHERE inbox.conversation_id = :conversation_id AND inbox.seq > :seq AND inbox.kind = 'chat'
ORDER BY inbox.seq LIMIT :limit
"""
_ASKING = f"""{SELECT_ROWS}
WHERE inbox.conversation_id = :conversation_id AND inbox.seq < :seq AND inbox.question IS NOT NULL
ORDER BY inbox.seq DESC LIMIT 1
"""

_ANSWERED = "UPDATE inbox SET question = NULL WHERE id = :id"

MAX_PARTS = 1000
"""Messages that an answer is searched through."""


class MessageHistoryStore:
    """Looks back at the journal. Rows older than a week may be gone."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._outbox = OutboxStore(database)

    async def find(self, inbox_id: int) -> InboxRow | None:
        """Return one row; None if there is none (any more)."""
        rows = await self._database.read(_ONE, {"id": inbox_id})
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
        """Return the last row before one in its conversation whose turn ended with asking something."""
        params: Params = {"conversation_id": row.conversation_id, "seq": row.seq}
        rows = await self._database.read(_ASKING, params)
        return inbox_row_from(rows[0]) if rows else None

    async def clear_question(self, row: InboxRow) -> None:
        """Note that nobody waits any more for an answer to what a row's turn asked."""
        await self._database.transaction(lambda tx: tx.run(_ANSWERED, {"id": row.id}))

    async def find_last_text(self, row: InboxRow) -> OutboxRow | None:
        """Return the last text message of a row's answer."""
        last = None
        for index in range(MAX_PARTS):
            found = await self._outbox.find(f"{row.id}:reply:{index}")
            if found is None:
                break
            last = found
        return last
