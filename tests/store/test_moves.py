"""A chat that got another id goes on where it was."""

from dataclasses import replace

from store.choices import Choice, Choices
from store.conversations import ConversationKey, Conversations, Move
from store.database import Database
from store.inbox import Inbox, InboxRow, NewInboxRow
from store.moves import Moves
from store.outbox import NewOutboxRow, Origins, Outbox

OLD = ConversationKey(channel="telegram", workspace="7", chat="-4001", topic="5")
CHAT = replace(OLD, topic="")
MOVE = Move(channel="telegram", workspace="7", old_chat="-4001", new_chat="-100")
NEW = replace(OLD, chat="-100", topic="-4001:5")


async def test_a_conversation_is_found_by_both_ids(database: Database) -> None:
    conversations = Conversations(database)
    await conversations.bind(OLD, "thread", instead_of=None)
    assert await Moves(database).carry_out(MOVE)
    for key in (OLD, NEW):
        found = await conversations.find(key)
        assert found is not None
        assert (found.key, found.thread_id) == (NEW, "thread")
    assert await conversations.bind(OLD, "other", instead_of=None) == "thread"
    assert await conversations.find(replace(NEW, topic="5")) is None


async def test_a_move_happens_once(database: Database) -> None:
    moves = Moves(database)
    assert await moves.carry_out(MOVE)
    assert not await moves.carry_out(MOVE)
    assert not await moves.carry_out(replace(MOVE, new_chat="-200"))
    assert await moves.all() == [MOVE]
    assert MOVE.present(OLD) == NEW
    assert MOVE.present(NEW) == NEW


async def test_what_is_owed_and_waits_moves_along(database: Database) -> None:
    inbox, outbox = Inbox(database), Outbox(database)
    new = NewInboxRow(
        key=OLD, event_id="1", message_id="5", kind="chat", body="{}", received_at=1.0
    )
    row = await inbox.accept(new, cap=20)
    assert isinstance(row, InboxRow)
    await outbox.add([NewOutboxRow(key="a", conversation=OLD, body="{}")])
    await Moves(database).carry_out(MOVE)
    await inbox.finish(row.id, [NewOutboxRow(key="b", conversation=row.key, body="{}")])
    assert [delivery.key for delivery in await outbox.open_rows(NEW)] == ["a", "b"]
    found = await Conversations(database).find(NEW)
    assert found is not None
    assert found.pending == 0


async def test_replies_to_messages_of_the_old_chat_find_the_topic(database: Database) -> None:
    origins = Origins(database)
    await origins.remember(OLD, "6")
    await Moves(database).carry_out(MOVE)
    await origins.remember(replace(NEW, topic="6"), "6")  # a message of the new chat
    assert await origins.topic_of(NEW, "-4001:6") == NEW.topic
    assert await origins.topic_of(NEW, "6") == "6"


async def test_choices_move_unless_the_new_chat_has_its_own(database: Database) -> None:
    choices = Choices(database)
    await choices.set(CHAT, Choice(model="old"))
    await choices.set(OLD, Choice(model="topical"))
    await choices.set(replace(CHAT, chat="-100"), Choice(model="new"))
    await Moves(database).carry_out(MOVE)
    found = await choices.all()
    assert found[replace(CHAT, chat="-100")] == Choice(model="new")
    assert found[NEW] == Choice(model="topical")


async def test_nothing_of_other_chats_moves(database: Database) -> None:
    conversations = Conversations(database)
    others = [
        replace(OLD, chat="-4002"),
        replace(OLD, workspace="8"),
        replace(OLD, channel="slack"),
    ]
    for other in others:
        await conversations.bind(other, other.chat, instead_of=None)
    await Moves(database).carry_out(MOVE)
    for other in others:
        found = await conversations.find(other)
        assert found is not None
        assert found.key == other
