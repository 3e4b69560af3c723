"""Migrated chats: where to send rows that are stored under a chat's former IDs."""

from store.conversations import ChatMigration, ConversationKey


class MigratedChats:
    """Chats whose ID changed while they may have open rows. Raises nothing."""

    def __init__(self) -> None:
        self._by_old_chat: dict[tuple[str, str, str], ChatMigration] = {}

    def add(self, migration: ChatMigration) -> None:
        """Remember a migration. A repetition has no effect."""
        chat = (migration.channel, migration.workspace, migration.old_chat)
        self._by_old_chat[chat] = migration

    def current_key(self, key: ConversationKey) -> ConversationKey:
        """Return the key under which a conversation is stored now."""
        while migration := self._by_old_chat.get((key.channel, key.workspace, key.chat)):
            key = migration.apply(key)
        return key

    def list_ids(self, channel: str, chat: str) -> set[str]:
        """Return a chat's ID and the IDs that migrated directly to it."""
        migrations = self._by_old_chat.values()
        return {
            chat,
            *(one.old_chat for one in migrations if (one.channel, one.new_chat) == (channel, chat)),
        }
