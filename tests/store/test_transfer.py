"""`parley migrate`: all rows of an installation reach PostgreSQL, even after kill -9."""

import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import psycopg
import pytest
from psycopg import sql

from store import checkpoints
from store.config import StoreConfig
from store.database import Database
from store.errors import StoreLocked, StoreUnavailable
from store.postgres.transfer import TABLES, TransferProgress, transfer
from tests.fakes.migrated import place_database
from tests.fakes.postgres import MISSING, PostgresServer

SQLITE = StoreConfig()
THREADS = 1_200

ROWS = """
INSERT INTO conversation (id, channel, workspace, chat, topic, thread_id, last_seq, created_at, updated_at)
VALUES (1, 'telegram', '7', '-4', '', 't1', 2, 10.5, 20.5), (2, 'slack', 'T1', 'C1', '1.5', NULL, 0, 1, 1);
INSERT INTO inbox (id, conversation_id, seq, event_id, message_id, kind, body, state, starts, thread_id, run_id,
    question, outcome, problem, received_at)
VALUES (1, 1, 1, 'e1', 'm1', 'chat', '{"text": "é"}', 'done', 1, 't1', 'r1', '{"options": ["a"]}', NULL, NULL, 11),
    (2, 1, 2, 'e2', '', 'command', '{}', 'running', 2, NULL, NULL, NULL, 'failed', 'why', 12);
INSERT INTO message_words VALUES (1, 'x 你好');
INSERT INTO refused_message VALUES (3, 'slack', 'T', 'C', '', 0, 'ops', 'U', 'Ann', 'hi', 'hook:x', 'pairing', 5, '{}');
INSERT INTO console_session VALUES ('s1', 'd1', '', 'c', 'admin', '', 't', '::1', 'b', 1, 2, 9e9);
INSERT INTO discarded_delivery VALUES (9, 'k', 1, '{}', 'failed', 1, 0, 0, 1, 1, NULL, 'no', '{}', 1, 2, 'b', 3);
INSERT INTO received_id VALUES ('telegram', '7', 'event', '', 'e1', 11), ('telegram', '7', 'message', '-4', 'm1', 11);
INSERT INTO outbox (id, key, conversation_id, body, state, attempts, not_before, platform_id, error, first_sent_at,
    last_sent_at, uncertain_attempts, created_at, updated_at)
VALUES (1, 'k1', 1, '{"text": "answer"}', 'delivered', 1, 0, 'p1', NULL, 13, 14, 0, 13, 14),
    (2, 'k2', 1, '{}', 'pending', 1, 99, NULL, NULL, 41, 42, 1, 15, 15),
    (3, 'k3', 1, '{}', 'failed', 9, 0, NULL, 'refused', 16, 17, 0, 16, 17);
INSERT INTO message_topic VALUES ('slack', 'T1', 'C1', 'm9', '1.5', 50);
INSERT INTO conversation_settings VALUES ('telegram', '7', '-4', '', 'gpt', 'researcher', 'zh', 'Europe/Berlin', 21);
INSERT INTO chat_migration VALUES ('telegram', '7', '-4', '-100');
INSERT INTO chat VALUES ('telegram', '7', '42', 1, 'u1', 'member', '', 'telegram:7:42', 'Ann', 'ann 42', 90);
INSERT INTO person VALUES ('telegram:7:u1', 'telegram', '7', 'u1', 'Ann', 'member', 'ann u1', 3, 90);
INSERT INTO notification VALUES (1, '', 'tonight', 'd', 'Down tonight', '', '{}', 91);
INSERT INTO notification_chat VALUES ('telegram', 1, '7', '42', 1, '');
INSERT INTO outbox_file VALUES ('f', 0, 'telegram', 'k', x'00ff', 92);
INSERT INTO model_usage VALUES
    ('2026-11-28', 'r1', 'run', 'gpt', 'lead_agent', 'slack:T:ann', 'slack:T:C1', '', 1, 0, 0, 90, 0, 10, 0, 5, 1.5);
INSERT INTO usage_counter VALUES ('person', 'slack:T:ann', '2026-11-28', 100, 5, 0, 0, 1);
INSERT INTO usage_reservation VALUES ('u1', 0, '{}');
INSERT INTO pairing VALUES ('ABC', 'telegram', '7', 'u1', 'Ann', '', '', '', '', 18, 19, NULL),
    ('DEF', 'telegram', '7', 'u2', 'Bo', '', '', 'let me in', '{}', 18, NULL, NULL);
INSERT INTO credential VALUES ('slack', 'T1', x'00ff', 60);
INSERT INTO api_token VALUES ('ci', 'digest', 'read', 70, NULL);
INSERT INTO thread VALUES
    ('t1', 1, 2, 3, '{"chat": "-4"}', 'interrupted', 'A title', NULL, '{"a": []}', 5, 'delete', 9e9);
INSERT INTO run VALUES (5, 'r1', 't1', 'lead_agent', 'success', '{}', '{"input": 1}', 'reject', NULL, 0, 'm1', 1, 2);
INSERT INTO run_request VALUES ('r2', NULL, 0, 1, 0, '{}', 'rollback', '{}' || char(10), 80);
INSERT INTO run_webhook VALUES ('r1', 'https://example.org', '{}', 0);
INSERT INTO assistant VALUES ('a1', 2, 1, 2);
INSERT INTO assistant_version VALUES ('a1', 1, 'lead_agent', 'one', NULL, '{}', '{}', '{}', 1),
    ('a1', 2, 'lead_agent', 'two', 'second', '{"x": 1}', '{"y": 2}', '{"z": 3}', 2);
INSERT INTO item VALUES ('users.1.', 'k', '{"v": 1}', 1, 2, NULL, NULL);
INSERT INTO schedule VALUES ('s1', 'slack', 'T1', 'C1', '1.5', NULL, '', 'news', 'cron', '0 9 * * *', 'UTC', 1.5, NULL,
    '09:00-18:00', 'once', 'queue', 'date', 'x', NULL, '{}', '{}', 1, '', 2.5, 1, 1.5, 1, 2, 'U1');
INSERT INTO schedule_occurrence VALUES ('s1', 1.5, 'answered', '', 2, 1, NULL, NULL, 1.5);
INSERT INTO chat_owner VALUES ('slack', 'T1', 'C1', 3);
INSERT INTO past_message VALUES (7, 'person:a', '', 't1', 'm', 'Ann', '你好', 'x 你好 好', 0.5);
INSERT INTO guardrail_decision VALUES
    (4, 'denied', 'bash', '', 'oap.denied', 'p', 'no', 0, 't1', 'slack:T:ann', 'slack:T:C1', 0.5);
INSERT INTO file_area VALUES ('threads/t1', 1700000000000000000);
INSERT INTO stored_file VALUES
    ('threads/t1', 'user-data/a%20b', 'file', 'threads/t1/00ff', 3, 420, 1700000000000000001, '');
"""
"""Rows of each table."""


