import sqlite3
import sys
from dataclasses import replace
from pathlib import Path

import anyio
import psycopg
import pytest

from store.config import StoreConfig
from store.conversations import ConversationKey, ConversationStore
from store.database import Database
from store.inbox import (
    DuplicateMessage,
    InboxRow,
    InboxStore,
    NewInboxRow,
    QueueFull,
    TurnStart,
)
from store.message_topics import MessageTopicStore
from store.outbox import NewOutboxRow, OutboxStore
from store.retention import REDELIVERY_DAYS, Retention

KEY = ConversationKey(channel="telegram", workspace="B1", chat="42")
DAY = 86_400.0


def new(number: int = 1, **changes: object) -> NewInboxRow:
    made = NewInboxRow(
        key=KEY,
        event_id=f"event-{number}",
        message_id=f"message-{number}",
        kind="chat",
        body="{}",
        received_at=1000.0 + number,
    )
    return replace(made, **changes)  # type: ignore[arg-type]


async def accept(inbox: InboxStore, message: NewInboxRow, *, cap: int = 20) -> InboxRow:
    row = await inbox.accept(message, cap=cap)
    assert isinstance(row, InboxRow)
    return row


async def pending(database: Database) -> int:
    found = await ConversationStore(database).find(KEY)
    assert found is not None
    return found.pending


async def test_accepted_messages_are_numbered_in_their_conversation(database: Database) -> None:
    inbox = InboxStore(database)
    first, second = await accept(inbox, new(1)), await accept(inbox, new(2))
    assert (first.seq, second.seq) == (1, 2)
    assert await inbox.list_unfinished() == [first, second]
    assert await inbox.list_recent(limit=1) == [second]


async def test_the_newest_message_of_a_chat_or_topic_is_found(database: Database) -> None:
    inbox = InboxStore(database)
    topic = replace(KEY, topic="7")
    one = await accept(inbox, new(1, key=topic))
    two = await accept(inbox, new(2))
    await accept(inbox, new(3, key=replace(KEY, chat="43")))
    await accept(inbox, new(4, kind="command"))
    await accept(inbox, replace(new(5), event_id="hook:builds:1"))
    assert await inbox.find_newest(KEY.channel, KEY.chat) == two
    assert await inbox.find_newest(KEY.channel, KEY.chat, "7") == one
    assert await inbox.find_newest("slack", KEY.chat) is None


@pytest.mark.parametrize(
    ("again", "why"),
    [
        (new(1), "the same delivery"),
        (new(1, message_id="other"), "the same event id"),
        (new(1, event_id="other"), "the same message in its chat"),
    ],
)
async def test_a_redelivery_is_a_duplicate(
    database: Database, again: NewInboxRow, why: str
) -> None:
    inbox = InboxStore(database)
    await accept(inbox, new(1))
    assert await inbox.accept(again, cap=20) == DuplicateMessage(), why
    assert len(await inbox.list_unfinished()) == 1


async def test_the_same_message_id_in_another_chat_is_another_message(database: Database) -> None:
    inbox = InboxStore(database)
    await accept(inbox, new(1))
    await accept(inbox, new(2, key=replace(KEY, chat="43"), message_id="message-1"))
    await accept(inbox, new(3, message_id=""))
    await accept(inbox, new(4, message_id=""))
    assert len(await inbox.list_unfinished()) == 4


async def test_exactly_one_of_many_simultaneous_deliveries_is_accepted(database: Database) -> None:
    inbox = InboxStore(database)
    results: list[object] = []

    async def deliver() -> None:
        results.append(await inbox.accept(new(1), cap=20))

    async with anyio.create_task_group() as group:
        for _ in range(50):
            group.start_soon(deliver)
    assert len([result for result in results if isinstance(result, InboxRow)]) == 1
    assert results.count(DuplicateMessage()) == 49


async def test_ids_survive_a_restart(tmp_path: Path) -> None:
    async with Database.open(StoreConfig(), tmp_path) as database:
        await accept(InboxStore(database), new(1))
    async with Database.open(StoreConfig(), tmp_path) as database:
        assert await InboxStore(database).accept(new(1), cap=20) == DuplicateMessage()


