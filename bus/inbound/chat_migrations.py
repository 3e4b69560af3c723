"""Chat migrations: a chat gets a new ID while Parley runs, such as a Telegram group that becomes a supergroup."""

import json
import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace

import anyio

from bus.context import BusContext
from bus.messages import chat_of
from store.conversations import ChatMigration, ConversationKey
from store.errors import StoreUnavailable
from store.node_calls import NodeCalls

HELD = "bus.held"
"""The call that asks a node which of the given rows it works on."""

log = logging.getLogger(__name__)


class ChatMigrations:
    """Moves stored data to a chat's new ID, reloads settings, and redirects pending messages.

    Args:
        bus: The bus.
        on_change: Called after a migration has been stored, so that other nodes reload the migrations.
    """

    def __init__(self, bus: BusContext, on_change: Callable[[], None]) -> None:
        self._on_change = on_change
        self._owners = bus.stores.owners
        self._store = bus.stores.migrations
        self._settings = bus.settings
        self._delivery = bus.delivery
        self._came_from: dict[ConversationKey, str] = {}

    async def reload(self) -> None:
        """Load the migrations. Call it before anything is sent, and after another node adds one. Raises StoreError."""
        for migration in await self._store.list_all():
            self._add(migration)
            self._delivery.add_migration(migration)

    def original_chat(self, key: ConversationKey) -> str:
        """Return the first ID that a chat had; "" if it still has it."""
        *_, first = self._ids(chat_of(key))
        return first if first != key.chat else ""

    def _ids(self, chat: ConversationKey) -> Iterator[str]:
        """Yield all IDs of a chat, the current one first."""
        yield chat.chat
        while (former := self._came_from.get(chat)) is not None:
            yield former
            chat = replace(chat, chat=former)

    async def migrate(self, migration: ChatMigration) -> None:
        """Migrate a chat and store the migration, once. Raises StoreError."""
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
        """Remember a migration. A repetition has no effect."""
        there = ConversationKey(
            channel=migration.channel, workspace=migration.workspace, chat=migration.new_chat
        )
        self._came_from[there] = migration.old_chat
        self._owners.forget([replace(there, chat=migration.old_chat)])


class HeldRows:
    """Asks other nodes which rows they work on, and answers the same question from them.

    A migrated chat may have had a different owner, which finishes the turns that it has begun.

    Args:
        calls: Calls to and from the other nodes.
        list_own: Returns the rows that this node works on.
    """

    def __init__(self, calls: NodeCalls, list_own: Callable[[], frozenset[int]]) -> None:
        self._calls = calls
        self._list_own = list_own
        self._arriving: set[anyio.Event] = set()
        calls.serve(HELD, self._answer)

    @contextmanager
    def arriving(self) -> Iterator[None]:
        """Mark that messages committed or read inside the block will be dispatched before its end, if at all.

        Other nodes get their answer after the block.
        """
        over = anyio.Event()
        self._arriving.add(over)
        try:
            yield
        finally:
            self._arriving.remove(over)
            over.set()

    async def list_held_by_others(self, row_ids: list[int]) -> frozenset[int]:
        """Return the rows that other nodes work on, or may work on because they do not respond."""
        held: set[int] = set()
        for node in self._calls.others:
            try:
                held.update(json.loads(await self._calls.call(node, HELD, json.dumps(row_ids))))
            except StoreUnavailable as error:
                if node in self._calls.others:
                    log.warning("messages of a migrated chat wait: %s", error)
                    return frozenset(row_ids)
        return frozenset(held)

    async def _answer(self, row_ids: str) -> str:
        """Return the rows that this node works on, or will work on. Waits until arrived messages are dispatched."""
        for over in tuple(self._arriving):
            await over.wait()
        return json.dumps(sorted(self._list_own().intersection(json.loads(row_ids))))
