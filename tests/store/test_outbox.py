import json
from dataclasses import asdict, replace
from pathlib import Path

import pytest

from store.chat_owners import SharedOwners
from store.config import StoreConfig
from store.conversations import ConversationKey
from store.database import Database
from store.discarded_deliveries import DiscardedDeliveries
from store.errors import RowConflict, RowNotFound
from store.message_topics import MessageTopicStore
from store.outbox import DeliveryFilter, NewOutboxRow, OutboxRow, OutboxStore
from store.retention import Retention
from tests.eventually import eventually

HERE = ConversationKey(channel="slack", workspace="T1", chat="C1", topic="1.5")
THERE = replace(HERE, topic="2.5")
DAY = 86_400.0


async def add(outbox: OutboxStore, key: str, conversation: ConversationKey = HERE) -> OutboxRow:
    [row] = await outbox.enqueue(
        [NewOutboxRow(key=key, conversation=conversation, body=f"body of {key}")]
    )
    return row


async def test_a_key_is_enqueued_once(database: Database) -> None:
    outbox = OutboxStore(database)
    first = await add(outbox, "a")
    await outbox.mark_sending(first.id, now=5)
    again = await add(outbox, "a")
    assert (again.id, again.state, again.attempts) == (first.id, "sending", 1)


async def test_open_rows_come_in_order(database: Database) -> None:
    outbox = OutboxStore(database)
    rows = [await add(outbox, "a"), await add(outbox, "b", THERE), await add(outbox, "c")]
    closed = await add(outbox, "d")
    await outbox.mark_sending(closed.id, now=1)
    await outbox.mark_delivered(closed.id, "m1", now=1)
    assert await outbox.list_open() == rows
    assert await outbox.find("nothing") is None


async def test_waits_that_were_noted_in_the_future_begin_now(database: Database) -> None:
    outbox = OutboxStore(database)
    ahead, due, past, there = [
        await add(outbox, "ahead"),
        await add(outbox, "due"),
        await add(outbox, "past"),
        await add(outbox, "there", THERE),
    ]
    for row, noted_at, wait_s in (
        (ahead, 500.0, 60.0),
        (due, 500.0, -5.0),
        (past, 90.0, 60.0),
        (there, 500.0, 60.0),
    ):
        await outbox.reschedule(row.id, not_before=noted_at + wait_s, error="429", now=noted_at)
    await outbox.rebase_waits(HERE, now=100.0)
    found = [(row.key, row.not_before, row.updated_at) for row in await outbox.list_open()]
    assert found == [
        ("ahead", 160.0, 100.0),
        ("due", 0.0, 100.0),
        ("past", 150.0, 90.0),
        ("there", 560.0, 500.0),
    ]


async def test_the_rows_that_were_closed_last_are_listed(database: Database) -> None:
    outbox = OutboxStore(database)
    for key, closed_at in (("old", 10.0), ("first", 90.0), ("last", 100.0), ("future", 999.0)):
        row = await add(outbox, key)
        await outbox.mark_sending(row.id, now=closed_at)
        await outbox.mark_delivered(row.id, "m", now=closed_at)
    failed = await add(outbox, "failed")
    await outbox.mark_failed(failed.id, error="gone", now=95.0)
    await add(outbox, "open")

    async def keys(limit: int) -> list[str]:
        rows = await outbox.list_last_closed(now=200.0, limit=limit, within_s=15.0)
        return [row.key for row in rows]

    assert await keys(9) == ["failed", "future", "last", "first"]
    assert await keys(2) == ["failed", "future"]


async def test_rows_last_closed_in_chats_of_other_nodes_are_not_listed(
    url: str, tmp_path: Path
) -> None:
    config, there = StoreConfig(url=url), replace(HERE, chat="C2")
    async with Database.open(config, tmp_path / "one") as one:
        outbox, chats = OutboxStore(one), [HERE, there, replace(HERE, chat="nobody's")]
        for chat in chats:
            row = await add(outbox, chat.chat, chat)
            await outbox.mark_failed(row.id, error="gone", now=95.0)
        await outbox.owners.take([HERE])

        async def closed() -> set[str]:
            rows = await outbox.list_last_closed(now=100.0, limit=9, within_s=15.0)
            return {row.conversation.chat for row in rows}

        async with Database.open(config, tmp_path / "two") as two:
            await SharedOwners(two).take([there])
            assert await closed() == {"C1", "nobody's"}
        await eventually(closed, lambda chats: len(chats) == 3)