async def test_an_overfull_conversation_refuses_chat_but_not_commands(database: Database) -> None:
    inbox = InboxStore(database)
    for number in (1, 2):
        await accept(inbox, new(number), cap=2)
    refused = await inbox.accept(new(3), cap=2)
    assert isinstance(refused, QueueFull)
    assert (refused.pending, refused.key) == (2, KEY)
    assert await inbox.accept(new(3), cap=2) == DuplicateMessage()
    await accept(inbox, new(4, kind="command"), cap=2)
    assert await pending(database) == 2


async def test_a_refused_message_is_remembered_with_its_notice(database: Database) -> None:
    def notice(key: ConversationKey) -> NewOutboxRow:
        return NewOutboxRow(key="fast:1", conversation=key, body="{}")

    inbox, command = InboxStore(database), new(1, kind="command")
    assert await inbox.refuse(command, notice=notice) == KEY
    assert await inbox.refuse(command, notice=notice) == DuplicateMessage()
    assert await inbox.accept(command, cap=20) == DuplicateMessage()
    assert await inbox.list_unfinished() == []
    assert await OutboxStore(database).find("fast:1") is not None


async def test_a_message_being_answered_does_not_wait(database: Database) -> None:
    inbox = InboxStore(database)
    first = await accept(inbox, new(1), cap=1)
    assert await inbox.mark_running(first.id, thread_id="t")
    second = await accept(inbox, new(2), cap=1)
    assert isinstance(await inbox.accept(new(3), cap=1), QueueFull)
    await inbox.finish(first.id, [])
    await inbox.mark_running(second.id, thread_id="t")
    await accept(inbox, new(4), cap=1)


async def test_a_reply_goes_to_the_conversation_of_the_message_it_answers(
    database: Database,
) -> None:
    inbox, origins = InboxStore(database), MessageTopicStore(database)
    root = await accept(inbox, new(1, key=replace(KEY, topic="message-1"), remember=True))
    await origins.set_topic(root.key, "answer-1")
    followed = await accept(
        inbox, new(2, key=replace(KEY, topic="message-2"), replies_to=("x", "answer-1"))
    )
    chained = await accept(
        inbox, new(3, key=replace(KEY, topic="message-3"), replies_to=("message-1",))
    )
    stranger = await accept(
        inbox, new(4, key=replace(KEY, topic="message-4"), replies_to=("unknown",))
    )
    assert [row.key.topic for row in (followed, chained, stranger)] == [
        "message-1",
        "message-1",
        "message-4",
    ]
    assert [row.seq for row in (root, followed, chained, stranger)] == [1, 2, 3, 1]


async def test_a_turn_starts_with_the_acceptance_of_its_message(database: Database) -> None:
    inbox = InboxStore(database)
    first = await accept(inbox, new(1, may_start=True))
    assert first.start == TurnStart(
        thread_id=first.thread_id or "", follows_question=False, has_new_thread=True
    )
    assert (first.state, first.starts) == ("running", 1)
    assert first.thread_id == first.current_thread_id is not None
    waiting = await accept(inbox, new(2, may_start=True))
    assert (waiting.start, waiting.state, waiting.starts, waiting.thread_id) == (
        None,
        "new",
        0,
        None,
    )
    assert waiting.current_thread_id == first.thread_id
    assert await inbox.list_unfinished() == [replace(first, start=None), waiting]


async def test_a_turn_that_starts_with_its_acceptance_is_resumed_like_any_other(
    database: Database,
) -> None:
    inbox = InboxStore(database)
    asked = await accept(inbox, new(1, may_start=True))
    await inbox.finish(asked.id, [], question="Which one?")
    answer = await accept(inbox, new(2, may_start=True))
    assert answer.start == TurnStart(thread_id=asked.thread_id or "", follows_question=True)
    assert answer.thread_id == asked.thread_id
    assert await inbox.mark_running(answer.id, thread_id=None) == answer.start
    [resumed] = await inbox.list_unfinished()
    assert (resumed.starts, resumed.thread_id) == (2, asked.thread_id)


