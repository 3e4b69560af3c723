"""Conversations that a person has taken over from the agent: columns of the table conversation.

The transaction that accepts a message reads them under the lock of the conversation's row. So each message is accepted
either before a takeover or after it, whichever node accepts it.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from store.conversations import ConversationKey, key_from_row
from store.database import Database, Params, Row, Transaction
from store.errors import RowNotFound
from store.outbox import NewOutboxRow, insert_outbox_rows
from store.rows import from_row

_SELECT = """
SELECT id AS conversation_id, channel, workspace, chat, topic, thread_id, taken_over_by, taken_over_at,
    coalesce((SELECT max(seq) FROM inbox WHERE conversation_id = conversation.id), last_seq) AS last_seq
FROM conversation
"""
_OF_THREAD = f"{_SELECT} WHERE thread_id = :thread_id"
_LOCK = "SELECT id FROM conversation WHERE thread_id = :thread_id /* FOR UPDATE */"
_LIST = f"{_SELECT} WHERE taken_over_by IS NOT NULL"
_COUNT = "SELECT count(*) AS conversations FROM conversation WHERE taken_over_by IS NOT NULL"
_BEGIN = """
UPDATE conversation SET taken_over_by = :by, taken_over_at = :now WHERE id = :id AND taken_over_by IS NULL RETURNING id
"""
_END = """
UPDATE conversation SET taken_over_by = NULL, taken_over_at = NULL
WHERE id = :id AND taken_over_by IS NOT NULL RETURNING id
"""
_WITHDRAW_QUESTIONS = """
UPDATE inbox SET question = NULL WHERE conversation_id = :id AND question IS NOT NULL RETURNING id
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class ConversationControl:
    """Who answers in a conversation.

    Attributes:
        thread_id: Its current thread.
        taken_over_by: The person who answers instead of the agent; None = the agent answers.
        taken_over_at: When that person took over, Unix seconds.
        last_seq: The position of its last message.
    """

    conversation_id: int
    key: ConversationKey
    thread_id: str
    taken_over_by: str | None
    taken_over_at: float | None
    last_seq: int


class TakeoverStore:
    """The columns taken_over_by and taken_over_at of the table conversation."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def find(self, thread_id: str) -> ConversationControl:
        """Return the conversation whose next message goes to a thread. Raises RowNotFound."""
        return _first(await self._database.read(_OF_THREAD, {"thread_id": thread_id}), thread_id)

    async def list_all(self) -> list[ConversationControl]:
        """Return the conversations that a person has taken over."""
        return [_control(row) for row in await self._database.read(_LIST)]

    async def count(self) -> int:
        """Return the number of conversations that a person has taken over."""
        return int((await self._database.read(_COUNT))[0]["conversations"])

    async def begin(
        self, thread_id: str, by: str, *, now: float, notices: Sequence[NewOutboxRow]
    ) -> tuple[ConversationControl, Sequence[int]]:
        """Take over a conversation, unless someone has already. Withdraw its open questions in the same transaction.

        `notices`: the messages that tell people. Return the conversation after the takeover, and the inbox rows whose
        questions were withdrawn. Raises RowNotFound.
        """

        def work(tx: Transaction) -> tuple[ConversationControl, Sequence[int]]:
            before = _lock(tx, thread_id)
            mine: Params = {"id": before.conversation_id, "by": by, "now": now}
            if not tx.run(_BEGIN, mine):
                return before, ()
            withdrawn = tx.run(_WITHDRAW_QUESTIONS, {"id": before.conversation_id})
            insert_outbox_rows(tx, notices, now=now)
            return _lock(tx, thread_id), [int(row["id"]) for row in withdrawn]

        return await self._database.transaction(work)

    async def end(
        self, thread_id: str, *, now: float, notices: Sequence[NewOutboxRow]
    ) -> ConversationControl | None:
        """Hand a conversation back. Return it as it was before; None = no one had taken it over. Raises RowNotFound."""

        def work(tx: Transaction) -> ConversationControl | None:
            before = _lock(tx, thread_id)
            if not tx.run(_END, {"id": before.conversation_id}):
                return None
            insert_outbox_rows(tx, notices, now=now)
            return before

        return await self._database.transaction(work)


def _lock(tx: Transaction, thread_id: str) -> ConversationControl:
    """Lock a conversation and return it. Raises RowNotFound."""
    tx.run(_LOCK, {"thread_id": thread_id})
    return _first(tx.run(_OF_THREAD, {"thread_id": thread_id}), thread_id)


def _first(rows: Sequence[Row], thread_id: str) -> ConversationControl:
    if not rows:
        raise RowNotFound(f"No conversation continues in the thread {thread_id}.")
    return _control(rows[0])


def _control(row: Row) -> ConversationControl:
    return from_row(ConversationControl, row, key=key_from_row(row))
