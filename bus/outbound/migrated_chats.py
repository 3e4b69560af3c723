"""Where what is stored for a chat's former ids is sent now."""

from store.conversations import ChatMigration, ConversationKey


class MigratedChats:
    """The chats whose id changed while rows for the former one may be open. Raises nothing."""

    def __init__(self) -> None:
        self._by_old_chat: dict[tuple[str, str, str], ChatMigration] = {}

    def add(self, migration: ChatMigration) -> None:
        """Learn of a migration. Twice is as once."""
        chat = (migration.channel, migration.workspace, migration.old_chat)
        self._by_old_chat[chat] = migration

    def current_key(self, key: ConversationKey) -> ConversationKey:
        """Return the key under which a conversation is stored now."""
        while migration := self._by_old_chat.get((key.channel, key.workspace, key.chat)):
            key = migration.apply(key)
        return key

    def list_ids(self, channel: str, chat: str) -> set[str]:
        """Return the id of a chat and those from which it migrated to it directly."""
        migrations = self._by_old_chat.values()
        return {
            chat,
            *(one.old_chat for one in migrations if (one.channel, one.new_chat) == (channel, chat)),
        }
