"""A chat that got another id goes on where it was."""

from dataclasses import replace

from store.chat_migrations import ChatMigrationStore
from store.conversation_settings import ConversationSettings, ConversationSettingsStore
from store.conversations import ChatMigration, ConversationKey, ConversationStore
from store.database import Database
from store.inbox import InboxRow, InboxStore, NewInboxRow
from store.message_topics import MessageTopicStore
from store.outbox import NewOutboxRow, OutboxStore

OLD = ConversationKey(channel="telegram", workspace="7", chat="-4001", topic="5")
CHAT = replace(OLD, topic="")
MOVE = ChatMigration(channel="telegram", workspace="7", old_chat="-4001", new_chat="-100")
NEW = replace(OLD, chat="-100", topic="-4001:5")


async def test_a_conversation_is_found_by_both_ids(database: Database) -> None:
    conversations = ConversationStore(database)
    await conversations.bind_thread(OLD, "thread", instead_of=None)
    assert await ChatMigrationStore(database).migrate(MOVE)
    for key in (OLD, NEW):
        found = await conversations.find(key)
        assert found is not None
        assert (found.key, found.thread_id) == (NEW, "thread")
    assert await conversations.bind_thread(OLD, "other", instead_of=None) == "thread"
    assert await conversations.find(replace(NEW, topic="5")) is None


async def test_a_move_happens_once(database: Database) -> None:
    moves = ChatMigrationStore(database)
    assert await moves.migrate(MOVE)
    assert not await moves.migrate(MOVE)
    assert not await moves.migrate(replace(MOVE, new_chat="-200"))
    assert await moves.list_all() == [MOVE]
    assert MOVE.apply(OLD) == NEW
    assert MOVE.apply(NEW) == NEW


async def test_what_is_owed_and_waits_moves_along(database: Database) -> None:
    inbox, outbox = InboxStore(database), OutboxStore(database)
    new = NewInboxRow(
        key=OLD, event_id="1", message_id="5", kind="chat", body="{}", received_at=1.0
    )
    row = await inbox.accept(new, cap=20)
    assert isinstance(row, InboxRow)
    await outbox.enqueue([NewOutboxRow(key="a", conversation=OLD, body="{}")])
    await ChatMigrationStore(database).migrate(MOVE)
    await inbox.finish(row.id, [NewOutboxRow(key="b", conversation=row.key, body="{}")])
    assert [delivery.key for delivery in await outbox.list_open(NEW)] == ["a", "b"]
    found = await ConversationStore(database).find(NEW)
    assert found is not None
    assert found.pending == 0


async def test_replies_to_messages_of_the_old_chat_find_the_topic(database: Database) -> None:
    origins = MessageTopicStore(database)
    await origins.set_topic(OLD, "6")
    await ChatMigrationStore(database).migrate(MOVE)
    await origins.set_topic(replace(NEW, topic="6"), "6")  # a message of the new chat
    assert await origins.find_topic(NEW, "-4001:6") == NEW.topic
    assert await origins.find_topic(NEW, "6") == "6"


async def test_choices_move_unless_the_new_chat_has_its_own(database: Database) -> None:
    choices = ConversationSettingsStore(database)
    await choices.save(CHAT, ConversationSettings(model="old"))
    await choices.save(OLD, ConversationSettings(model="topical"))
    await choices.save(replace(CHAT, chat="-100"), ConversationSettings(model="new"))
    await ChatMigrationStore(database).migrate(MOVE)
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
    await ChatMigrationStore(database).migrate(MOVE)
    for other in others:
        found = await conversations.find(other)
        assert found is not None
        assert found.key == other
