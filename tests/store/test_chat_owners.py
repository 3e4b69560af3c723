"""Which node works on which chat: what a node believes to own, it owns."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import anyio

from store.chat_migrations import ChatMigrationStore
from store.chat_owners import SharedOwners
from store.config import StoreConfig
from store.conversations import ChatMigration, ConversationKey
from store.database import Database
from store.inbox import InboxRow, InboxStore, NewInboxRow
from tests.ready_nodes import owner_of, until_ready


def key_of(number: int) -> ConversationKey:
    return ConversationKey(channel="fake", workspace="w", chat=f"c{number}")


@asynccontextmanager
async def two_nodes(url: str, home: Path) -> AsyncIterator[tuple[Database, Database]]:
    config = StoreConfig(url=url)
    async with (
        Database.open(config, home / "one") as one,
        Database.open(config, home / "two") as two,
    ):
        await one.nodes.mark_ready()
        await two.nodes.mark_ready()
        await until_ready(one, two)
        yield one, two


async def test_a_chat_that_is_given_up_while_it_is_looked_up_does_not_count_as_owned(
    url: str, tmp_path: Path
) -> None:
    async with two_nodes(url, tmp_path) as (one, two):
        owners = SharedOwners(one)
        chats = [key_of(n) for n in range(100) if owners.prefers(key_of(n))][:8]
        believed_in_vain = 0
        for _ in range(40):
            for chat in chats:
                await owners.claim(chat)
            owners.forget(chats)
            async with anyio.create_task_group() as tasks:
                for chat in chats:
                    tasks.start_soon(owners.claim, chat)
                    tasks.start_soon(owners.give_up_strays, [chat])
            for chat in chats:
                is_owned = await owner_of(two, chat) == owners.number
                believed_in_vain += owners.is_own(chat) and not is_owned
        assert believed_in_vain == 0


async def test_a_message_of_a_chat_that_migrated_goes_to_the_owner_of_its_new_chat(
    url: str, tmp_path: Path
) -> None:
    """Also at the node that had it, and has not heard of the migration."""
    config = StoreConfig(url=url)
    async with (
        Database.open(config, tmp_path / "one") as one,
        Database.open(config, tmp_path / "two") as two,
    ):
        owners = SharedOwners(one)
        assert await owners.claim(key_of(1)) == one.nodes.number
        await SharedOwners(two).take([key_of(2)])
        migration = ChatMigration(channel="fake", workspace="w", old_chat="c1", new_chat="c2")
        await ChatMigrationStore(two).migrate(migration)
        assert owners.is_own(key_of(1))
        new = NewInboxRow(
            key=key_of(1), event_id="e", message_id="", kind="chat", body="{}", received_at=1.0
        )
        accepted = await InboxStore(one, owners=owners).accept(new, cap=9)
        assert isinstance(accepted, InboxRow)
        assert accepted.owner == two.nodes.number
