"""Every schema there ever was is upgraded with its data, and ends as a new database begins."""

import re
import sqlite3
from collections.abc import Mapping, Sequence
from contextlib import closing
from pathlib import Path

import pytest

from store.config import StoreConfig
from store.database import Database
from store.migrations import migrate, scripts

LEVELS = sorted(scripts())

ROWS: Mapping[int, str] = {
    1: """
        INSERT INTO conversation (id, channel, workspace, chat, topic, thread_id, last_seq, pending, created_at,
            updated_at)
        VALUES (1, 'telegram', '7', '-4', '', 't1', 2, 1, 10.5, 20.5),
            (2, 'slack', 'T1', 'C1', '1.5', NULL, 0, 0, 1, 1);
        INSERT INTO inbox (id, conversation_id, seq, event_id, kind, body, state, attempts, thread_id, run_id,
            received_at)
        VALUES (1, 1, 1, 'e1', 'chat', '{"text": "é"}', 'done', 1, 't1', 'r1', 11),
            (2, 1, 2, 'e2', 'command', '{}', 'running', 2, NULL, NULL, 12);
        INSERT INTO seen VALUES ('telegram', '7', 'event', '', 'e1', 11), ('telegram', '7', 'message', '-4', 'm1', 11);
        INSERT INTO outbox (id, key, conversation_id, body, state, attempts, not_before, platform_id, error, created_at,
            updated_at)
        VALUES (1, 'k1', 1, '{"text": "answer"}', 'delivered', 1, 0, 'p1', NULL, 13, 14),
            (2, 'k2', 1, '{}', 'pending', 0, 99, NULL, NULL, 15, 15),
            (3, 'k3', 1, '{}', 'failed', 9, 0, NULL, 'refused', 16, 17);
        INSERT INTO origin VALUES ('slack', 'T1', 'C1', 'm9', '1.5');
        INSERT INTO pairing VALUES ('ABC', 'telegram', '7', 'u1', 'Ann', '', 18, 19),
            ('DEF', 'telegram', '7', 'u2', 'Bo', '', 18, NULL);
    """,
    2: """
        INSERT INTO thread (thread_id, created_at, updated_at, state_updated_at, metadata, status, title, error,
            interrupts)
        VALUES ('t1', 1, 2, 3, '{"chat": "-4"}', 'interrupted', 'A title', NULL, '{"a": []}');
        INSERT INTO run (seq, run_id, thread_id, assistant_id, status, metadata, kwargs, multitask_strategy, error,
            created_at, updated_at)
        VALUES (5, 'r1', 't1', 'lead_agent', 'success', '{}', '{"input": 1}', 'reject', NULL, 1, 2);
    """,
    3: "INSERT INTO choice VALUES ('telegram', '7', '-4', '', 'gpt', 'researcher', 21);",
    4: """
        UPDATE thread SET ttl_minutes = 5, ttl_strategy = 'delete', expires_at = 9e9;
        INSERT INTO item VALUES ('users.1.', 'k', '{"v": 1}', 1, 2, NULL, NULL);
    """,
    5: "UPDATE choice SET language = 'zh';",
    6: """
        INSERT INTO assistant VALUES ('a1', 2, 1, 2);
        INSERT INTO assistant_version
        VALUES ('a1', 1, 'lead_agent', 'one', NULL, '{}', '{}', '{}', 1),
            ('a1', 2, 'lead_agent', 'two', 'second', '{"x": 1}', '{"y": 2}', '{"z": 3}', 2);
    """,
    7: 'UPDATE inbox SET asks = \'{"options": ["a"]}\' WHERE id = 1;',
    8: "UPDATE inbox SET message_id = 'm1' WHERE id = 1;",
    9: "INSERT INTO moved_chat VALUES ('telegram', '7', '-4', '-100');",
    10: "INSERT INTO received_id VALUES ('slack', 'T1', 'event', '', 'e3', 30);",
    11: "UPDATE outbox SET first_sent_at = 41, last_sent_at = 42, uncertain_attempts = 1 WHERE id = 2;",
    12: "INSERT INTO message_topic VALUES ('slack', 'T1', 'C1', 'm10', '1.6', 50);",
    13: "INSERT INTO credential VALUES ('slack', 'T1', x'00ff', 60);",
    14: "INSERT INTO api_token VALUES ('ci', 'digest', 'thread', 't1', 70, NULL);",
    15: "INSERT INTO chat_owner VALUES ('slack', 'T1', 'C1', 3);",
    16: "",
    17: """
        INSERT INTO file_area VALUES ('threads/t1', 1700000000000000000);
        INSERT INTO stored_file VALUES
            ('threads/t1', 'user-data/a%20b', 'file', 'threads/t1/00ff', 3, 420, 1700000000000000001, '');
    """,
    18: "INSERT INTO run_webhook VALUES ('r1', 'https://example.org', '{}', 0);",
    19: "",
    20: "INSERT INTO run_request VALUES ('r2', NULL, 0, 1, 0, '{}', 80);",
    21: "UPDATE run_request SET cancel_action = 'rollback', messages = '{}' || char(10) WHERE run_id = 'r2';",
    22: "",
    23: "",
    24: "",
    25: """
        INSERT INTO chat VALUES ('telegram', '7', '42', 1, 'u1', 'member', '', 90);
        INSERT INTO broadcast VALUES (1, 'tonight', 'd', 'Down tonight', '{}', 91);
        INSERT INTO broadcast_chat VALUES ('telegram', 1, '7', '42', '');
    """,
    26: "",
}
"""What was written at each schema, in its own names. A new migration gets an entry, if only an empty one."""