def ignore(_: TransferProgress) -> None:
    pass


@pytest.fixture
def url(postgres: PostgresServer | None) -> Iterator[str]:
    if postgres is None:
        pytest.skip(MISSING)
    with postgres.database(migrated=False) as created:
        yield created


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """Return a data folder with rows in each table, and many threads."""
    folder = place_database(tmp_path / "home")
    with closing(sqlite3.connect(folder / "parley.db", isolation_level=None)) as connection:
        connection.executescript(ROWS)
        connection.execute("BEGIN")
        connection.executemany(
            "INSERT INTO thread (thread_id, created_at, updated_at, state_updated_at, metadata, title)"
            " VALUES (?, ?, 0.1, 1e300, ?, ?)",
            [
                (
                    f"thread-{n}",
                    n / 7,
                    f'{{"n": {n}, "text": "\u4f60\\\\n\\t"}}',
                    "a\0\\N\n\U0001f600",
                )
                for n in range(THREADS)
            ],
        )
        connection.execute("COMMIT")
        connection.execute("DELETE FROM inbox WHERE id = 2")
    with closing(checkpoints.connect_checkpoints(folder / checkpoints.FILE)) as connection:
        connection.executemany(
            "INSERT INTO checkpoints VALUES (?, '', ?, NULL, 'msgpack', ?, ?, ?)",
            [
                (
                    "t1",
                    f"c{n}",
                    bytes(range(256)) * 5,
                    '{"run_id": "r"}' if n % 2 else "{}",
                    '["x"]',
                )
                for n in range(500)
            ],
        )
        connection.execute(
            "INSERT INTO writes VALUES ('t1', '', 'c1', 'task', -1, 'messages', 'msgpack', x'00', '')"
        )
        connection.execute("INSERT INTO message_chunks VALUES ('t1', 'x', 'msgpack', x'ff00')")
    return folder


