"""The stored data of a chat whose ID changes."""

from dataclasses import replace

from store.chat_migrations import ChatMigrationStore
from store.conversation_settings import ConversationSettings, ConversationSettingsStore
from store.conversations import ChatMigration, ConversationKey, ConversationStore
from store.database import Database
from store.inbox import InboxRow, InboxStore, NewInboxRow
from store.message_history import MessageHistoryStore
from store.message_topics import MessageTopicStore
from store.outbox import NewOutboxRow, OutboxStore

OLD = ConversationKey(channel="telegram", workspace="7", chat="-4001", topic="5")
CHAT = replace(OLD, topic="")
MIGRATION = ChatMigration(channel="telegram", workspace="7", old_chat="-4001", new_chat="-100")
NEW = replace(OLD, chat="-100", topic="-4001:5")


async def test_a_conversation_is_found_by_both_ids(database: Database) -> None:
    conversations = ConversationStore(database)
    await conversations.bind_thread(OLD, "thread", instead_of=None)
    assert await ChatMigrationStore(database).migrate(MIGRATION)
    for key in (OLD, NEW):
        found = await conversations.find(key)
        assert found is not None
        assert (found.key, found.thread_id) == (NEW, "thread")
    assert await conversations.bind_thread(OLD, "other", instead_of=None) == "thread"
    assert await conversations.find(replace(NEW, topic="5")) is None


async def test_a_move_happens_once(database: Database) -> None:
    moves = ChatMigrationStore(database)
    assert await moves.migrate(MIGRATION)
    assert not await moves.migrate(MIGRATION)
    assert not await moves.migrate(replace(MIGRATION, new_chat="-200"))
    assert await moves.list_all() == [MIGRATION]
    assert MIGRATION.apply(OLD) == NEW
    assert MIGRATION.apply(NEW) == NEW


async def test_pending_deliveries_and_messages_move_with_the_chat(database: Database) -> None:
    inbox, outbox = InboxStore(database), OutboxStore(database)
    new = NewInboxRow(
        key=OLD, event_id="1", message_id="5", kind="chat", body="{}", received_at=1.0
    )
    row = await inbox.accept(new, cap=20)
    assert isinstance(row, InboxRow)
    await outbox.enqueue([NewOutboxRow(key="a", conversation=OLD, body="{}")])
    await ChatMigrationStore(database).migrate(MIGRATION)
    await inbox.finish(row.id, [NewOutboxRow(key="b", conversation=row.key, body="{}")])
    deliveries = [(delivery.conversation, delivery.key) for delivery in await outbox.list_open()]
    assert deliveries == [(NEW, "a"), (NEW, "b")]
    found = await ConversationStore(database).find(NEW)
    assert found is not None
    assert found.pending == 0


async def test_flat_conversations_of_both_ids_become_one(database: Database) -> None:
    inbox, outbox = InboxStore(database), OutboxStore(database)
    new_chat = replace(CHAT, chat="-100")
    ids = []
    for number, key in enumerate((CHAT, new_chat, CHAT)):
        new = NewInboxRow(
            key=key, event_id=str(number), message_id=str(number), kind="chat", body="{}", received_at=1.0
        )  # fmt: skip
        row = await inbox.accept(new, cap=20)
        assert isinstance(row, InboxRow)
        ids.append(row.id)
        await outbox.enqueue([NewOutboxRow(key=f"k{number}", conversation=key, body="{}")])
    await ConversationStore(database).bind_thread(CHAT, "kept", instead_of=None)
    await ChatMigrationStore(database).migrate(MIGRATION)
    deliveries = [(delivery.conversation, delivery.key) for delivery in await outbox.list_open()]
    assert deliveries == [(new_chat, "k0"), (new_chat, "k1"), (new_chat, "k2")]
    assert [row.id for row in await inbox.list_unfinished()] == [ids[1], ids[0], ids[2]]
    for row_id in ids:
        await inbox.finish(row_id, [])
    merged = await ConversationStore(database).find(CHAT)
    assert merged is not None
    assert (merged.key, merged.thread_id, merged.pending, merged.last_seq) == (
        new_chat,
        "kept",
        0,
        3,
    )


async def test_a_row_that_was_read_before_its_conversation_was_merged_is_still_looked_up_in_it(
    database: Database,
) -> None:
    inbox, history = InboxStore(database), MessageHistoryStore(database)
    rows = []
    for number, key in enumerate((CHAT, CHAT, replace(CHAT, chat="-100"), CHAT)):
        new = NewInboxRow(
            key=key, event_id=str(number), message_id="", kind="chat", body="{}", received_at=1.0
        )
        row = await inbox.accept(new, cap=20)
        assert isinstance(row, InboxRow)
        rows.append(row)
    asked, second, _, last = rows
    await inbox.finish(asked.id, [], question="{}")
    await ChatMigrationStore(database).migrate(MIGRATION)
    assert [row.id for row in await history.list_after(asked)] == [second.id, last.id]
    question = await history.find_question(last)
    assert question is not None
    assert question.id == asked.id
    by_event = await history.find_by_event(asked, "1")
    assert by_event is not None
    assert by_event.id == second.id
    await inbox.assign_thread(last.id, thread_id="old")
    threads = {row.id: row.thread_id for row in await inbox.list_unfinished()}
    assert (threads[second.id], threads[last.id]) == ("old", None)


async def test_replies_to_messages_of_the_old_chat_find_the_topic(database: Database) -> None:
    origins = MessageTopicStore(database)
    await origins.set_topic(OLD, "6")
    await ChatMigrationStore(database).migrate(MIGRATION)
    await origins.set_topic(replace(NEW, topic="6"), "6")  # a message of the new chat
    assert await origins.find_topic(NEW, "-4001:6") == NEW.topic
    assert await origins.find_topic(NEW, "6") == "6"


async def test_choices_move_unless_the_new_chat_has_its_own(database: Database) -> None:
    choices = ConversationSettingsStore(database)
    await choices.save(CHAT, ConversationSettings(model="old"))
    await choices.save(OLD, ConversationSettings(model="topical"))
    await choices.save(replace(CHAT, chat="-100"), ConversationSettings(model="new"))
    await ChatMigrationStore(database).migrate(MIGRATION)
    found = await choices.list_all()
    assert found[replace(CHAT, chat="-100")] == ConversationSettings(model="new")
    assert found[NEW] == ConversationSettings(model="topical")


async def test_nothing_of_other_chats_moves(database: Database) -> None:
    conversations = ConversationStore(database)
    others = [
        replace(OLD, chat="-4002"),
        replace(OLD, workspace="8"),
        replace(OLD, channel="slack"),
    ]
    for other in others:
        await conversations.bind_thread(other, other.chat, instead_of=None)
    await ChatMigrationStore(database).migrate(MIGRATION)
    for other in others:
        found = await conversations.find(other)
        assert found is not None
        assert found.key == other


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
