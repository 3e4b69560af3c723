"""Counts of the journal's rows, and its lists with paging."""

import shutil
from pathlib import Path

from store.config import StoreConfig
from store.conversations import ConversationKey
from store.database import Database
from store.inbox import InboxRow, InboxStore, NewInboxRow
from store.outbox import NewOutboxRow, OutboxStore

KEY = ConversationKey(channel="terminal", workspace="local", chat="s1")


async def test_the_inbox_counts_unfinished_rows_and_has_pages(
    store_config: StoreConfig, tmp_path: Path
) -> None:
    async with Database.open(store_config, tmp_path) as database:
        inbox = InboxStore(database)
        assert await inbox.count_by_state() == {}
        rows = []
        for number in range(5):
            new = NewInboxRow(
                key=KEY, event_id=f"e{number}", message_id="", kind="chat", body="{}", received_at=1
            )
            row = await inbox.accept(new, cap=10)
            assert isinstance(row, InboxRow)
            rows.append(row)
        await inbox.mark_running(rows[0].id, thread_id="t")
        await inbox.finish(rows[1].id, [])
        assert await inbox.count_by_state() == {"new": 3, "running": 1}
        first = await inbox.list_recent(limit=2)
        second = await inbox.list_recent(limit=2, before=first[-1].id)
        assert [row.event_id for row in (*first, *second)] == ["e4", "e3", "e2", "e1"]


async def test_the_outbox_counts_undelivered_rows_and_has_pages(
    store_config: StoreConfig, tmp_path: Path
) -> None:
    async with Database.open(store_config, tmp_path) as database:
        outbox = OutboxStore(database)
        owed = [NewOutboxRow(key=f"k{number}", conversation=KEY, body="{}") for number in range(4)]
        rows = await outbox.enqueue(owed)
        await outbox.mark_failed(rows[0].id, error="no", now=1.0)
        assert await outbox.count_by_state() == {"failed": 1, "pending": 3}
        pages = [
            await outbox.list_recent(limit=3),
            await outbox.list_recent(limit=3, before=rows[1].id),
            await outbox.list_recent(states=["pending"], limit=3, before=rows[2].id),
        ]
        assert [[row.key for row in page] for page in pages] == [["k3", "k2", "k1"], ["k0"], ["k1"]]
        await outbox.mark_failed(rows[2].id, error="no", now=1.0)
        both = await outbox.list_recent(states=["failed", "pending"], limit=3)
        assert [row.key for row in both] == ["k3", "k2", "k1"]


async def test_free_space_is_that_of_the_data_folder(database: Database, tmp_path: Path) -> None:
    assert 0 < database.free_bytes() <= shutil.disk_usage(tmp_path).total
