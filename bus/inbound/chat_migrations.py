"""Chat migrations: a chat gets another id while Parley runs, as a Telegram group that becomes a supergroup."""

import logging
from collections.abc import Callable, Iterator
from dataclasses import replace

from bus.context import BusContext
from store.conversations import ChatMigration, ConversationKey

log = logging.getLogger(__name__)


class ChatMigrations:
    """Re-keys what is stored under a chat's old id, reloads settings, and has what is pending sent to the new id.

    Args:
        bus: The bus.
        on_change: Called after a migration was stored: other nodes read the migrations again.
    """

    def __init__(self, bus: BusContext, on_change: Callable[[], None]) -> None:
        self._on_change = on_change
        self._owners = bus.stores.owners
        self._store = bus.stores.migrations
        self._settings = bus.settings
        self._delivery = bus.delivery
        self._came_from: dict[ConversationKey, str] = {}

    async def load(self) -> None:
        """Read earlier migrations, before anything is sent. Raises StoreError."""
        if merged := await self._store.merge_leftovers():
            log.info("merged %s conversations of migrated chats", merged)
        await self.reload()

    async def reload(self) -> None:
        """Read the migrations; another node may have added some. Raises StoreError."""
        for migration in await self._store.list_all():
            self._add(migration)
            self._delivery.add_migration(migration)

    def original_chat(self, key: ConversationKey) -> str:
        """Return the first id that a chat had; "" if it has it still."""
        *_, first = self._ids(replace(key, topic=""))
        return first if first != key.chat else ""

    def _ids(self, chat: ConversationKey) -> Iterator[str]:
        """Yield the ids that a chat had, the present one first."""
        yield chat.chat
        while (former := self._came_from.get(chat)) is not None:
            yield former
            chat = replace(chat, chat=former)

    async def migrate(self, migration: ChatMigration) -> None:
        """Migrate a chat, once; it is stored when this returns. Raises StoreError."""
        old = ConversationKey(
            channel=migration.channel, workspace=migration.workspace, chat=migration.old_chat
        )
        if migration.new_chat in self._ids(old):
            log.warning("chat %r of %s cannot move back", migration.old_chat, migration.channel)
            return
        if not await self._store.migrate(migration):
            return
        self._add(migration)
        log.info(
            "chat %r of %s is now %r", migration.old_chat, migration.channel, migration.new_chat
        )
        self._on_change()
        await self._settings.load()
        await self._delivery.migrate_chat(migration)

    def _add(self, migration: ChatMigration) -> None:
        """Know a migration. Twice is as once."""
        there = ConversationKey(
            channel=migration.channel, workspace=migration.workspace, chat=migration.new_chat
        )
        self._came_from[there] = migration.old_chat
        self._owners.forget([replace(there, chat=migration.old_chat)])
