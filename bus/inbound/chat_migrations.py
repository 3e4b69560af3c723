"""Chats that get another id while Parley runs: a Telegram group that becomes a supergroup."""

import logging
from collections.abc import Iterator
from dataclasses import replace

from bus.outbound.worker import DeliveryWorker
from bus.settings.resolver import SettingsResolver
from store.chat_migrations import ChatMigrationStore
from store.conversations import ChatMigration, ConversationKey

log = logging.getLogger(__name__)


class ChatMigrations:
    """Lets what was kept under a chat's old id go on under the new one.

    Args:
        table: Where the moves are kept.
        choices: Read anew after a move.
    """

    def __init__(self, table: ChatMigrationStore, choices: SettingsResolver) -> None:
        self._table = table
        self._choices = choices
        self._came_from: dict[ConversationKey, str] = {}

    async def load(self, delivery: DeliveryWorker) -> None:
        """Tell of earlier moves, before anything is sent. Raises StoreError."""
        if merged := await self._table.merge_leftovers():
            log.info("merged %s conversations of migrated chats", merged)
        for move in await self._table.list_all():
            self._note(move)
            delivery.add_migration(move)

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

    async def migrate(self, move: ChatMigration, delivery: DeliveryWorker) -> None:
        """Move a chat, once; when this returns it is kept. Raises StoreError.

        Args:
            move: From where to where.
            delivery: Told, so that what is owed goes out in the lane of the new id.
        """
        old = ConversationKey(channel=move.channel, workspace=move.workspace, chat=move.old_chat)
        if move.new_chat in self._ids(old):
            log.warning("chat %r of %s cannot move back", move.old_chat, move.channel)
            return
        if not await self._table.migrate(move):
            return
        self._note(move)
        log.info("chat %r of %s is now %r", move.old_chat, move.channel, move.new_chat)
        await self._choices.load()
        await delivery.migrate_chat(move)

    def _note(self, move: ChatMigration) -> None:
        there = ConversationKey(channel=move.channel, workspace=move.workspace, chat=move.new_chat)
        self._came_from[there] = move.old_chat