async def test_rows_that_are_due_later_hold_up_nothing_until_they_are_due(
    database: Database,
) -> None:
    outbox = OutboxStore(database)
    for key, not_before in (("later", 90.0), ("soon", 60.0), ("now", 0.0)):
        new = NewOutboxRow(key=key, conversation=HERE, body="{}", not_before=not_before)
        await outbox.enqueue([new])

    async def next_key(now: float) -> str | None:
        row = await outbox.next_open(HERE, now=now)
        return row.key if row else None

    assert [await next_key(now) for now in (50.0, 60.0, 100.0)] == ["now", "soon", "later"]
    first = await outbox.find("now")
    assert first is not None
    await outbox.mark_sending(first.id, now=50.0)
    await outbox.reschedule(first.id, not_before=70.0, error="429", now=50.0)
    assert await next_key(50.0) == "now"  # an attempted row keeps its order
    await outbox.mark_delivered(first.id, "m", now=50.0)
    assert await next_key(50.0) == "soon"
    assert await outbox.next_open(THERE, now=50.0) is None


async def test_a_row_takes_the_place_of_one_that_was_not_attempted(database: Database) -> None:
    outbox = OutboxStore(database)
    first, second = await add(outbox, "one more"), NewOutboxRow(
        key="two more", conversation=HERE, body="2", supersedes="one more"
    )  # fmt: skip
    await outbox.enqueue([second])
    assert [row.key for row in await outbox.list_open()] == ["two more"]
    assert not await outbox.mark_sending(first.id, now=5)
    taken = await outbox.find("two more")
    assert taken is not None
    await outbox.mark_sending(taken.id, now=5)
    third = NewOutboxRow(key="three more", conversation=HERE, body="3", supersedes="two more")
    await outbox.enqueue([third])
    assert [row.key for row in await outbox.list_open()] == ["two more", "three more"]


async def test_failed_attempts_are_kept_when_a_later_one_succeeds(database: Database) -> None:
    outbox = OutboxStore(database)
    row = await add(outbox, "a")
    await outbox.mark_sending(row.id, now=7)
    await outbox.reschedule(row.id, not_before=8, error="429 \N{SNOWMAN}", now=7.5)
    await outbox.reschedule(row.id, not_before=9, error="too early", now=8, has_failed=False)
    await outbox.mark_sending(row.id, now=9)
    await outbox.mark_delivered(row.id, "m", now=9.5)
    found = await outbox.get(row.id)
    assert found.error is None
    assert [json.loads(line) for line in found.failed_attempts.splitlines()] == [
        {"at": 7.5, "error": "429 \N{SNOWMAN}"}
    ]
    for number in range(100):
        await outbox.enqueue([NewOutboxRow(key="b", conversation=HERE, body="{}")])
        other = await outbox.find("b")
        assert other is not None
        await outbox.mark_sending(other.id, now=number)
        await outbox.mark_failed(other.id, error="x" * 100, now=number)
        await outbox.resend([other.id], now=number)
    kept = await outbox.find("b")
    assert kept is not None
    assert 4000 <= len(kept.failed_attempts) < 4200


async def test_an_attempt_is_noted_before_it_is_made(database: Database) -> None:
    outbox = OutboxStore(database)
    row = await add(outbox, "a")
    assert await outbox.mark_sending(row.id, now=7)
    await outbox.reschedule(row.id, not_before=99, error="429", now=8)
    waiting = await outbox.get(row.id)
    assert (waiting.state, waiting.attempts, waiting.not_before, waiting.error) == (
        "pending",
        1,
        99,
        "429",
    )
    assert await outbox.mark_sending(row.id, now=99)
    await outbox.mark_delivered(row.id, "m7", now=100)
    done = await outbox.get(row.id)
    assert (done.state, done.platform_id, done.attempts, done.error) == ("delivered", "m7", 2, None)
    assert not await outbox.mark_sending(row.id, now=101)


async def test_a_closed_row_stays_as_it_was_closed(database: Database) -> None:
    outbox = OutboxStore(database)
    row = await add(outbox, "a")
    await outbox.mark_delivered(row.id, "m1", now=1, uncertain=True)
    await outbox.mark_failed(row.id, error="late", now=2)
    await outbox.reschedule(row.id, not_before=5, error="late", now=3)
    assert (await outbox.get(row.id)).state == "uncertain"


async def test_only_failed_and_uncertain_rows_can_be_resent(database: Database) -> None:
    outbox = OutboxStore(database)
    row = await add(outbox, "a")
    assert await outbox.resend([row.id], now=1) == []
    await outbox.mark_sending(row.id, now=1)
    await outbox.mark_failed(row.id, error="kicked", now=1)
    (again,) = await outbox.resend([row.id, 999], now=2)
    assert (again.state, again.attempts, again.error) == ("pending", 0, None)


async def test_a_row_that_is_being_sent_cannot_be_discarded(database: Database) -> None:
    outbox, discarded = OutboxStore(database), DiscardedDeliveries(database)
    row = await add(outbox, "a")
    await outbox.mark_sending(row.id, now=1)
    with pytest.raises(RowConflict):
        await outbox.delete(row.id)
    assert await discarded.discard([row.id], batch="b", now=2) == []
    await outbox.mark_failed(row.id, error="kicked", now=1)
    await outbox.delete(row.id)
    with pytest.raises(RowNotFound):
        await outbox.get(row.id)
    with pytest.raises(RowNotFound):
        await outbox.delete(row.id)


