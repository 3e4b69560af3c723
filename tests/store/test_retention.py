"""Every table has a bound, and no prune or search reads a whole table."""

import importlib
import pkgutil
import re
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

import store
from store import retention
from store.config import StoreConfig
from store.conversations import ConversationKey, ConversationStore
from store.database import Database
from store.inbox import InboxRow, InboxStore, NewInboxRow
from store.key_value_store import LIST_NAMESPACES
from store.message_history import FIND_BY_MESSAGE
from store.message_topics import MessageTopicStore
from store.migrations import migrate, steps
from store.outbox import (
    NEXT_OPEN,
    DeliveryFilter,
    NewOutboxRow,
    OutboxStore,
    listing_statement,
)
from store.past_messages import PastMessage, PastMessages
from store.retention import DAY_S, Retention
from store.runs import Run, RunOutcome, RunStore
from store.threads import COUNT_MATCHES, ThreadOrder, ThreadQuery, search_statement

KEY = ConversationKey(channel="slack", workspace="T1", chat="C1", topic="1.5")
YEAR = 365 * DAY_S


@pytest.fixture(scope="module")
def connection() -> Iterator[sqlite3.Connection]:
    """Yield a database with all tables of the journal and of checkpoints. Nothing is written to it."""
    with closing(sqlite3.connect(":memory:", isolation_level=None)) as opened:
        migrate(opened, "sqlite", "memory")
        _, _, tables = steps("checkpoints")[0].partition(
            "STRICT;"
        )  # parley_schema is there already
        opened.executescript(tables)
        yield opened


def plan(connection: sqlite3.Connection, statement: str) -> list[str]:
    """Return the steps of a statement's plan."""
    params = dict.fromkeys(re.findall(r"(?<!:):([a-z_]\w*)", statement), "1")
    return [str(row[3]) for row in connection.execute(f"EXPLAIN QUERY PLAN {statement}", params)]


def scans(connection: sqlite3.Connection, statement: str) -> list[str]:
    """Return the steps of a statement's plan that read or sort a whole table."""
    steps = plan(connection, statement)
    ordered = any("USE TEMP B-TREE FOR ORDER BY" in step for step in steps)
    return [
        step
        for step in steps
        if step.startswith("SCAN")
        and not step.startswith(
            (
                "SCAN CONSTANT",
                "SCAN json_each",
                "SCAN (subquery",
                "SCAN found",
                "SCAN due",
                "SCAN later",
            )
        )
        and ("INDEX" not in step or ordered)
    ]


def test_the_check_notices_a_scan(connection: sqlite3.Connection) -> None:
    assert scans(connection, "SELECT * FROM thread WHERE title = :title")
    assert scans(connection, "SELECT * FROM thread ORDER BY title")
    assert not scans(connection, "SELECT * FROM thread ORDER BY updated_at")


PRUNES = (*retention.SHORT_TERM, *retention.LONG_TERM)


@pytest.mark.parametrize("statement", PRUNES, ids=lambda one: one.split()[2])
def test_every_prune_reads_old_rows_only(connection: sqlite3.Connection, statement: str) -> None:
    assert scans(connection, statement) == []
    # A range of the age column. An index of only the state would read every row in that state.
    assert any(
        re.search(r"\((received|updated|created|said|discarded)_at<\?\)", s)
        for s in plan(connection, statement)
    )


def test_prunes_of_conversations_files_and_pairings_use_indexes(
    connection: sqlite3.Connection,
) -> None:
    assert scans(connection, retention.FIND_CONVERSATIONS) == []
    assert scans(connection, retention.FIND_FILES) == []
    assert scans(connection, retention.DELETE_FILES) == []
    assert scans(connection, retention.DELETE_CONVERSATIONS) == []
    assert scans(connection, retention.EXPIRED_PAIRINGS) == []  # reads the open requests
    assert scans(connection, retention.REVOKED_PAIRINGS) == []


@pytest.mark.parametrize(
    ("table", "column"),
    [
        ("inbox", "conversation_id"),
        ("outbox", "conversation_id"),
        ("discarded_delivery", "conversation_id"),
    ],
)
def test_the_foreign_keys_of_a_pruned_conversation_are_indexed(
    connection: sqlite3.Connection, table: str, column: str
) -> None:
    assert scans(connection, f"SELECT 1 FROM {table} WHERE {column} = :id") == []  # noqa: S608 - literals only


