import anyio

from store.conversations import ConversationKey, ConversationStore
from store.database import Database
from store.inbox import InboxStore
from tests.store.test_inbox import accept, new

KEY = ConversationKey(channel="slack", workspace="T1", chat="C1", topic="171.5")


async def test_a_conversation_without_messages_is_unknown(database: Database) -> None:
    assert await ConversationStore(database).find(KEY) is None


async def test_two_simultaneous_first_messages_share_a_thread(database: Database) -> None:
    conversations = ConversationStore(database)
    named: list[str] = []

    async def bind(thread_id: str) -> None:
        named.append(await conversations.bind_thread(KEY, thread_id, instead_of=None))

    async with anyio.create_task_group() as group:
        for index in range(20):
            group.start_soon(bind, f"thread-{index}")
    assert len(set(named)) == 1
    found = await conversations.find(KEY)
    assert found is not None
    assert found.thread_id == named[0]


async def test_a_thread_is_replaced_only_if_it_is_the_expected_one(database: Database) -> None:
    conversations = ConversationStore(database)
    assert await conversations.bind_thread(KEY, "a", instead_of=None) == "a"
    assert await conversations.bind_thread(KEY, "b", instead_of="a") == "b"
    assert await conversations.bind_thread(KEY, "c", instead_of="a") == "b"
    assert await conversations.bind_thread(KEY, "c", instead_of=None) == "b"


async def test_every_part_of_the_key_counts(database: Database) -> None:
    conversations = ConversationStore(database)
    others = [
        ConversationKey(channel="feishu", workspace="T1", chat="C1", topic="171.5"),
        ConversationKey(channel="slack", workspace="T2", chat="C1", topic="171.5"),
        ConversationKey(channel="slack", workspace="T1", chat="C2", topic="171.5"),
        ConversationKey(channel="slack", workspace="T1", chat="C1"),
        ConversationKey(channel="slack", workspace="T1", chat="C1:171.5"),
    ]
    for index, key in enumerate([KEY, *others]):
        await conversations.bind_thread(key, f"thread-{index}", instead_of=None)
    found = [await conversations.find(key) for key in [KEY, *others]]
    assert [row.thread_id for row in found if row] == [f"thread-{i}" for i in range(6)]


async def test_the_listing_starts_with_the_most_recently_used(database: Database) -> None:
    times = iter([10.0, 20.0, 30.0])
    conversations = ConversationStore(database, now=lambda: next(times))
    keys = [ConversationKey(channel="slack", workspace="T", chat=name) for name in "abc"]
    for key in keys:
        await conversations.bind_thread(key, "t", instead_of=None)
    assert [row.key.chat for row in await conversations.list_recent()] == ["c", "b", "a"]
    assert [row.key.chat for row in await conversations.list_recent(limit=1, offset=1)] == ["b"]
    found = await conversations.list_recent(channel="slack", limit=1)
    assert [row.key.chat for row in found] == ["c"]
    assert await conversations.list_recent(channel="terminal") == []


async def test_a_conversation_has_messages_until_it_gets_another_thread(database: Database) -> None:
    conversations, inbox = ConversationStore(database), InboxStore(database)
    key = new().key
    assert not await conversations.has_messages(key)
    status = await accept(inbox, new(1, kind="command"))
    await inbox.finish_command(status.id, [])
    assert not await conversations.has_messages(key)
    first = await accept(inbox, new(2))
    assert await conversations.has_messages(key)
    await conversations.bind_thread(key, "a", instead_of=None)
    await inbox.mark_running(first.id, thread_id="a")
    await inbox.finish(first.id, [])
    assert await conversations.has_messages(key)
    await accept(inbox, new(3, kind="command"))
    assert await conversations.has_messages(key)
    await conversations.bind_thread(key, "b", instead_of="a")  # as /new does
    assert not await conversations.has_messages(key)
    second = await accept(inbox, new(4))
    assert await conversations.has_messages(key)
    await inbox.mark_running(second.id, thread_id="b")
    await inbox.finish(second.id, [])
    assert await conversations.has_messages(key)


async def test_an_old_conversation_has_messages_although_its_rows_are_gone(
    database: Database,
) -> None:
    conversations = ConversationStore(database)
    await conversations.bind_thread(KEY, "a", instead_of=None)
    assert await conversations.has_messages(KEY)
