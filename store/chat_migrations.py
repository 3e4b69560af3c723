"""Chats that got another id: everything that was kept under the old one goes on under the new one."""

from store.conversations import ChatMigration
from store.database import Database, Params, Transaction

_NOTE = """
INSERT INTO moved_chat (channel, workspace, chat, now_chat)
VALUES (:channel, :workspace, :chat, :now_chat)
ON CONFLICT (channel, workspace, chat) DO NOTHING
RETURNING chat
"""
_ALL = "SELECT * FROM moved_chat"
_CONVERSATIONS = """
UPDATE conversation SET chat = :now_chat,
    topic = CASE topic WHEN '' THEN '' ELSE :chat || ':' || topic END
WHERE channel = :channel AND workspace = :workspace AND chat = :chat
AND NOT (topic = '' AND EXISTS (
    SELECT 1 FROM conversation AS other
    WHERE other.channel = :channel AND other.workspace = :workspace AND other.chat = :now_chat
    AND other.topic = ''
))
"""
_ORIGINS = """
UPDATE origin SET chat = :now_chat, message_id = :chat || ':' || message_id,
    topic = CASE topic WHEN '' THEN '' ELSE :chat || ':' || topic END
WHERE channel = :channel AND workspace = :workspace AND chat = :chat
"""
_CHOICES = """
UPDATE choice SET chat = :now_chat,
    topic = CASE topic WHEN '' THEN '' ELSE :chat || ':' || topic END
WHERE channel = :channel AND workspace = :workspace AND chat = :chat
AND NOT (topic = '' AND EXISTS (
    SELECT 1 FROM choice AS other
    WHERE other.channel = :channel AND other.workspace = :workspace AND other.chat = :now_chat
    AND other.topic = ''
))
"""


class ChatMigrationStore:
    """The moves that happened, and how one is carried out."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def list_all(self) -> list[ChatMigration]:
        """Return every move."""
        return [
            ChatMigration(
                channel=row["channel"],
                workspace=row["workspace"],
                old_chat=row["chat"],
                new_chat=row["now_chat"],
            )
            for row in await self._database.read(_ALL, {})
        ]

    async def migrate(self, move: ChatMigration) -> bool:
        """Re-key conversations, what is owed and waits in them, choices and known messages, in one transaction.

        Message ids begin anew in the new chat, so those of the old one, and the topics named after them, get
        the old chat's id in front (`ChatMigration.present`).

        Returns:
            Whether it was news.
        """
        params: Params = {
            "channel": move.channel,
            "workspace": move.workspace,
            "chat": move.old_chat,
            "now_chat": move.new_chat,
        }

        def work(tx: Transaction) -> bool:
            if not tx.run(_NOTE, params):
                return False
            for statement in (_CONVERSATIONS, _ORIGINS, _CHOICES):
                tx.run(statement, params)
            return True

        return await self._database.transaction(work)
