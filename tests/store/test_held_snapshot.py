"""A snapshot held open on PostgreSQL does not slow down the work much, whatever changes in the meantime."""

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import psycopg
import pytest
from psycopg.sql import SQL, Identifier

from store.chat_owners import SharedOwners
from store.config import StoreConfig
from store.conversations import ConversationKey, ConversationStore
from store.database import Database
from store.inbox import InboxRow, InboxStore, NewInboxRow
from store.outbox import NEXT_OPEN, NewOutboxRow, OutboxStore
from store.postgres.statements import translate
from store.runs import RunStore
from store.threads import ThreadStore
from tests.eventually import eventually
from tests.ready_nodes import until_ready
from tests.store.test_retention import OF_POSTGRES
from tests.store.test_threads_runs import a_run

KEY = ConversationKey(channel="slack", workspace="T", chat="C", topic="1")
BY_ID = [
    (f"{module}.{name}", sql)
    for module, name, sql in OF_POSTGRES
    if module in ("inbox", "outbox") and "WHERE id = :id AND state" in sql
]

_FINISHED_ROWS = """
WITH created AS (
    INSERT INTO conversation (channel, workspace, chat, created_at, updated_at) VALUES ('slack', 'T', 'C', 1, 1)
    RETURNING id
), accepted AS (
    INSERT INTO inbox (conversation_id, seq, event_id, kind, body, state, received_at)
    SELECT created.id, n, n, 'chat', '{}', 'done', 1 FROM created, generate_series(1, 5000) AS n
)
INSERT INTO outbox (conversation_id, key, body, state, created_at, updated_at)
SELECT created.id, n, '{}', 'delivered', 1, 1 FROM created, generate_series(1, 5000) AS n
"""


def message(number: int, *, at: float = 1.0) -> NewInboxRow:
    return NewInboxRow(
        key=KEY, event_id=f"e{number}", message_id="", kind="chat", body="{}", received_at=at
    )


async def accept(inbox: InboxStore, new: NewInboxRow) -> InboxRow:
    row = await inbox.accept(new, cap=9)
    assert isinstance(row, InboxRow)
    return row


@contextmanager
def held_snapshot(url: str) -> Iterator[None]:
    with psycopg.connect(url) as snapshot:
        snapshot.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
        snapshot.execute("SELECT 1")
        yield


@asynccontextmanager
async def opened(url: str, home: Path) -> AsyncIterator[Database]:
    async with Database.open(StoreConfig(url=url), home) as database:
        await database.nodes.mark_ready()
        yield database


def rows_of(url: str, table: str) -> list[tuple[str, str]]:
    """Return where a table's rows are, and the transactions that wrote them. Both change with each row version."""
    with psycopg.connect(url) as connection:
        statement = SQL("SELECT ctid::text, xmin::text FROM {}").format(Identifier(table))
        return [(str(place), str(writer)) for place, writer in connection.execute(statement)]


async def test_messages_make_no_new_version_of_their_conversation_or_its_owner(
    url: str, tmp_path: Path
) -> None:
    """This holds even if a node other than the owner receives them."""
    async with opened(url, tmp_path / "one") as one, opened(url, tmp_path / "two") as two:
        await until_ready(one, two)
        owner, other = InboxStore(one), InboxStore(two)
        await SharedOwners(one).take([KEY])
        first = await accept(owner, replace(message(0), may_start=True))
        await owner.finish(first.id, [])
        before = rows_of(url, "conversation"), rows_of(url, "chat_owner")
        for number in range(1, 21):
            row = await accept(other if number % 2 else owner, message(number))
            assert row.owner == one.nodes.number
            assert row.seq == number + 1
            delivery = NewOutboxRow(key=f"k{number}", conversation=KEY, body="{}")
            assert await owner.finish(row.id, [delivery])
        assert (rows_of(url, "conversation"), rows_of(url, "chat_owner")) == before
        found = await ConversationStore(one).find(KEY)
        assert found is not None
        assert (found.last_seq, found.pending) == (21, 0)


async def test_a_run_that_starts_on_a_busy_thread_makes_no_new_version_of_it(
    url: str, tmp_path: Path
) -> None:
    async with opened(url, tmp_path) as database:
        runs, threads = RunStore(database), ThreadStore(database)
        await runs.create(a_run("r", status="pending"), tags={}, create_thread=True)
        before = rows_of(url, "thread")
        await runs.mark_running("r", now=6.0)
        assert rows_of(url, "thread") == before
        await threads.mark_state_changed("t", status="idle", interrupts={}, title=None, now=7.0)
        await runs.mark_running("r", now=8.0)
        assert (await threads.get("t")).status == "busy"


