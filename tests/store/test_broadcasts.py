"""Broadcasts and the chats that wait for them, on either engine."""

from dataclasses import replace

import pytest

from store.broadcasts import BroadcastMessage, BroadcastStore, NewBroadcast
from store.chat_migrations import ChatMigrationStore
from store.chats import ChatStore, KnownChat
from store.conversations import ChatMigration, ConversationKey
from store.database import Database
from store.errors import RowConflict, RowNotFound
from store.inbox import InboxRow, InboxStore, NewInboxRow
from store.outbox import NewOutboxRow, OutboxStore
from store.retention import DAY_S, Retention

KEY = ConversationKey(channel="slack", workspace="T1", chat="D1")
NEW = NewBroadcast(key="tonight", digest="d", text="Down tonight", audience="{}", created_at=1.0)
CHAT = KnownChat(
    channel="slack",
    workspace="T1",
    chat="D1",
    is_private=True,
    user_id="U1",
    user_kind="member",
    recipient="T1@T1/U1",
    received_at=5.0,
)


def chats(*names: str) -> list[KnownChat]:
    return [replace(CHAT, chat=name) for name in names]


def row_of(message: BroadcastMessage) -> NewOutboxRow:
    body = f"{message.text} {message.recipient}"
    key = f"broadcast:{message.broadcast_key}:{message.conversation.chat}"
    return NewOutboxRow(key=key, conversation=message.conversation, body=body)


async def take(store: BroadcastStore, limit: int) -> list[str]:
    rows = await store.enqueue_next("slack", limit, make_row=row_of, now=2.0)
    return [row.key for row in rows]


async def test_chats_are_moved_into_the_outbox_once_each(database: Database) -> None:
    store, outbox = BroadcastStore(database), OutboxStore(database)
    assert await store.accept(NEW, chats("D3", "D1", "D2"))
    assert await take(store, 2) == ["broadcast:tonight:D1", "broadcast:tonight:D2"]
    found = await store.find("tonight")
    assert found is not None
    assert found.waiting == 1
    assert await take(store, 2) == ["broadcast:tonight:D3"]
    assert await take(store, 2) == []
    rows = await outbox.list_open()
    assert [row.conversation.chat for row in rows] == ["D1", "D2", "D3"]
    assert {row.body for row in rows} == {"Down tonight T1@T1/U1"}


async def test_a_key_is_used_once_and_only_for_the_same(database: Database) -> None:
    store = BroadcastStore(database)
    assert await store.accept(NEW, chats("D1"))
    assert await take(store, 9) == ["broadcast:tonight:D1"]
    assert not await store.accept(NEW, chats("D1", "D2"))
    with pytest.raises(RowConflict):
        await store.accept(replace(NEW, digest="other"), chats("D2"))
    assert await take(store, 9) == []
    assert await store.find("never") is None


async def test_broadcasts_are_sent_in_their_order_and_each_channel_has_its_own(
    database: Database,
) -> None:
    store = BroadcastStore(database)
    await store.accept(replace(NEW, key="z first"), [*chats("D2"), replace(CHAT, channel="feishu")])
    await store.accept(replace(NEW, key="a second"), chats("D1"))
    assert await take(store, 9) == ["broadcast:z first:D2", "broadcast:a second:D1"]
    assert await store.is_waiting("feishu")
    assert not await store.is_waiting("slack")
    rows = await store.enqueue_next("feishu", 9, make_row=row_of, now=2.0)
    assert [row.conversation.channel for row in rows] == ["feishu"]
    assert not await store.is_waiting("feishu")


async def test_a_broadcast_that_is_stopped_reaches_nobody_else(database: Database) -> None:
    store = BroadcastStore(database)
    await store.accept(NEW, chats("D1", "D2", "D3"))
    await store.accept(replace(NEW, key="later"), chats("D4"))
    await take(store, 1)
    assert await store.stop("tonight") == 2
    assert await store.stop("tonight") == 0
    assert await take(store, 9) == ["broadcast:later:D4"]
    assert not await store.accept(NEW, chats("D1"))
    with pytest.raises(RowNotFound):
        await store.stop("never")


async def test_the_text_is_forgotten_once_all_of_it_is_in_the_outbox(database: Database) -> None:
    store = BroadcastStore(database)
    await store.accept(NEW, chats("D1", "D2"))

    async def text() -> str:
        return str((await database.read("SELECT text FROM broadcast"))[0]["text"])

    await take(store, 1)
    assert await text() == "Down tonight"
    await take(store, 1)
    assert await text() == ""


async def test_open_keys_are_those_of_rows_that_are_not_closed(database: Database) -> None:
    store, outbox = BroadcastStore(database), OutboxStore(database)
    await store.accept(NEW, chats("D1", "D2", "D3"))
    keys = await take(store, 9)
    first, second, _ = await outbox.list_open()
    await outbox.mark_delivered(first.id, "p", now=3.0)
    await outbox.mark_failed(second.id, error="no", now=3.0)
    assert await store.list_open_keys(keys) == {"broadcast:tonight:D3"}


async def test_the_newest_message_of_each_conversation_describes_its_chat(
    database: Database,
) -> None:
    inbox, store = InboxStore(database), ChatStore(database)
    for number, topic in enumerate(("", "", "7")):
        new = NewInboxRow(
            key=replace(KEY, topic=topic),
            event_id=f"e{number}",
            message_id=f"m{number}",
            kind="chat",
            body=f"body {number}",
            received_at=100.0 * (number + 1),
        )
        assert isinstance(await inbox.accept(new, cap=20), InboxRow)
    assert {one.body for one in await store.list_newest(since=0.0)} == {"body 1", "body 2"}
    assert {one.body for one in await store.list_newest(since=250.0)} == {"body 2"}


async def test_a_chat_is_as_its_newest_message_says_and_is_kept_for_the_retention(
    database: Database,
) -> None:
    store = ChatStore(database)
    assert await store.find_newest_time() == 0.0
    await store.put([CHAT, replace(CHAT, channel="feishu")])
    assert await store.find_newest_time() == 5.0
    await store.put([replace(CHAT, user_id="U0", received_at=4.0)])
    assert await store.list_channel("slack", since=0.0) == [CHAT]
    newer = replace(CHAT, user_id="U2", user_kind="guest", is_private=False, received_at=6.0)
    await store.put([newer])
    assert await store.list_channel("slack", since=6.0) == [newer]
    assert await store.list_channel("slack", since=6.1) == []
    await Retention(database).prune(now=60 * DAY_S)
    assert await store.list_channel("slack", since=0.0) == [newer]
    await Retention(database).prune(now=366 * DAY_S)
    assert await store.list_channel("slack", since=0.0) == []


async def test_a_chat_that_migrates_is_one_chat_and_waits_once(database: Database) -> None:
    store, broadcasts = ChatStore(database), BroadcastStore(database)
    old, new = chats("-4001", "-100")
    await store.put([old, new])
    await broadcasts.accept(NEW, [old, new])
    await broadcasts.accept(replace(NEW, key="later"), [old])
    migration = ChatMigration(channel="slack", workspace="T1", old_chat="-4001", new_chat="-100")
    assert await ChatMigrationStore(database).migrate(migration)
    assert await store.list_channel("slack", since=0.0) == [new]
    assert await take(broadcasts, 9) == ["broadcast:tonight:-100", "broadcast:later:-100"]