def dump(home: Path) -> dict[str, list[tuple[object, ...]]]:
    """Return all rows of a data folder, by table, without U+0000: PostgreSQL does not store it."""
    with closing(sqlite3.connect(home / "parley.db")) as connection:
        connection.execute("ATTACH ? AS saved", [str(home / checkpoints.FILE)])
        rows: dict[str, list[tuple[object, ...]]] = {}
        for table in TABLES:
            names = connection.execute(
                "SELECT name FROM pragma_table_info(?) ORDER BY 1", [table]
            ).fetchall()
            columns = [name for (name,) in names]
            found = connection.execute(f"SELECT {', '.join(columns)} FROM {table}").fetchall()  # noqa: S608 - names
            rows[table] = sorted(
                (
                    tuple(
                        one.replace("\0", "\ufffd") if isinstance(one, str) else one for one in row
                    )
                    for row in found
                ),
                key=repr,
            )
        return rows


def dump_postgres(url: str) -> dict[str, list[tuple[object, ...]]]:
    """Return the same for a PostgreSQL database."""
    with psycopg.connect(url) as connection:
        rows: dict[str, list[tuple[object, ...]]] = {}
        for table in TABLES:
            names = connection.execute(
                "SELECT column_name FROM information_schema.columns"
                " WHERE table_schema = 'public' AND table_name = %s",
                [table],
            ).fetchall()
            columns = sql.SQL(", ").join(
                sql.Identifier(name) for name in sorted(n for (n,) in names)
            )
            statement = sql.SQL("SELECT {} FROM {}").format(columns, sql.Identifier(table))
            rows[table] = sorted(connection.execute(statement).fetchall(), key=repr)
        return rows


async def test_all_rows_arrive_in_postgres(url: str, home: Path, tmp_path: Path) -> None:
    before = dump(home)
    assert [table for table, rows in before.items() if not rows] == []
    checksums = transfer(SQLITE, StoreConfig(url=url), home, ignore, restart=False)
    assert {table: one.rows for table, one in checksums.items()} == {
        table: len(rows) for table, rows in before.items()
    }
    assert dump_postgres(url) == before
    assert dump(home) == before, "the source was changed"
    async with Database.open(StoreConfig(url=url), tmp_path / "other") as database:
        rows = await database.read("SELECT count(*) AS n FROM thread_metadata")
        assert rows[0]["n"] == 2 * THREADS + 1
        # The deleted row had number 2.
        statement = (
            "INSERT INTO inbox (conversation_id, seq, event_id, kind, body, received_at)"
            " VALUES (1, 9, 'new', 'chat', '{}', 1) RETURNING id"
        )
        added = await database.transaction(lambda tx: tx.run(statement))
        assert added[0]["id"] == 3


def test_progress_names_each_table_once_for_each_step(url: str, home: Path) -> None:
    reported: list[TransferProgress] = []
    transfer(SQLITE, StoreConfig(url=url), home, reported.append, restart=False)
    finished = [(one.step, one.table) for one in reported if one.rows == one.total]
    assert sorted(finished) == sorted(
        (step, table) for step in ("copy", "verify") for table in TABLES
    )


FILLED_OTHERWISE = {
    "thread_metadata",
    "parley_schema",
    "node",
    "chat_owner",
}
"""Tables that triggers, migrations and running nodes fill."""

POSTGRES_ONLY = {"node_message", "run_event"}
"""Tables with which nodes exchange data. A SQLite file has one node."""


def test_every_table_is_copied(url: str, home: Path) -> None:
    transfer(SQLITE, StoreConfig(url=url), home, ignore, restart=False)
    with psycopg.connect(url) as connection:
        postgres = {
            str(row[0])
            for row in connection.execute(
                "SELECT table_name FROM information_schema.tables WHERE table_schema = 'public'"
            )
        }
    with closing(sqlite3.connect(home / "parley.db")) as connection:
        connection.execute("ATTACH ? AS saved", [str(home / checkpoints.FILE)])
        sqlite = {
            str(row[0])
            for row in connection.execute(
                "SELECT name FROM (SELECT * FROM main.sqlite_master UNION SELECT * FROM saved.sqlite_master)"
                " WHERE type = 'table' AND name NOT LIKE 'sqlite_%'"
                " AND name NOT LIKE 'message_words_index%'"
                " AND name NOT LIKE 'past_message_words%'"  # The index of SQLite; triggers fill it.
            )
        }
    assert sqlite == set(TABLES) | FILLED_OTHERWISE
    assert postgres == sqlite | POSTGRES_ONLY


