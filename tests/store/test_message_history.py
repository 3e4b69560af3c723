"""Looking up earlier messages: rows by ID, later rows, earlier questions."""

from store.database import Database
from store.inbox import InboxStore
from store.message_history import MessageHistoryStore
from store.outbox import NewOutboxRow
from tests.store.test_inbox import KEY, accept, new


async def test_a_row_is_found_by_its_id_with_what_it_asked(database: Database) -> None:
    inbox, history = InboxStore(database), MessageHistoryStore(database)
    row = await accept(inbox, new(1))
    assert await history.find(row.id + 1) is None
    await inbox.finish(row.id, [], question='{"options": ["a"]}')
    found = await history.find(row.id)
    assert found is not None
    assert (found.state, found.question) == ("done", '{"options": ["a"]}')


async def test_rows_after_a_row_are_messages_of_its_conversation(database: Database) -> None:
    inbox, history = InboxStore(database), MessageHistoryStore(database)
    first = await accept(inbox, new(1))
    await accept(inbox, new(2, kind="command"))
    third = await accept(inbox, new(3))
    assert [row.id for row in await history.list_after(first)] == [third.id]
    assert await history.list_after(third) == []


async def test_the_last_question_before_a_row_is_found(database: Database) -> None:
    inbox, history = InboxStore(database), MessageHistoryStore(database)
    first, second, third = [await accept(inbox, new(number)) for number in (1, 2, 3)]
    await inbox.finish(second.id, [], question="{}")
    assert await history.find_question(first) is None
    assert await history.find_question(second) is None
    found = await history.find_question(third)
    assert found is not None
    assert found.id == second.id


async def test_the_last_words_of_an_answer(database: Database) -> None:
    inbox, history = InboxStore(database), MessageHistoryStore(database)
    row = await accept(inbox, new(1))
    assert await history.find_last_text(row) is None
    rows = [NewOutboxRow(key=f"{row.id}:reply:{n}", conversation=KEY, body="{}") for n in range(3)]
    file = NewOutboxRow(key=f"{row.id}:file:0", conversation=KEY, body="{}")
    await inbox.finish(row.id, [*rows, file])
    found = await history.find_last_text(row)
    assert found is not None
    assert found.key == f"{row.id}:reply:2"
