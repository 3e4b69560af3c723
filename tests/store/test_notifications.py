"""Notifications, and the chats that wait for broadcasts, on either engine."""

from dataclasses import replace
from functools import partial
from pathlib import Path

import anyio
import pytest

from store.chat_migrations import ChatMigrationStore
from store.chats import ChatStore, KnownChat
from store.conversations import ChatMigration, ConversationKey
from store.database import Database
from store.discarded_deliveries import DiscardedDeliveries
from store.errors import RowConflict, RowNotFound
from store.inbox import InboxRow, InboxStore, NewInboxRow
from store.notifications import (
    BROADCAST,
    NewNotification,
    Notification,
    NotificationStore,
    WaitingChat,
)
from store.outbox import NewOutboxRow, OutboxStore
from store.retention import DAY_S, Retention

KEY = ConversationKey(channel="slack", workspace="T1", chat="D1")
NEW = NewNotification(
    channel=BROADCAST,
    key="tonight",
    digest="d",
    text="Down tonight",
    recipients="{}",
    created_at=1.0,
)
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


def rows_for(broadcast: Notification, chat: WaitingChat) -> list[NewOutboxRow]:
    body = f"{broadcast.text} {chat.recipient} {chat.is_private}"
    key = f"notification::{broadcast.key}:{chat.conversation.chat}:0"
    return [NewOutboxRow(key=key, conversation=chat.conversation, body=body)]


async def take(store: NotificationStore, limit: int, channel: str = "slack") -> list[str]:
    """Move messages to at most this many chats into the outbox. Return broadcasts and chats."""
    broadcast = await store.find_next(channel)
    if broadcast is None:
        return []
    rows = await store.enqueue_next(
        channel, broadcast, limit, rows_for=partial(rows_for, broadcast), now=2.0
    )
    return [row.key.removeprefix("notification::").removesuffix(":0") for row in rows]


async def test_chats_are_moved_into_the_outbox_once_each(database: Database) -> None:
    store, outbox = NotificationStore(database), OutboxStore(database)
    assert await store.accept(NEW, chats=chats("D3", "D1", "D2"))
    assert await take(store, 2) == ["tonight:D1", "tonight:D2"]
    found = await store.find(BROADCAST, "tonight")
    assert found is not None
    assert await store.count_waiting(found.id) == 1
    assert await take(store, 2) == ["tonight:D3"]
    assert await take(store, 2) == []
    rows = await outbox.list_open()
    assert [row.conversation.chat for row in rows] == ["D1", "D2", "D3"]
    assert {row.body for row in rows} == {"Down tonight T1@T1/U1 True"}


async def test_a_key_is_used_once_and_only_for_the_same(database: Database) -> None:
    store = NotificationStore(database)
    assert await store.accept(NEW, chats=chats("D1"))
    assert await take(store, 9) == ["tonight:D1"]
    assert not await store.accept(NEW, chats=chats("D1", "D2"))
    with pytest.raises(RowConflict):
        await store.accept(replace(NEW, digest="other"), chats=chats("D2"))
    assert await take(store, 9) == []
    assert await store.find(BROADCAST, "never") is None


async def test_broadcasts_are_sent_in_their_order_and_each_channel_has_its_own(
    database: Database,
) -> None:
    store = NotificationStore(database)
    await store.accept(
        replace(NEW, key="z first"), chats=[*chats("D2"), replace(CHAT, channel="feishu")]
    )
    await store.accept(replace(NEW, key="a second"), chats=chats("D1"))
    assert await take(store, 9) == ["z first:D2"]
    assert await take(store, 9) == ["a second:D1"]
    assert await store.find_next("slack") is None
    assert await take(store, 9, channel="feishu") == ["z first:D1"]
    assert await store.find_next("feishu") is None


async def test_a_broadcast_that_is_stopped_reaches_nobody_else(database: Database) -> None:
    store = NotificationStore(database)
    await store.accept(NEW, chats=chats("D1", "D2", "D3"))
    await store.accept(replace(NEW, key="later"), chats=chats("D4"))
    await take(store, 1)
    assert await store.stop("tonight") == 2
    assert await store.stop("tonight") == 0
    assert await take(store, 9) == ["later:D4"]
    assert not await store.accept(NEW, chats=chats("D1"))
    with pytest.raises(RowNotFound):
        await store.stop("never")


async def test_the_text_is_forgotten_once_all_of_it_is_in_the_outbox(database: Database) -> None:
    store = NotificationStore(database)
    await store.accept(replace(NEW, files=" [1]"), chats=chats("D1", "D2"))

    async def text() -> str:
        [row] = await database.read("SELECT text, files FROM notification")
        return f"{row['text']}{row['files']}"

    await take(store, 1)
    assert await text() == "Down tonight [1]"
    await take(store, 1)
    assert await text() == ""


async def test_open_keys_are_those_of_rows_that_are_not_closed(database: Database) -> None:
    store, outbox = NotificationStore(database), OutboxStore(database)
    await store.accept(NEW, chats=chats("D1", "D2", "D3"))
    await take(store, 9)
    keys = [row.key for row in await outbox.list_open()]
    first, second, _ = await outbox.list_open()
    await outbox.mark_delivered(first.id, "p", now=3.0)
    await outbox.mark_failed(second.id, error="no", now=3.0)
    assert await store.list_open_keys(keys) == {"notification::tonight:D3:0"}


MESSAGE = replace(NEW, channel="slack", key="backup-7", text="")


def parts_of(new: NewNotification, *bodies: str) -> list[NewOutboxRow]:
    return [
        NewOutboxRow(key=f"notification:{new.channel}:{new.key}:{n}", conversation=KEY, body=body)
        for n, body in enumerate(bodies)
    ]