async def test_no_turn_starts_beside_a_command(database: Database) -> None:
    inbox = InboxStore(database)
    command = await accept(inbox, new(1, kind="command"))
    assert (await accept(inbox, new(2, may_start=True))).start is None
    await inbox.finish(command.id, [])
    assert (await accept(inbox, new(3, may_start=True))).start is None  # the second one waits


async def test_a_turn_is_begun_again_after_a_crash_with_its_run(database: Database) -> None:
    inbox = InboxStore(database)
    row = await accept(inbox, new(1))
    assert await inbox.mark_running(row.id, thread_id="t1")
    await inbox.set_run(row.id, "r1")
    assert await inbox.mark_running(row.id, thread_id="t1")
    [again] = await inbox.list_unfinished()
    assert (again.state, again.starts, again.thread_id, again.run_id) == (
        "running",
        2,
        "t1",
        "r1",
    )
    assert await inbox.mark_running(row.id, thread_id="t2")
    [kept] = await inbox.list_unfinished()
    assert (kept.thread_id, kept.run_id) == ("t1", "r1")


async def test_a_turn_starts_in_the_present_thread_of_its_conversation(
    database: Database,
) -> None:
    inbox, conversations = InboxStore(database), ConversationStore(database)
    await conversations.bind_thread(KEY, "old", instead_of=None)
    before, command, after = [await accept(inbox, new(number)) for number in (1, 2, 3)]
    await inbox.assign_thread(command.id, thread_id="old")
    await conversations.bind_thread(KEY, "new", instead_of="old")
    starts = [await inbox.mark_running(row.id, thread_id=None) for row in (before, after)]
    assert [start and start.thread_id for start in starts] == ["old", "new"]
    named = await inbox.mark_running(command.id, thread_id="named")
    assert named is not None
    assert named.thread_id == "named"


async def test_a_row_is_finished_once_together_with_its_deliveries(database: Database) -> None:
    inbox, outbox = InboxStore(database), OutboxStore(database)
    row = await accept(inbox, new(1))
    owed = NewOutboxRow(key=f"{row.id}:text:0", conversation=KEY, body="answer")
    assert await inbox.finish(row.id, [owed])
    assert not await inbox.finish(row.id, [replace(owed, key="second")])
    assert not await inbox.mark_running(row.id, thread_id="t")
    assert [delivery.key for delivery in await outbox.list_open()] == [f"{row.id}:text:0"]
    assert await inbox.list_unfinished() == []
    assert await pending(database) == 0


async def test_a_command_is_finished_once_together_with_its_deliveries(database: Database) -> None:
    inbox, outbox = InboxStore(database), OutboxStore(database)
    row = await accept(inbox, new(1, kind="command"))
    owed = [NewOutboxRow(key=f"{row.id}:{name}", conversation=KEY, body=name) for name in "ab"]
    for _ in range(2):
        await inbox.finish_command(row.id, owed)
        assert [delivery.key for delivery in await outbox.list_open()] == [one.key for one in owed]
    assert await inbox.list_unfinished() == []


async def test_finishing_is_all_or_nothing(database: Database) -> None:
    inbox = InboxStore(database)
    row = await accept(inbox, new(1))
    bad = NewOutboxRow(key="k", conversation=KEY, body=None)  # type: ignore[arg-type]
    with pytest.raises((sqlite3.IntegrityError, psycopg.IntegrityError)):
        await inbox.finish(row.id, [bad])
    assert [left.id for left in await inbox.list_unfinished()] == [row.id]
    assert await pending(database) == 1


async def test_a_dead_row_stays_visible(database: Database) -> None:
    inbox = InboxStore(database)
    row = await accept(inbox, new(1))
    assert await inbox.finish(row.id, [], dead=True)
    assert [(left.id, left.state) for left in await inbox.list_recent()] == [(row.id, "dead")]


async def test_waiting_rows_are_tied_to_the_old_thread_before_a_new_one(database: Database) -> None:
    inbox = InboxStore(database)
    chat, command = await accept(inbox, new(1)), await accept(inbox, new(2, kind="command"))
    later = await accept(inbox, new(3))
    await inbox.assign_thread(command.id, thread_id="old")
    threads = {row.id: row.thread_id for row in await inbox.list_unfinished()}
    assert threads == {chat.id: "old", command.id: None, later.id: None}


