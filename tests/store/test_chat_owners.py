"""Which node works on which chat: what a node believes to own, it owns."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import anyio

from store.chat_owners import ChatOwners
from store.config import StoreConfig
from store.conversations import ConversationKey
from store.database import Database
from tests.ready_nodes import until_ready


def key_of(number: int) -> ConversationKey:
    return ConversationKey(channel="fake", workspace="w", chat=f"c{number}")


@asynccontextmanager
async def two_nodes(url: str, home: Path) -> AsyncIterator[tuple[ChatOwners, ChatOwners]]:
    config = StoreConfig(url=url)
    async with (
        Database.open(config, home / "one") as one,
        Database.open(config, home / "two") as two,
    ):
        await one.nodes.mark_ready()
        await two.nodes.mark_ready()
        await until_ready(one, two)
        yield ChatOwners(one), ChatOwners(two)


async def test_a_chat_that_is_given_up_while_it_is_looked_up_does_not_count_as_owned(
    url: str, tmp_path: Path
) -> None:
    async with two_nodes(url, tmp_path) as (owners, other):
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
                is_owned = await other.find(chat) == owners.number
                believed_in_vain += owners.is_own(chat) and not is_owned
        assert believed_in_vain == 0
