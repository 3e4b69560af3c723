"""Chat migrations: move everything that is stored under a chat's old ID to the new one."""

from dataclasses import asdict

from store.chat_owners import LIVES
from store.conversations import LAST_SEQ, ChatMigration
from store.database import Database, Params, Transaction
from store.rows import from_row

_INSERT = """
INSERT INTO chat_migration (channel, workspace, old_chat, new_chat)
VALUES (:channel, :workspace, :old_chat, :new_chat)
ON CONFLICT (channel, workspace, old_chat) DO NOTHING
RETURNING old_chat
"""
_ALL = "SELECT * FROM chat_migration"
# If both chats have a conversation without a topic, the old one is merged into the new one. The old rows come after the
# new ones, and the old thread is kept only if the new conversation has none.
_BOTH_FLAT = """
SELECT old.id AS old_id, new.id AS new_id
FROM conversation AS old JOIN conversation AS new
    ON new.channel = old.channel AND new.workspace = old.workspace AND new.chat = :new_chat AND new.topic = ''
WHERE old.channel = :channel AND old.workspace = :workspace AND old.chat = :old_chat AND old.topic = ''
/* FOR UPDATE */
"""
_LAST_SEQS = f"""
SELECT (SELECT {LAST_SEQ} FROM conversation WHERE id = :old_id) AS old_last,
    (SELECT {LAST_SEQ} FROM conversation WHERE id = :new_id) AS new_last
"""  # noqa: S608 - statements of this package only
_MERGE = (
    "UPDATE inbox SET conversation_id = :new_id, seq = seq + :new_last WHERE conversation_id = :old_id",
    "UPDATE outbox SET conversation_id = :new_id WHERE conversation_id = :old_id",
    "UPDATE discarded_delivery SET conversation_id = :new_id WHERE conversation_id = :old_id",
    """
    UPDATE conversation SET last_seq = CAST(:old_last AS BIGINT) + :new_last,
        thread_id = coalesce(thread_id, (SELECT thread_id FROM conversation WHERE id = :old_id)),
        taken_over_by = coalesce(taken_over_by, (SELECT taken_over_by FROM conversation WHERE id = :old_id)),
        taken_over_at = coalesce(taken_over_at, (SELECT taken_over_at FROM conversation WHERE id = :old_id))
    WHERE id = :new_id
    """,
    "DELETE FROM conversation WHERE id = :old_id",
)
_MOVE = (
    # The owner of the old chat becomes the owner of the new one.
    f"""
    INSERT INTO chat_owner (channel, workspace, chat, node)
    SELECT channel, workspace, :new_chat, node FROM chat_owner
    WHERE channel = :channel AND workspace = :workspace AND chat = :old_chat AND {LIVES}
    ON CONFLICT (channel, workspace, chat)
    DO UPDATE SET node = CASE WHEN {LIVES} THEN chat_owner.node ELSE excluded.node END
    """,  # noqa: S608 - statements of this module only
    """
    UPDATE conversation SET chat = :new_chat,
        topic = CASE topic WHEN '' THEN '' ELSE :old_chat || ':' || topic END
    WHERE channel = :channel AND workspace = :workspace AND chat = :old_chat
    """,
    """
    UPDATE message_topic SET chat = :new_chat, message_id = :old_chat || ':' || message_id,
        topic = CASE topic WHEN '' THEN '' ELSE :old_chat || ':' || topic END
    WHERE channel = :channel AND workspace = :workspace AND chat = :old_chat
    """,
    """
    UPDATE conversation_settings SET chat = :new_chat,
        topic = CASE topic WHEN '' THEN '' ELSE :old_chat || ':' || topic END
    WHERE channel = :channel AND workspace = :workspace AND chat = :old_chat AND NOT EXISTS (
        SELECT 1 FROM conversation_settings AS taken WHERE taken.channel = :channel AND taken.workspace = :workspace
        AND taken.chat = :new_chat AND taken.topic = CASE conversation_settings.topic WHEN '' THEN ''
            ELSE :old_chat || ':' || conversation_settings.topic END)
    """,
    """
    DELETE FROM chat WHERE channel = :channel AND workspace = :workspace AND chat = :old_chat AND EXISTS (
        SELECT 1 FROM chat AS known
        WHERE known.channel = :channel AND known.workspace = :workspace AND known.chat = :new_chat)
    """,
    """
    UPDATE chat SET chat = :new_chat
    WHERE channel = :channel AND workspace = :workspace AND chat = :old_chat
    """,
    """
    DELETE FROM notification_chat WHERE channel = :channel AND workspace = :workspace AND chat = :old_chat AND EXISTS (
        SELECT 1 FROM notification_chat AS known
        WHERE known.channel = :channel AND known.notification_id = notification_chat.notification_id
        AND known.workspace = :workspace AND known.chat = :new_chat)
    """,
    """
    UPDATE notification_chat SET chat = :new_chat
    WHERE channel = :channel AND workspace = :workspace AND chat = :old_chat
    """,
    # The topic may be the ID of a message in the old chat, as in the conversation table.
    """
    UPDATE schedule SET chat = :new_chat, topic = CASE topic WHEN '' THEN '' ELSE :old_chat || ':' || topic END
    WHERE channel = :channel AND workspace = :workspace AND chat = :old_chat
    """,
    """
    UPDATE pairing SET chat = :new_chat, user_id = 'group:' || :new_chat
    WHERE channel = :channel AND workspace = :workspace AND user_id = 'group:' || :old_chat
    """,
)


class ChatMigrationStore:
    """The chat_migration table."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def list_all(self) -> list[ChatMigration]:
        """Return every migration."""
        return [from_row(ChatMigration, row) for row in await self._database.read(_ALL, {})]

    async def migrate(self, migration: ChatMigration) -> bool:
        """Move conversations with their rows, settings and known messages to the new ID, in one transaction.

        Message IDs start over in the new chat, so message IDs of the old chat, and topics named after them, get the old
        chat's ID as a prefix (`ChatMigration.apply`).

        Returns:
            False if this chat has been migrated before.
        """
        params = asdict(migration)

        def work(tx: Transaction) -> bool:
            if not tx.run(_INSERT, params):
                return False
            _merge_flat(tx, params)
            for statement in _MOVE:
                tx.run(statement, params)
            return True

        return await self._database.transaction(work)


def _merge_flat(tx: Transaction, params: Params) -> None:
    """Merge the topicless conversation of the old chat into the new chat's, if both exist."""
    both = tx.run(_BOTH_FLAT, params)
    if not both:
        return
    # The rows are locked, so no more messages can be added.
    ids = dict(both[0])
    last_seqs = tx.run(_LAST_SEQS, ids)[0]
    for statement in _MERGE:
        tx.run(statement, {**ids, **dict(last_seqs)})
