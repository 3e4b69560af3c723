"""Databases of earlier schemas: rows survive renamed tables and columns."""

import sqlite3
from contextlib import closing
from pathlib import Path

from store.chat_migrations import ChatMigrationStore
from store.config import StoreConfig
from store.conversation_settings import ConversationSettings, ConversationSettingsStore
from store.conversations import ChatMigration, ConversationKey, ConversationStore
from store.database import Database
from store.inbox import DuplicateMessage, InboxStore, NewInboxRow
from store.message_history import MessageHistoryStore
from store.message_topics import MessageTopicStore
from store.migrations import scripts
from store.outbox import OutboxStore
from store.threads import ThreadQuery, ThreadStore

SCHEMA_9_ROWS = """
INSERT INTO conversation (id, channel, workspace, chat, topic, thread_id, last_seq, pending, created_at, updated_at)
VALUES (1, 'telegram', '7', '-4', '', 'old', 2, 1, 1, 1), (2, 'telegram', '7', '-100', '', 'new', 1, 1, 1, 1),
    (3, 'telegram', '7', '-100', '5', 'topic', 1, 0, 1, 1);
INSERT INTO inbox (id, conversation_id, seq, event_id, kind, body, state, received_at, asks, message_id)
VALUES (1, 1, 1, 'e1', 'chat', '{}', 'done', 1, '{"options": ["a"]}', 'm1'),
    (2, 1, 2, 'e2', 'chat', '{}', 'new', 1, NULL, 'm2'), (3, 2, 1, 'e3', 'chat', '{}', 'new', 1, NULL, 'm3');
INSERT INTO seen VALUES ('telegram', '7', 'event', '', 'e1', 1);
INSERT INTO outbox (key, conversation_id, body, state, attempts, error, created_at, updated_at)
VALUES ('sent', 1, '{}', 'sending', 1, NULL, 10, 20),
    ('doubt', 1, '{}', 'pending', 1, 'in doubt: repeated once', 10, 20),
    ('fresh', 2, '{}', 'pending', 0, NULL, 10, 10);
INSERT INTO origin VALUES ('telegram', '7', '-100', 'm9', '5');
INSERT INTO choice (channel, workspace, chat, topic, model, updated_at) VALUES ('telegram', '7', '-100', '', 'gpt', 1);
INSERT INTO moved_chat VALUES ('telegram', '7', '-4', '-100');
INSERT INTO thread (thread_id, created_at, updated_at, state_updated_at, metadata)
VALUES ('t', 1, 1, 1, '{"chat":"-100","deep":{"a":[1,2]},"on":true}');
"""
CHAT = ConversationKey(channel="telegram", workspace="7", chat="-100")


def write_schema_9(home: Path) -> None:
    """Write the database of an earlier version."""
    with closing(sqlite3.connect(home / "parley.db")) as connection, connection:
        connection.execute(
            "CREATE TABLE schema_version (version INTEGER PRIMARY KEY, applied_at INTEGER NOT NULL) STRICT"
        )
        for version, script in scripts().items():
            if version <= 9:
                connection.executescript(script)
                connection.execute("INSERT INTO schema_version VALUES (?, 0)", (version,))
        connection.executescript(SCHEMA_9_ROWS)


async def test_rows_of_schema_9_are_found_under_the_new_names(tmp_path: Path) -> None:
    write_schema_9(tmp_path)
    async with Database.open(StoreConfig(), tmp_path) as database:
        first = await MessageHistoryStore(database).find(1)
        assert first is not None
        assert first.question == '{"options": ["a"]}'
        again = NewInboxRow(
            key=CHAT, event_id="e1", message_id="", kind="chat", body="{}", received_at=2
        )
        assert await InboxStore(database).accept(again, cap=9) == DuplicateMessage()
        assert await MessageTopicStore(database).find_topic(CHAT, "m9") == "5"
        settings = await ConversationSettingsStore(database).list_all()
        assert settings == {CHAT: ConversationSettings(model="gpt")}
        [migration] = await ChatMigrationStore(database).list_all()
        assert (migration.old_chat, migration.new_chat) == ("-4", "-100")
        for metadata in ({"chat": "-100"}, {"deep": {"a": [1, 2]}}, {"on": True}):
            found = await ThreadStore(database).search(ThreadQuery(metadata=metadata))
            assert [thread.thread_id for thread in found] == ["t"]


async def test_sends_of_unknown_outcome_keep_their_doubt(tmp_path: Path) -> None:
    write_schema_9(tmp_path)
    async with Database.open(StoreConfig(), tmp_path) as database:
        rows = {row.key: row for row in await OutboxStore(database).list_open()}
    assert (rows["sent"].first_sent_at, rows["sent"].last_sent_at) == (10, 20)
    assert [rows[key].uncertain_attempts for key in ("sent", "doubt", "fresh")] == [0, 1, 0]
    assert rows["fresh"].first_sent_at is None


async def test_conversations_left_under_an_old_chat_id_are_merged(tmp_path: Path) -> None:
    write_schema_9(tmp_path)
    async with Database.open(StoreConfig(), tmp_path) as database:
        migrations = ChatMigrationStore(database)
        assert await migrations.merge_leftovers() == 1
        assert await migrations.merge_leftovers() == 0
        deliveries = [
            (row.conversation, row.key) for row in await OutboxStore(database).list_open()
        ]
        assert deliveries == [(CHAT, "sent"), (CHAT, "doubt"), (CHAT, "fresh")]
        unfinished = await InboxStore(database).list_unfinished()
        assert [(row.key, row.id, row.seq) for row in unfinished] == [(CHAT, 3, 1), (CHAT, 2, 3)]
        merged = await ConversationStore(database).find(CHAT)
        assert merged is not None
        assert (merged.thread_id, merged.last_seq, merged.pending) == ("new", 3, 2)


async def test_a_chat_that_migrated_twice_is_found_by_its_first_id(database: Database) -> None:
    conversations, migrations = ConversationStore(database), ChatMigrationStore(database)
    first = ConversationKey(channel="telegram", workspace="7", chat="a", topic="5")
    await conversations.bind_thread(first, "thread", instead_of=None)
    for old, new in (("a", "b"), ("b", "c")):
        migration = ChatMigration(channel="telegram", workspace="7", old_chat=old, new_chat=new)
        assert await migrations.migrate(migration)
    found = await conversations.find(first)
    assert found is not None
    assert (found.key.chat, found.key.topic) == ("c", "b:a:5")
    assert await conversations.bind_thread(first, "other", instead_of=None) == "thread"