async def test_finished_rows_and_ids_are_kept_for_seven_days(database: Database) -> None:
    inbox = InboxStore(database)
    done, waiting = await accept(inbox, new(1)), await accept(inbox, new(2))
    await inbox.finish(done.id, [])
    later = done.received_at + REDELIVERY_DAYS * DAY
    assert await Retention(database).prune(now=later - 1) == 0
    assert await inbox.accept(new(1), cap=20) == DuplicateMessage()
    assert await Retention(database).prune(now=later + 10) == 1 + 4
    assert [row.id for row in await inbox.list_recent()] == [waiting.id]


async def test_transcripts_are_stored_with_their_note_and_go_with_the_message(
    database: Database,
) -> None:
    inbox, outbox = InboxStore(database), OutboxStore(database)
    row = await accept(inbox, new(1))
    assert row.speech is None
    note = NewOutboxRow(key=f"{row.id}:speech:a", conversation=KEY, body="{}")
    for words in ("Call me.", "Call me. At five."):  # the second recording of the message
        await inbox.set_speech(row.id, words, [note])
    assert [one.speech for one in await inbox.list_unfinished()] == ["Call me. At five."]
    assert [one.key for one in await outbox.list_recent()] == [note.key]
    await inbox.finish(row.id, [])
    await Retention(database).prune(now=row.received_at + REDELIVERY_DAYS * DAY + 10)
    assert await inbox.list_recent() == []


async def test_pruning_goes_on_until_all_is_gone_and_ids_are_never_used_again(
    database: Database,
) -> None:
    inbox = InboxStore(database)
    last = 0
    for number in range(520):
        row = await accept(inbox, new(number, kind="command"))
        await inbox.finish(row.id, [])
        last = row.id
    assert await Retention(database).prune(now=1e9) == 520 * 3 + 1  # and the conversation
    assert (await accept(inbox, new(1))).id == last + 1


async def test_no_position_is_given_again_after_the_last_rows_are_deleted(
    database: Database,
) -> None:
    inbox = InboxStore(database)
    for number in range(3):
        await inbox.finish((await accept(inbox, new(number))).id, [])
    # The conversation itself is kept longer.
    await Retention(database).prune(now=1010.0 + REDELIVERY_DAYS * DAY)
    assert await inbox.list_recent() == []
    assert (await accept(inbox, new(9))).seq == 4


WRITER = """
import sys
from pathlib import Path
import anyio
from store.config import StoreConfig
from store.conversations import ConversationKey
from store.database import Database
from store.inbox import InboxStore, NewInboxRow

KEY = ConversationKey(channel="telegram", workspace="B1", chat="42")

async def main():
    async with Database.open(StoreConfig(), Path(sys.argv[1])) as database:
        inbox = InboxStore(database)
        async def write(lane):
            for number in range(100000):
                event = f"{lane}-{number}"
                await inbox.accept(NewInboxRow(key=KEY, event_id=event, message_id=event, kind="command",
                                            body="{}", received_at=0.0), cap=1)
                print(event, flush=True)
        async with anyio.create_task_group() as group:
            for lane in range(8):
                group.start_soon(write, lane)

anyio.run(main)
"""


async def test_acknowledged_messages_survive_kill_9(tmp_path: Path) -> None:
    root = Path(__file__).parents[2]
    child = await anyio.open_process([sys.executable, "-c", WRITER, str(tmp_path)], cwd=root)
    async with child:
        assert child.stdout is not None
        output = b""
        while output.count(b"\n") < 400:
            output += await child.stdout.receive()
        child.kill()
        async for chunk in child.stdout:
            output += chunk
    acknowledged = set(output.decode().rpartition("\n")[0].split())
    async with Database.open(StoreConfig(), tmp_path) as database:
        rows = await InboxStore(database).list_unfinished()
    assert acknowledged <= {row.event_id for row in rows}
    assert [row.seq for row in rows] == list(range(1, len(rows) + 1))