async def test_a_message_is_in_the_outbox_with_its_acceptance_once(database: Database) -> None:
    store, outbox = NotificationStore(database), OutboxStore(database)
    assert await store.accept(MESSAGE, rows=parts_of(MESSAGE, "a", "b"))
    assert not await store.accept(MESSAGE, rows=parts_of(MESSAGE, "a", "b"))
    with pytest.raises(RowConflict):
        await store.accept(replace(MESSAGE, digest="other"), rows=parts_of(MESSAGE, "c"))
    assert [row.body for row in await outbox.list_open()] == ["a", "b"]
    other = replace(MESSAGE, channel="feishu")
    assert await store.accept(other)
    assert await store.accept(replace(NEW, key="backup-7"))


async def test_a_message_is_forgotten_with_its_rows_and_a_broadcast_is_not(
    database: Database,
) -> None:
    store, outbox = NotificationStore(database), OutboxStore(database, now=lambda: 1.0)
    await store.accept(NEW)
    prefix = replace(MESSAGE, key="backup")
    for new in (MESSAGE, prefix):
        await store.accept(new, rows=parts_of(new, "a", "b"))
    first, second, *others = await outbox.list_open()
    for row in (first, *others):
        await outbox.mark_delivered(row.id, "p", now=1.0)
    await outbox.mark_failed(second.id, error="no", now=1.0)
    await Retention(database).prune(now=6 * DAY_S)
    assert await store.find("slack", "backup") is not None
    await Retention(database).prune(now=8 * DAY_S)
    assert await store.find("slack", "backup") is None
    assert await store.find("slack", "backup-7") is not None
    assert [row.body for row in await outbox.list_recent()] == ["b"]
    for _ in range(2):  # its row first, and then the message
        await Retention(database).prune(now=400 * DAY_S)
    assert await store.find("slack", "backup-7") is None
    assert await store.find(BROADCAST, "tonight") is not None


async def read_file(outbox: OutboxStore, file_id: str) -> bytes:
    return b"".join([part async for part in outbox.files.read(file_id)])


async def test_a_file_is_kept_until_its_row_was_delivered(
    database: Database, tmp_path: Path
) -> None:
    store, outbox = NotificationStore(database), OutboxStore(database, now=lambda: 1.0)
    content = bytes(range(256)) * 2_500  # three parts
    await anyio.Path(tmp_path / "report").write_bytes(content)
    file_id = await outbox.files.put(tmp_path / "report", channel="slack", key=MESSAGE.key)
    orphan = await outbox.files.put(tmp_path / "report", channel="slack", key="backup")
    await store.accept(MESSAGE, rows=parts_of(MESSAGE, "file"))
    assert await read_file(outbox, file_id) == content
    await Retention(database).prune(now=3000.0)
    assert await read_file(outbox, orphan) == content
    await Retention(database).prune(now=4000.0)
    assert await read_file(outbox, file_id) == content
    assert await read_file(outbox, orphan) == b""
    [stored] = await outbox.list_open()
    await outbox.mark_failed(stored.id, error="no", now=4000.0)
    await Retention(database).prune(now=9000.0)
    assert await read_file(outbox, file_id) == content  # an administrator may send it again
    await outbox.resend([stored.id], now=9000.0)
    await outbox.mark_delivered(stored.id, "p", now=9000.0)
    await Retention(database).prune(now=9001.0)
    assert await database.read("SELECT part FROM outbox_file") == []


async def test_a_file_of_a_broadcast_is_kept_until_no_chat_needs_it(
    database: Database, tmp_path: Path
) -> None:
    store, outbox = NotificationStore(database), OutboxStore(database, now=lambda: 1.0)
    await anyio.Path(tmp_path / "map").write_bytes(b"x" * 600_000)  # three parts
    file_id = await outbox.files.put(tmp_path / "map", channel=BROADCAST, key="tonight")
    other = await outbox.files.put(tmp_path / "map", channel=BROADCAST, key="tonight-2")
    await store.accept(replace(NEW, files="[]"), chats=chats("D1", "D2", "D3", "D4"))

    async def is_kept(*, now: float) -> bool:
        await Retention(database).prune(now=now)
        return bool(await read_file(outbox, file_id))

    assert await is_kept(now=9000.0)
    assert await read_file(outbox, other) == b""
    await take(store, 2)
    first, second = await outbox.list_open()
    for row in (first, second):
        await outbox.mark_delivered(row.id, "p", now=9000.0)
    assert await is_kept(now=9001.0)  # two chats wait
    await take(store, 1)
    assert await store.stop("tonight") == 1
    assert await is_kept(now=9002.0)  # one is not delivered
    [third] = await outbox.list_open()
    await DiscardedDeliveries(database).discard([third.id], batch="b", now=9003.0)
    assert await is_kept(now=9004.0)  # an administrator may restore it
    assert not await is_kept(now=9003.0 + 8 * DAY_S)
    assert await database.read("SELECT part FROM outbox_file") == []


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
    store, broadcasts = ChatStore(database), NotificationStore(database)
    old, new = chats("-4001", "-100")
    await store.put([old, new])
    await broadcasts.accept(NEW, chats=[old, new])
    await broadcasts.accept(replace(NEW, key="later"), chats=[old])
    migration = ChatMigration(channel="slack", workspace="T1", old_chat="-4001", new_chat="-100")
    assert await ChatMigrationStore(database).migrate(migration)
    assert await store.list_channel("slack", since=0.0) == [new]
    assert await take(broadcasts, 9) == ["tonight:-100"]
    assert await take(broadcasts, 9) == ["later:-100"]