async def test_discarded_rows_are_listed_and_come_back_as_they_were(database: Database) -> None:
    outbox, discarded = OutboxStore(database, now=lambda: 1.0), DiscardedDeliveries(database)
    failed, pending, kept = [await add(outbox, key) for key in "abc"]
    await outbox.mark_sending(failed.id, now=5)
    await outbox.mark_failed(failed.id, error="100%_ kicked!", now=6, uncertain=True)
    before = {row.id: row for row in await outbox.list_recent()}
    gone = await discarded.discard([failed.id, pending.id, 999], batch="b", now=7)
    assert [row.key for row in gone] == ["a", "b"]
    assert [row.key for row in await outbox.list_recent()] == ["c"]
    listed = await outbox.list_recent(states=["discarded", "pending"])
    assert [(row.key, row.state, row.discarded_at) for row in listed] == [
        ("c", "pending", None), ("b", "pending", 7), ("a", "uncertain", 7),
    ]  # fmt: skip
    assert await outbox.count(DeliveryFilter(states=["discarded"])) == 2
    assert await discarded.find_batch("b", limit=1) == [failed.id]
    restored = await discarded.restore(await discarded.find_batch("b", limit=9))
    assert {row.id: row for row in restored} == {
        row_id: row for row_id, row in before.items() if row_id != kept.id
    }
    assert await outbox.list_recent(states=["discarded"]) == []
    assert await discarded.restore([failed.id]) == []


async def test_a_discarded_row_is_not_restored_over_another_with_its_key(
    database: Database,
) -> None:
    outbox, discarded = OutboxStore(database, now=lambda: 1.0), DiscardedDeliveries(database)
    row = await add(outbox, "a")
    await discarded.discard([row.id], batch="b", now=1)
    again = await add(outbox, "a")
    assert await discarded.restore([row.id]) == []
    assert [one.id for one in await outbox.list_recent()] == [again.id]


async def test_discarded_rows_are_kept_for_seven_days(database: Database) -> None:
    outbox, discarded = OutboxStore(database, now=lambda: 1.0), DiscardedDeliveries(database)
    row = await add(outbox, "a")
    await discarded.discard([row.id], batch="b", now=100)
    await Retention(database).prune(now=100 + 7 * DAY)
    assert await outbox.count(DeliveryFilter(states=["discarded"])) == 1
    await Retention(database).prune(now=101 + 7 * DAY)
    assert await outbox.count(DeliveryFilter(states=["discarded"])) == 0


@pytest.mark.parametrize(
    ("wanted", "keys"),
    [
        (DeliveryFilter(error="KICKED!"), "a"),
        (DeliveryFilter(error="0%_"), "a"),
        (DeliveryFilter(error="%k"), ""),
        (DeliveryFilter(states=["failed"], error="k"), "ab"),
        (DeliveryFilter(channel="other"), ""),
        (DeliveryFilter(chat=HERE.chat, channel=HERE.channel), "abc"),
        (DeliveryFilter(chat="elsewhere"), ""),
    ],
)
async def test_rows_are_found_by_place_and_error(
    database: Database, wanted: DeliveryFilter, keys: str
) -> None:
    outbox = OutboxStore(database)
    rows = [await add(outbox, key) for key in "abc"]
    await outbox.mark_failed(rows[0].id, error="100%_ kicked!", now=1)
    await outbox.mark_failed(rows[1].id, error="knocked out", now=1)
    found = await outbox.list_recent(**asdict(wanted))
    assert "".join(sorted(row.key for row in found)) == keys
    assert await outbox.count(wanted) == len(keys)


async def test_the_listing_is_newest_first_and_can_be_filtered(database: Database) -> None:
    outbox = OutboxStore(database)
    rows = [await add(outbox, key) for key in "abc"]
    await outbox.mark_failed(rows[1].id, error="x", now=1)
    assert [row.key for row in await outbox.list_recent(limit=2)] == ["c", "b"]
    assert [row.key for row in await outbox.list_recent(states=["failed", "uncertain"])] == ["b"]


async def test_delivered_rows_go_after_seven_days_and_others_stay(database: Database) -> None:
    outbox = OutboxStore(database)
    delivered, failed, _ = [await add(outbox, key) for key in "abc"]
    await outbox.mark_delivered(delivered.id, "m", now=100)
    await outbox.mark_failed(failed.id, error="x", now=100)
    assert await Retention(database).prune(now=100 + 7 * DAY) == 0
    assert await Retention(database).prune(now=101 + 7 * DAY) == 1
    assert [row.key for row in await outbox.list_recent()] == ["c", "b"]


async def test_a_message_remembers_its_topic_within_its_chat(database: Database) -> None:
    origins = MessageTopicStore(database)
    await origins.set_topic(HERE, "m1")
    assert await origins.find_topic(replace(HERE, topic=""), "m1") == "1.5"
    assert await origins.find_topic(replace(HERE, chat="C2"), "m1") is None
    await origins.set_topic(THERE, "m1")
    assert await origins.find_topic(HERE, "m1") == "2.5"