async def test_a_conversation_is_marked_as_used_once_a_minute(url: str, tmp_path: Path) -> None:
    async with opened(url, tmp_path) as database:
        inbox, conversations = InboxStore(database), ConversationStore(database)
        for number, (at, used_at) in enumerate([(100, 100), (159, 100), (161, 161), (162, 161)]):
            await accept(inbox, message(number, at=at))
            found = await conversations.find(KEY)
            assert found is not None
            assert found.updated_at == used_at


async def test_accepting_does_not_pass_what_was_finished_since_a_snapshot_began(
    url: str, tmp_path: Path
) -> None:
    messages = 100
    async with opened(url, tmp_path) as database:
        with held_snapshot(url):
            inbox = InboxStore(database)
            for number in range(messages):
                row = await accept(inbox, message(number))
                await inbox.finish(row.id, [])
    # A session reports how much it read at the latest when it ends.
    with psycopg.connect(url, autocommit=True) as connection:
        await eventually(lambda: _others(connection) == 0)
        read = connection.execute(
            "SELECT idx_tup_read FROM pg_stat_user_indexes WHERE indexrelname = 'inbox_unfinished'"
        ).fetchall()
    # Each search passed at least one version of every earlier row.
    assert read[0][0] < messages * 10


async def test_messages_sent_after_a_snapshot_began_are_not_read_again(
    url: str, tmp_path: Path
) -> None:
    async with opened(url, tmp_path) as database:
        with held_snapshot(url):
            last = await _send(OutboxStore(database), 200)
            assert await OutboxStore(database).next_open(KEY, now=1.0, from_id=last + 1) is None
            assert _pages_read(url, from_id=last + 1) < _pages_read(url, from_id=0) / 4


@pytest.mark.parametrize("sql", [sql for _, sql in BY_ID], ids=[name for name, _ in BY_ID])
def test_a_row_is_looked_up_by_its_id_though_few_are_open(url: str, sql: str) -> None:
    """The indexes of open rows look small, but are not while a snapshot is held."""
    text, names = translate(sql)
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(_FINISHED_ROWS)
        connection.execute("VACUUM ANALYZE inbox, outbox")
        connection.execute("SET plan_cache_mode = force_generic_plan")
        connection.execute(f"PREPARE statement AS {text}".encode())
        values = ", ".join(["NULL"] * len(names))
        explained = connection.execute(f"EXPLAIN EXECUTE statement({values})".encode()).fetchall()
    plan = "\n".join(line for (line,) in explained)
    assert "Index Scan" in plan
    assert "outbox_open" not in plan
    assert "inbox_unfinished" not in plan


async def _send(outbox: OutboxStore, count: int) -> int:
    """Send deliveries; return the ID of the last."""
    last = 0
    for number in range(count):
        new = NewOutboxRow(key=f"sent{number}", conversation=KEY, body="{}")
        [row] = await outbox.enqueue([new])
        await outbox.mark_sending(row.id, now=1.0)
        await outbox.mark_delivered(row.id, None, now=1.0)
        last = row.id
    return last


def _others(connection: psycopg.Connection[Any]) -> int:
    """Return how many other sessions use the database."""
    [[count]] = connection.execute(
        "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()"
    ).fetchall()
    return int(count)


def _pages_read(url: str, *, from_id: int) -> int:
    """Return how many pages a search for the next delivery reads."""
    sql, names = translate(NEXT_OPEN)
    key = {name: getattr(KEY, name) for name in ("channel", "workspace", "chat", "topic")}
    values = {**key, "now": 1.0, "from_id": from_id}
    with psycopg.connect(url) as connection:
        # The planner's statistics on a server that has run for a while.
        connection.execute("ANALYZE outbox")
        explained = f"EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) {sql}"
        for number, name in enumerate(names, start=1):
            explained = explained.replace(f"${number}", f"%({name})s")
        [[[plan]]] = connection.execute(explained.encode(), values).fetchall()
    return int(plan["Plan"]["Shared Hit Blocks"]) + int(plan["Plan"]["Shared Read Blocks"])
