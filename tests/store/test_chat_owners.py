"""Chat owners: a node never believes that it owns a chat that it does not own."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import anyio
import psycopg

from store.chat_migrations import ChatMigrationStore
from store.chat_owners import SharedOwners
from store.config import StoreConfig
from store.conversations import ChatMigration, ConversationKey
from store.database import Database
from store.inbox import InboxRow, InboxStore, NewInboxRow
from tests.eventually import eventually
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
    """This holds even at the node that owned the chat and does not know of the migration."""
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


async def test_a_message_whose_chat_migrates_meanwhile_goes_to_the_owner_of_its_new_chat(
    url: str, tmp_path: Path
) -> None:
    """The migration has locked the conversation when the former owner looks it up."""
    async with two_nodes(url, tmp_path) as (one, two):
        owners = SharedOwners(one)
        await owners.take([key_of(1)])
        await SharedOwners(two).take([key_of(2)])
        inbox = InboxStore(one, owners=owners)
        accepted: list[object] = []

        async def accept(number: int) -> None:
            new = NewInboxRow(
                key=key_of(1), event_id=f"e{number}", message_id="", kind="chat", body="{}",
                may_start=True, received_at=1.0,
            )  # fmt: skip
            accepted.append(await inbox.accept(new, cap=9))

        await accept(1)
        with psycopg.connect(url) as migrating:
            migrating.execute("UPDATE conversation SET chat = 'c2'")
            migrating.execute("UPDATE inbox SET state = 'done'")
            migrating.execute("INSERT INTO chat_migration VALUES ('fake', 'w', 'c1', 'c2')")
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(accept, 2)
                await eventually(lambda: _waiting(url) == 1)
                migrating.commit()
        row = accepted[1]
        assert isinstance(row, InboxRow)
        assert (row.owner, row.start) == (two.nodes.number, None)


def _waiting(url: str) -> int:
    """Return how many sessions wait for another session's lock."""
    with psycopg.connect(url) as connection:
        [[count]] = connection.execute(
            "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'"
        ).fetchall()
    return int(count)