Check = tuple[int, str, Sequence[tuple[object, ...]]]

CHECKS: Sequence[Check] = (
    (
        1,
        "SELECT id, channel, chat, topic, thread_id, last_seq, pending, created_at, updated_at FROM conversation",
        [(1, "telegram", "-4", "", "t1", 2, 1, 10.5, 20.5), (2, "slack", "C1", "1.5", None, 0, 0, 1.0, 1.0)],
    ),
    (
        1,
        "SELECT id, seq, event_id, kind, body, state, attempts, thread_id, run_id, received_at FROM inbox",
        [
            (1, 1, "e1", "chat", '{"text": "é"}', "done", 1, "t1", "r1", 11.0),
            (2, 2, "e2", "command", "{}", "running", 2, None, None, 12.0),
        ],
    ),
    (
        1,
        "SELECT kind, chat, external_id, received_at FROM received_id WHERE channel = 'telegram'",
        [("event", "", "e1", 11.0), ("message", "-4", "m1", 11.0)],
    ),
    (
        1,
        "SELECT key, body, state, attempts, not_before, platform_id, error, created_at, updated_at FROM outbox",
        [
            ("k1", '{"text": "answer"}', "delivered", 1, 0.0, "p1", None, 13.0, 14.0),
            ("k2", "{}", "pending", 0, 99.0, None, None, 15.0, 15.0),
            ("k3", "{}", "failed", 9, 0.0, None, "refused", 16.0, 17.0),
        ],
    ),
    (1, "SELECT topic FROM message_topic WHERE message_id = 'm9'", [("1.5",)]),
    (1, "SELECT created_at > 1.7e9 FROM message_topic WHERE message_id = 'm9'", [(1,)]),
    (
        1,
        "SELECT code, user_id, user_name, created_at, approved_at FROM pairing",
        [("ABC", "u1", "Ann", 18.0, 19.0), ("DEF", "u2", "Bo", 18.0, None)],
    ),
    (
        2,
        "SELECT thread_id, state_updated_at, metadata, status, title, interrupts FROM thread",
        [("t1", 3.0, '{"chat": "-4"}', "interrupted", "A title", '{"a": []}')],
    ),
    (2, "SELECT key, value FROM thread_metadata", [("chat", "text:-4")]),
    (2, "SELECT seq, run_id, status, kwargs FROM run", [(5, "r1", "success", '{"input": 1}')]),
    (3, "SELECT chat, model, agent, updated_at FROM conversation_settings", [("-4", "gpt", "researcher", 21.0)]),
    (4, "SELECT ttl_minutes, ttl_strategy, expires_at FROM thread", [(5.0, "delete", 9e9)]),
    (4, "SELECT namespace, key, value FROM item", [("users.1.", "k", '{"v": 1}')]),
    (5, "SELECT language FROM conversation_settings", [("zh",)]),
    (6, "SELECT version FROM assistant", [(2,)]),
    (
        6,
        "SELECT version, name, description, config, context, metadata, created_at FROM assistant_version",
        [(1, "one", None, "{}", "{}", "{}", 1.0), (2, "two", "second", '{"x": 1}', '{"y": 2}', '{"z": 3}', 2.0)],
    ),
    (7, "SELECT question FROM inbox WHERE id = 1", [('{"options": ["a"]}',)]),
    (8, "SELECT message_id FROM inbox", [("m1",), ("",)]),
    (9, "SELECT old_chat, new_chat FROM chat_migration", [("-4", "-100")]),
    (10, "SELECT external_id FROM received_id WHERE channel = 'slack'", [("e3",)]),
    (
        11,
        "SELECT first_sent_at, last_sent_at, uncertain_attempts FROM outbox WHERE id = 2",
        [(41.0, 42.0, 1)],
    ),
    (12, "SELECT topic, created_at FROM message_topic WHERE message_id = 'm10'", [("1.6", 50.0)]),
    (13, "SELECT name, secret FROM credential", [("T1", b"\x00\xff")]),
    (14, "SELECT name, digest, scope, thread_id, created_at, expires_at FROM api_token",
     [("ci", "digest", "thread", "t1", 70.0, None)]),
    (15, "SELECT chat, node FROM chat_owner", [("C1", 3)]),
    (17, "SELECT path, object, modified_ns FROM stored_file",
     [("user-data/a%20b", "threads/t1/00ff", 1700000000000000001)]),
    (18, "SELECT run_id, url, body, node FROM run_webhook", [("r1", "https://example.org", "{}", 0)]),
    (20, "SELECT run_id, attempt, crashes, body FROM run_request", [("r2", 1, 0, "{}")]),
    (21, "SELECT cancel_action, messages FROM run_request", [("rollback", "{}\n")]),
    (25, "SELECT chat, is_private, user_id, received_at FROM chat", [("42", 1, "u1", 90.0)]),
    (25, "SELECT key, text, chat FROM broadcast JOIN broadcast_chat ON broadcast_id = id",
     [("tonight", "Down tonight", "42")]),
)  # fmt: skip
"""Since which schema the rows are there, how they are read today, and what is read."""


