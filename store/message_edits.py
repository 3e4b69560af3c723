"""Edits of accepted messages: find one by its platform id, replace its body, assign it to a run."""

from dataclasses import dataclass

from store.conversations import ConversationKey, key_params
from store.database import Database, Params, Transaction
from store.inbox import SELECT_ROWS, InboxRow, inbox_row_from, mark_received

FIND_BY_MESSAGE = f"""{SELECT_ROWS}
WHERE inbox.message_id = :message_id AND inbox.message_id <> ''
AND channel = :channel AND workspace = :workspace AND chat = :chat
ORDER BY inbox.id DESC LIMIT 1
"""
_BY_EVENT = f"""{SELECT_ROWS}
WHERE inbox.conversation_id = :conversation_id AND inbox.event_id = :event_id
ORDER BY inbox.id DESC LIMIT 1
"""
_AFTER = f"""{SELECT_ROWS}
WHERE inbox.conversation_id = :conversation_id AND inbox.seq > :seq ORDER BY inbox.seq LIMIT :limit
"""
_UPDATE_BODY = """
UPDATE inbox SET body = :body, attempts = CASE WHEN :reset_attempts = 1 THEN 0 ELSE attempts END
WHERE id = :id
"""
_ASSIGN_RUN = """
UPDATE inbox SET thread_id = :thread_id, run_id = :run_id WHERE id = :id AND state = 'new'
RETURNING id
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReceivedEvent:
    """A platform event: its id, stable over redeliveries, and its time (Unix seconds)."""

    key: ConversationKey
    event_id: str
    at: float


class MessageEditStore:
    """The inbox table, for edited and deleted messages."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def find_by_message(self, key: ConversationKey, message_id: str) -> InboxRow | None:
        """Return the row of a message of a chat, in any topic; None if there is none (any more)."""
        if not message_id:
            return None
        params: Params = {**key_params(key), "message_id": message_id}
        rows = await self._database.read(FIND_BY_MESSAGE, params)
        return inbox_row_from(rows[0]) if rows else None

    async def find_by_event(self, conversation_id: int, event_id: str) -> InboxRow | None:
        """Return the row of a conversation that an event created."""
        params: Params = {"conversation_id": conversation_id, "event_id": event_id}
        rows = await self._database.read(_BY_EVENT, params)
        return inbox_row_from(rows[0]) if rows else None

    async def list_after(self, row: InboxRow, *, limit: int) -> list[InboxRow]:
        """Return the rows after one in its conversation, commands included, first to last."""
        params: Params = {"conversation_id": row.conversation_id, "seq": row.seq, "limit": limit}
        return [inbox_row_from(found) for found in await self._database.read(_AFTER, params)]

    async def update_body(
        self, inbox_id: int, body: str, event: ReceivedEvent, *, reset_attempts: bool = False
    ) -> bool:
        """Replace a row's body, once per event; False if the event was received before.

        `reset_attempts`: the message is a different one now; earlier attempts do not count.
        """
        params: Params = {"id": inbox_id, "body": body, "reset_attempts": int(reset_attempts)}

        def work(tx: Transaction) -> bool:
            if not mark_received(tx, event.key, event.event_id, at=event.at):
                return False
            tx.run(_UPDATE_BODY, params)
            return True

        return await self._database.transaction(work)

    async def assign_run(self, inbox_id: int, *, thread_id: str, run_id: str) -> bool:
        """Assign a queued row to the run it is about to be injected into. False if it is not queued any more."""
        params: Params = {"id": inbox_id, "thread_id": thread_id, "run_id": run_id}
        return bool(await self._database.transaction(lambda tx: tx.run(_ASSIGN_RUN, params)))
