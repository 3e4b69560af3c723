"""Chat migrations: a chat gets another id while Parley runs, as a Telegram group that becomes a supergroup."""

import json
import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace

import anyio

from bus.context import BusContext
from store.conversations import ChatMigration, ConversationKey
from store.errors import StoreUnavailable
from store.node_calls import NodeCalls

HELD = "bus.held"
"""The call that asks a node which of some rows it works on."""

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

    async def reload(self) -> None:
        """Read the migrations: before anything is sent, and when another node added one. Raises StoreError."""
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


class HeldRows:
    """Asks other nodes which rows they work on, and answers them.

    A chat that migrated may have had another owner, which answers what it has begun.

    Args:
        calls: To and from the other nodes.
        list_own: Returns the rows that this node works on.
    """

    def __init__(self, calls: NodeCalls, list_own: Callable[[], frozenset[int]]) -> None:
        self._calls = calls
        self._list_own = list_own
        self._arriving: set[anyio.Event] = set()
        calls.serve(HELD, self._answer)

    @contextmanager
    def arriving(self) -> Iterator[None]:
        """Mark that a message which is committed, or read, inside the block is dispatched by its end, if at all.

        Another node that asks is answered after that.
        """
        over = anyio.Event()
        self._arriving.add(over)
        try:
            yield
        finally:
            self._arriving.remove(over)
            over.set()

    async def list_elsewhere(self, row_ids: list[int]) -> frozenset[int]:
        """Return those of some rows that other nodes work on, or may work on as they do not answer."""
        held: set[int] = set()
        for node in self._calls.others:
            try:
                held.update(json.loads(await self._calls.call(node, HELD, json.dumps(row_ids))))
            except StoreUnavailable as error:
                if node in self._calls.others:
                    log.warning("messages of a chat that migrated wait: %s", error)
                    return frozenset(row_ids)
        return frozenset(held)

    async def _answer(self, row_ids: str) -> str:
        """Return those of the rows that this node works on, or will: it dispatches arrived messages first."""
        for over in tuple(self._arriving):
            await over.wait()
        return json.dumps(sorted(self._list_own().intersection(json.loads(row_ids))))
