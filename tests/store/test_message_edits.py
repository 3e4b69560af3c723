"""Messages that change after they were accepted, and rows that are injected into other messages' runs."""

from dataclasses import replace

from store.database import Database
from store.inbox import DuplicateMessage, InboxStore
from store.message_history import MessageHistoryStore, ReceivedEvent
from store.outbox import NewOutboxRow, OutboxStore
from tests.store.test_inbox import KEY, accept, new


def event(name: str) -> ReceivedEvent:
    return ReceivedEvent(key=KEY, event_id=name, at=1.0)


async def test_a_message_is_found_in_its_chat_whatever_the_topic(database: Database) -> None:
    inbox, revisions = InboxStore(database), MessageHistoryStore(database)
    row = await accept(inbox, replace(new(1), message_id="m"))
    for key in (KEY, replace(KEY, topic="another")):
        found = await revisions.find_by_message(key, "m")
        assert found is not None
        assert (found.id, found.key) == (row.id, KEY)
    for key in (replace(KEY, chat="other"), replace(KEY, workspace="other")):
        assert await revisions.find_by_message(key, "m") is None
    await accept(inbox, replace(new(2), message_id=""))
    assert await revisions.find_by_message(KEY, "") is None
    by_event = await revisions.find_by_event(row, row.event_id)
    assert by_event is not None
    assert by_event.id == row.id
    assert await revisions.find_by_event(row, "unheard of") is None


async def test_a_row_is_revised_once_an_event_also_when_it_is_done(database: Database) -> None:
    inbox, revisions = InboxStore(database), MessageHistoryStore(database)
    row = await accept(inbox, replace(new(1), message_id="m"))
    await inbox.mark_running(row.id, thread_id="t")
    assert await revisions.update_body(row.id, "first", event("deleted"))
    [running] = await inbox.list_unfinished()
    assert (running.body, running.starts) == ("first", 1)
    assert await revisions.update_body(row.id, "second", event("edit"), reset_starts=True)
    assert not await revisions.update_body(row.id, "third", event("edit"))
    [running] = await inbox.list_unfinished()
    assert (running.body, running.starts, running.state) == ("second", 0, "running")
    await inbox.finish(row.id, [])
    assert await revisions.update_body(row.id, "fourth", event("another edit"))
    found = await revisions.find_by_message(KEY, "m")
    assert found is not None
    assert (found.body, found.state) == ("fourth", "done")
    assert await inbox.accept(replace(new(2), event_id="edit"), cap=9) == DuplicateMessage()


async def test_rows_after_a_row_include_commands(database: Database) -> None:
    inbox, revisions = InboxStore(database), MessageHistoryStore(database)
    first, second, third = [
        await accept(inbox, new(number, kind=kind))
        for number, kind in ((1, "chat"), (2, "command"), (3, "chat"))
    ]
    assert [row.id for row in await revisions.list_after(first, limit=9, commands=True)] == [
        second.id,
        third.id,
    ]
    assert [row.id for row in await revisions.list_after(first, limit=1, commands=True)] == [
        second.id
    ]


async def test_a_waiting_row_is_injected_into_a_run_and_starts_without_it(
    database: Database,
) -> None:
    inbox, revisions = InboxStore(database), MessageHistoryStore(database)
    row = await accept(inbox, new(1))
    assert await revisions.assign_run(row.id, thread_id="t", run_id="another's")
    [waiting] = await inbox.list_unfinished()
    assert (waiting.state, waiting.thread_id, waiting.run_id) == ("new", "t", "another's")
    assert await inbox.mark_running(row.id, thread_id="t")
    [begun] = await inbox.list_unfinished()
    assert (begun.starts, begun.run_id) == (1, None)
    assert not await revisions.assign_run(row.id, thread_id="t", run_id="r")
    await inbox.set_run(row.id, "own")
    await inbox.mark_running(row.id, thread_id="t")
    [again] = await inbox.list_unfinished()
    assert (again.starts, again.run_id) == (2, "own")


async def test_rows_that_one_turn_answered_end_with_it(database: Database) -> None:
    inbox = InboxStore(database)
    first, second, third = [await accept(inbox, new(number)) for number in (1, 2, 3)]
    await inbox.mark_running(first.id, thread_id="t")
    await inbox.set_run(first.id, "again")
    await inbox.set_run(second.id, "before the process ended")
    assert await inbox.finish(first.id, [], answered_ids=[second.id])
    assert [row.id for row in await inbox.list_unfinished()] == [third.id]
    assert [row.run_id for row in await inbox.list_recent()] == [None, "again", "again"]
    assert not await inbox.finish(first.id, [], answered_ids=[third.id])
    assert [row.id for row in await inbox.list_unfinished()] == [third.id]


async def test_the_transaction_that_finishes_a_row_makes_offers_from_the_body_as_it_is_then(
    database: Database,
) -> None:
    inbox, revisions = InboxStore(database), MessageHistoryStore(database)
    own, other, finished = [
        await accept(inbox, replace(new(number), message_id=f"m{number}")) for number in (1, 2, 3)
    ]
    await inbox.finish(finished.id, [])
    assert await revisions.update_body(own.id, "edited", event("e1"), offers=[offer("too early")])
    seen: dict[int, str] = {}

    def offers(row_id: int, body: str) -> list[NewOutboxRow]:
        seen[row_id] = body
        return [offer(f"{row_id}")]

    answered = [other.id, finished.id]
    assert await inbox.finish(own.id, [offer("answer")], answered_ids=answered, offers=offers)
    assert seen == {own.id: "edited", other.id: other.body}
    assert not await inbox.finish(own.id, [offer("again")], offers=offers)
    assert await revisions.update_body(own.id, "later", event("e2"), offers=[offer("after it")])
    keys = [row.key for row in await OutboxStore(database).list_open()]
    assert sorted(keys) == sorted(["answer", f"{own.id}", f"{other.id}", "after it"])


def offer(key: str) -> NewOutboxRow:
    return NewOutboxRow(key=key, conversation=KEY, body="{}")


async def test_rows_are_joined_to_one_that_is_not_answered_yet(database: Database) -> None:
    inbox, revisions = InboxStore(database), MessageHistoryStore(database)
    first, second, third, fourth = [await accept(inbox, new(number)) for number in range(1, 5)]
    await inbox.mark_running(first.id, thread_id="t")
    assert await revisions.join(first.id, "all", {second.id: "b", third.id: "c"})
    assert [(row.id, row.body) for row in await inbox.list_unfinished()] == [
        (first.id, "all"),
        (fourth.id, fourth.body),
    ]
    for row, body in ((second, "b"), (third, "c")):
        found = await revisions.find(row.id)
        assert found is not None
        assert (found.body, found.state) == (body, "done")
    await inbox.finish(first.id, [])
    assert not await revisions.join(first.id, "more", {fourth.id: "d"})
    [left] = await inbox.list_unfinished()
    assert (left.id, left.body, left.state) == (fourth.id, fourth.body, "new")