def write_history(home: Path, level: int) -> None:
    """Write a database that began at schema 1 and was used at each schema up to `level`."""
    with closing(sqlite3.connect(home / "parley.db")) as connection:
        connection.execute(
            "CREATE TABLE schema_version (version INTEGER PRIMARY KEY, applied_at INTEGER NOT NULL) STRICT"
        )
        for version in LEVELS[:level]:
            connection.executescript(scripts()[version])
            connection.execute("INSERT INTO schema_version VALUES (?, 0)", (version,))
            connection.executescript(ROWS[version])
        connection.commit()


def schema(journal: sqlite3.Connection) -> list[tuple[str, ...]]:
    """Return all tables, columns, indices and triggers, without what differs in spelling."""
    made = journal.execute(
        "SELECT type, name, tbl_name, coalesce(sql, '') FROM sqlite_master ORDER BY type, name"
    ).fetchall()
    return [(*row[:3], re.sub(r"[\s\"]+", "", row[3])) for row in made]


def test_every_schema_has_rows() -> None:
    assert sorted(ROWS) == LEVELS
    assert {since for since, _, _ in CHECKS} == {level for level, sql in ROWS.items() if sql}


@pytest.mark.parametrize("level", LEVELS)
async def test_data_of_every_earlier_schema_survive(tmp_path: Path, level: int) -> None:
    write_history(tmp_path, level)
    async with Database.open(StoreConfig(), tmp_path):
        pass
    with closing(sqlite3.connect(tmp_path / "parley.db")) as journal:
        for since, sql, expected in CHECKS:
            if since <= level:
                assert journal.execute(sql).fetchall() == expected, sql
        assert journal.execute("PRAGMA quick_check").fetchall() == [("ok",)]
        assert journal.execute("PRAGMA foreign_key_check").fetchall() == []
        applied = journal.execute("SELECT version FROM schema_version ORDER BY version").fetchall()
        assert applied == [(version,) for version in LEVELS]
        with closing(sqlite3.connect(":memory:", isolation_level=None)) as fresh:
            migrate(fresh)
            assert schema(journal) == schema(fresh)