@pytest.mark.parametrize(
    ("statement", "index"),
    [
        (NEXT_OPEN, "outbox_open"),
        (FIND_BY_MESSAGE, "inbox_by_message"),
        (LIST_NAMESPACES, "PRIMARY KEY (namespace>?)"),
    ],
)
def test_statements_of_each_message_use_the_narrow_index(
    connection: sqlite3.Connection, statement: str, index: str
) -> None:
    assert set(scans(connection, statement)) <= {"SCAN found"}  # the recursive table
    assert any(index in step for step in plan(connection, statement))


@pytest.mark.parametrize(
    "wanted", [DeliveryFilter(), DeliveryFilter(channel="slack", chat="C", error="gone")]
)
@pytest.mark.parametrize("state", ["failed", "delivered"])
def test_deliveries_are_listed_by_an_index(
    connection: sqlite3.Connection, state: str, wanted: DeliveryFilter
) -> None:
    assert scans(connection, listing_statement(state, wanted)) == []


SMALL_TABLES = {
    "api_token": "one row per token that an administrator created",
    "assistant": "at most 10,000; all are cached after one read",
    "chat_migration": "one row per group that became a supergroup; read at the start",
    "console_session": "one row per browser that is signed in",
    "conversation_settings": "one row per chat with a setting; read at the start",
    "node": "one row per process of the last 30 days; read four times a second anyway",
    "pairing": "people and groups that were approved, and 100 open requests",
    "run_request": "runs of the API that have not ended",
    "usage_reservation": "model calls that have not ended, if limits are configured",
    "run_webhook": "what is to be posted about runs of the API: deleted when that is done, or given up",
}
"""Tables that may be read whole, because no message adds a permanent row."""


def statements() -> Iterator[tuple[str, str, str]]:
    """Yield module, constant and text of each statement of the store."""
    for info in pkgutil.iter_modules(store.__path__):
        for name, value in vars(importlib.import_module(f"store.{info.name}")).items():
            for statement in value if isinstance(value, tuple) else (value,):
                if isinstance(statement, str) and re.match(
                    r"\s*(SELECT|INSERT|UPDATE|DELETE|WITH)\b", statement
                ):
                    yield info.name, name, statement


FRAGMENTS = {"_SELECT", "SELECT_ROWS", "_JOINED", "_PUT_WRITE", "LIST"}
"""Statements that only run with more text appended, and LIST, which LangGraph's `alist(None)` needs for all threads."""
STATEMENTS = [one for one in statements() if one[1] not in FRAGMENTS]
POSTGRES_ONLY = {"node_calls", "run_events"}
"""Modules whose statements SQLite never runs and cannot parse. They read rows by ID or key, or remove old rows from a
small table.
"""
OF_SQLITE = [
    one for one in STATEMENTS if one[0] not in POSTGRES_ONLY and one[1] != "_SELECT_POSTGRES"
]
OF_POSTGRES = [one for one in STATEMENTS if one[1] != "_SELECT_SQLITE"]
"""Each engine has its own statement for the search for words."""


def test_all_statements_are_found() -> None:
    modules = {module for module, _, _ in STATEMENTS}
    assert {"inbox", "outbox", "threads", "runs", "checkpoint_sql", "retention"} <= modules
    assert len(STATEMENTS) > 90


@pytest.mark.parametrize(
    "statement",
    [statement for _, _, statement in OF_SQLITE],
    ids=[f"{module}.{name}" for module, name, _ in OF_SQLITE],
)
def test_no_statement_reads_or_sorts_a_whole_table(
    connection: sqlite3.Connection, statement: str
) -> None:
    steps = plan(connection, statement)
    small = "|".join(
        [*SMALL_TABLES, "json_each", "needed", "found", "last", "due", "later", "lineage"]
    )
    whole = [
        step
        for step in steps
        if re.match(rf"SCAN (?!(?:\d+ )?CONSTANT|\(|(a|pragma_\w+|{small})\b)", step)
    ]
    # A partial index holds the open rows, which are few. An index in the requested order is read up to the limit.
    assert all("INDEX" in step for step in whole), steps
    sorts = any("USE TEMP B-TREE FOR ORDER BY" in step for step in steps)
    assert not (sorts and whole), steps
    # Sorting is fine for rows that are open, belong to one conversation, or are few.
    searched = [step for step in steps if sorts and "outbox_by_state" in step]
    assert not searched or "('pending', 'sending')" in statement, steps