PROGRAM = """
import os, signal, sys
from pathlib import Path
from store.config import StoreConfig
from store.postgres.transfer import transfer

url, home, last = sys.argv[1:]

def report(progress):
    if f"{progress.step} {progress.table} {progress.rows}" == last:
        os.kill(os.getpid(), signal.SIGKILL)

transfer(StoreConfig(), StoreConfig(url=url), Path(home), report, restart=False)
"""


def kill_at(url: str, home: Path, last: str) -> None:
    """Copy in another process. Kill it when it reports `last`."""
    arguments = [sys.executable, "-c", PROGRAM, url, str(home), last]
    done = subprocess.run(arguments, check=False, timeout=100)
    assert done.returncode == -signal.SIGKILL


@pytest.mark.parametrize("line", ["copy conversation 2", "copy thread 400", "verify thread 1200"])
def test_a_copy_that_was_killed_continues(url: str, home: Path, line: str) -> None:
    kill_at(url, home, line)
    reported: list[TransferProgress] = []
    copy_when_unlocked(url, home, reported)
    assert "conversation" not in {one.table for one in reported if one.step == "copy"}
    assert dump_postgres(url) == dump(home)


def copy_when_unlocked(url: str, home: Path, reported: list[TransferProgress]) -> None:
    """Copy. The server may take a moment to notice that the killed process is gone."""
    deadline = time.monotonic() + 60
    while True:
        try:
            transfer(SQLITE, StoreConfig(url=url), home, reported.append, restart=False)
        except StoreLocked:
            assert time.monotonic() < deadline
            time.sleep(0.05)
        else:
            return


async def test_parley_does_not_start_with_an_unfinished_copy(
    url: str, home: Path, tmp_path: Path
) -> None:
    kill_at(url, home, "copy thread 400")
    with pytest.raises(StoreUnavailable, match="`parley migrate` was interrupted"):
        async with Database.open(StoreConfig(url=url), tmp_path / "other"):
            pass
    other = tmp_path / "third"
    async with Database.open(SQLITE, other):
        pass
    with pytest.raises(StoreUnavailable, match=r"unfinished copy of .*home/parley\.db: --force"):
        transfer(SQLITE, StoreConfig(url=url), other, ignore, restart=False)
    assert transfer(SQLITE, StoreConfig(url=url), other, ignore, restart=True)["thread"].rows == 0


def test_a_source_that_changed_meanwhile_is_detected_and_copied_again(url: str, home: Path) -> None:
    kill_at(url, home, "copy thread 400")
    with closing(sqlite3.connect(home / "parley.db")) as connection, connection:
        connection.execute("UPDATE conversation SET updated_at = 77 WHERE id = 1")
    with pytest.raises(StoreUnavailable, match="The table conversation differs"):
        copy_when_unlocked(url, home, [])
    assert transfer(SQLITE, StoreConfig(url=url), home, ignore, restart=True)


def test_a_used_target_is_refused(url: str, home: Path, tmp_path: Path) -> None:
    transfer(SQLITE, StoreConfig(url=url), home, ignore, restart=False)
    with pytest.raises(
        StoreUnavailable, match=r"is used already: it has 2 row\(s\) in conversation"
    ):
        transfer(SQLITE, StoreConfig(url=url), home, ignore, restart=True)
    with pytest.raises(StoreUnavailable, match="There is nothing to move"):
        transfer(SQLITE, StoreConfig(url=url), tmp_path / "empty", ignore, restart=False)


async def test_an_installation_that_runs_is_not_moved(url: str, home: Path, tmp_path: Path) -> None:
    target = StoreConfig(url=url)
    async with Database.open(SQLITE, home):
        with pytest.raises(StoreLocked, match="uses the data folder"):
            transfer(SQLITE, target, home, ignore, restart=False)
    async with Database.open(target, tmp_path / "other"):
        with pytest.raises(StoreLocked, match="Another Parley uses this PostgreSQL database"):
            transfer(SQLITE, target, home, ignore, restart=False)