QUERIES = [
    ThreadQuery(),
    ThreadQuery(status="busy"),
    ThreadQuery(metadata={"channel": "slack"}),
    ThreadQuery(metadata={"channel": "slack", "chat": "C1"}, status="idle"),
    ThreadQuery(metadata={"long": "x" * 500}),
    ThreadQuery(ids=["a", "b"]),
]
ORDERS: tuple[ThreadOrder, ...] = (
    "thread_id", "status", "created_at", "updated_at", "state_updated_at",
)  # fmt: skip


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("query", QUERIES, ids=range(len(QUERIES)))
def test_every_thread_search_uses_an_index(
    connection: sqlite3.Connection, query: ThreadQuery, order: ThreadOrder
) -> None:
    for rarest in (None, *range(len(query.metadata))):
        statement, _ = search_statement(replace(query, sort_by=order), rarest=rarest)
        assert scans(connection, statement) == [], statement
    assert scans(connection, COUNT_MATCHES) == []


async def fill(database: Database) -> InboxRow:
    """Store one row of every kind, at time 0."""
    inbox, outbox = InboxStore(database, now=lambda: 0.0), OutboxStore(database, now=lambda: 0.0)
    new = NewInboxRow(
        key=KEY, event_id="e", message_id="m", remember=True, kind="chat", body="{}", received_at=0
    )
    row = await inbox.accept(new, cap=9)
    assert isinstance(row, InboxRow)
    await inbox.finish(row.id, [NewOutboxRow(key=k, conversation=KEY, body="{}") for k in "abc"])
    delivered, failed, uncertain = await outbox.list_open()
    await outbox.mark_delivered(delivered.id, "p", now=0, message_id="p")
    await outbox.mark_failed(failed.id, error="no", now=0)
    await outbox.mark_delivered(uncertain.id, None, now=0, uncertain=True)
    runs = RunStore(database)
    run = Run(
        run_id="r", thread_id="t", assistant_id="a", status="pending", metadata={}, kwargs={},
        multitask_strategy="reject", created_at=0, updated_at=0,
    )  # fmt: skip
    await runs.create(run, tags={}, create_thread=True)
    outcome = RunOutcome(run_id="r", thread_id="t", status="success", thread_status="idle")
    await runs.finish(outcome, now=0)
    said = PastMessage(
        scope="person:slack:T1:U1", agent="", thread_id="t", message_id="m", speaker="Ann",
        text="hello", said_at=0,
    )  # fmt: skip
    await PastMessages(database).add([("", [said])])
    return row


async def count(database: Database, table: str) -> int:
    rows = await database.read(f"SELECT count(*) AS n FROM {table}")  # noqa: S608 - literals only
    return int(rows[0]["n"])


BOUNDED = ("inbox", "received_id", "outbox", "message_topic", "conversation", "run", "past_message")


async def test_redeliverable_rows_go_after_a_week_and_the_rest_after_the_retention(
    database: Database,
) -> None:
    await fill(database)
    await Retention(database).prune(now=7 * DAY_S - 1)
    assert [await count(database, table) for table in BOUNDED] == [1, 2, 3, 2, 1, 1, 1]
    await Retention(database).prune(now=7 * DAY_S + 1)
    assert [await count(database, table) for table in BOUNDED] == [0, 0, 2, 2, 1, 1, 1]
    await Retention(database).prune(now=YEAR + 1)
    assert [await count(database, table) for table in BOUNDED] == [0, 0, 0, 0, 0, 0, 0]
    assert await count(database, "thread") == 1


async def test_a_retention_of_zero_keeps_long_term_rows(tmp_path: Path) -> None:
    async with Database.open(StoreConfig(retention_days=0), tmp_path) as database:
        await fill(database)
        await Retention(database).prune(now=10 * YEAR)
        assert [await count(database, table) for table in BOUNDED] == [0, 0, 2, 2, 1, 1, 1]


async def test_a_conversation_in_use_is_kept_whatever_its_age(database: Database) -> None:
    await OutboxStore(database, now=lambda: 0.0).enqueue(
        [NewOutboxRow(key="k", conversation=KEY, body="{}")]
    )
    await MessageTopicStore(database, now=lambda: YEAR).set_topic(KEY, "m")
    await Retention(database).prune(now=YEAR + 1)
    assert await ConversationStore(database).find(KEY) is not None
    assert await count(database, "message_topic") == 1


async def test_pruning_goes_in_batches_until_all_is_gone(database: Database) -> None:
    outbox = OutboxStore(database, now=lambda: 0.0)
    rows = [NewOutboxRow(key=f"k{n}", conversation=KEY, body="{}") for n in range(250)]
    for row in await outbox.enqueue(rows):
        await outbox.mark_delivered(row.id, "p", now=0)
    assert await Retention(database).prune(now=8 * DAY_S) == 250
