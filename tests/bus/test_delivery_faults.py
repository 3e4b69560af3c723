"""The delivery worker when the store, an adapter or a row fails: nothing is lost, sent twice or held up."""

from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import anyio
import httpx
import pytest
from typing_extensions import override

from bus.errors import DeliveryError, MessageTooLong
from bus.messages import Button, MessageId, OutboundText, ReplyTarget, encode_outbound
from bus.outbound.retry_policy import RetryTimings
from bus.outbound.worker import DeliveryWorker
from bus.platform import Capabilities, WorkShown
from bus.retry import Backoff
from bus.runs.remote_files import RemoteFiles
from bus.tasks import run_beside
from store.chat_migrations import ChatMigrationStore
from store.config import StoreConfig
from store.conversations import ChatMigration, ConversationKey
from store.database import Database
from store.errors import StoreUnavailable
from store.message_topics import MessageTopicStore
from store.outbox import NewOutboxRow, OutboxRow, OutboxStore
from tests.eventually import eventually
from tests.fakes.clock import OffsetClock
from tests.fakes.database import FailingDatabase
from tests.fakes.platform import ButtonPlatform, CardPlatform, FakePlatform, FindingPlatform

KEY = ConversationKey(channel="fake", workspace="w", chat="c", topic="t")
OTHER = replace(KEY, chat="d")
TIMINGS = RetryTimings(
    backoff=Backoff(first_s=0.01, cap_s=0.02), lookup_after_s=0.02, repeat_after_s=0.05
)
UNKNOWN = DeliveryError("timeout", retryable=True, ambiguous=True)
RATE_LIMITED = DeliveryError("429", retryable=True, retry_after_s=0.01)


@asynccontextmanager
async def delivering(
    database: Database, platform: FakePlatform, clock: OffsetClock | None = None
) -> AsyncIterator[DeliveryWorker]:
    """Run a worker."""
    async with httpx.AsyncClient(base_url="http://127.0.0.1:9/api/") as gateway:
        worker = DeliveryWorker(
            adapters={platform.name: platform},
            outbox=OutboxStore(database),
            files=RemoteFiles(gateway),
            now=clock or OffsetClock(),
            timings=TIMINGS,
        )
        async with anyio.create_task_group() as tasks:
            await tasks.start(worker.run)
            yield worker
            tasks.cancel_scope.cancel()


def text(
    key: str, markdown: str = "hello", *, conversation: ConversationKey = KEY, replaces: str = ""
) -> NewOutboxRow:
    body = OutboundText(
        channel=conversation.channel,
        reply_target=ReplyTarget(chat=conversation.chat),
        markdown=markdown,
        replaces=replaces,
    )
    return NewOutboxRow(key=key, conversation=conversation, body=encode_outbound(body))


async def closed(worker: DeliveryWorker, key: str) -> OutboxRow:
    """Wait until a row is closed."""
    with anyio.fail_after(20):
        while True:
            try:
                row = await worker.wait_closed(key)
            except StoreUnavailable:
                await anyio.sleep(0.01)
            else:
                assert row is not None
                return row


# Store errors


@pytest.mark.parametrize("number", [1, 2])
async def test_a_failed_write_delays_a_row_and_repeats_nothing(tmp_path: Path, number: int) -> None:
    """Write 1 is the mark before the send; write 2 is the record after it."""
    platform = FakePlatform()
    async with (
        FailingDatabase.opened(tmp_path) as database,
        delivering(database, platform) as worker,
    ):
        await OutboxStore(database).enqueue([text("a"), text("b", "next")])
        database.fail_write(number)
        worker.notify(KEY)
        assert (await closed(worker, "a")).state == "delivered"
        assert (await closed(worker, "b")).state == "delivered"
        assert database.failures == 1
    assert platform.texts == ["hello", "next"]


async def test_a_failed_read_delays_a_lane(tmp_path: Path) -> None:
    platform = FakePlatform()
    async with (
        FailingDatabase.opened(tmp_path) as database,
        delivering(database, platform) as worker,
    ):
        await OutboxStore(database).enqueue([text("a")])
        database.fail_read(1)
        worker.notify(KEY)
        await platform.until(1)
        assert database.failures == 1


async def test_a_store_that_is_down_at_the_start_is_waited_for(tmp_path: Path) -> None:
    platform = FakePlatform()
    async with FailingDatabase.opened(tmp_path) as database:
        await OutboxStore(database).enqueue([text("a")])
        database.fail_read(1)
        async with delivering(database, platform):
            await platform.until(1)
        assert database.failures == 1


async def test_a_send_during_an_outage_is_recorded_after_it(tmp_path: Path) -> None:
    platform = FakePlatform()
    async with (
        FailingDatabase.opened(tmp_path) as database,
        delivering(database, platform) as worker,
    ):
        platform.when_sent = lambda: setattr(database, "is_down", True)
        await worker.enqueue(KEY, [text("a"), text("b", "next")])
        await platform.until(1)
        await eventually(lambda: database.failures >= 3)
        assert platform.calls == ["send"]
        platform.when_sent, database.is_down = None, False
        assert (await closed(worker, "b")).state == "delivered"
        row = await closed(worker, "a")
        assert (row.state, row.platform_id, row.attempts) == ("delivered", "m1", 1)
    assert platform.texts == ["hello", "next"]


async def test_a_stop_while_the_store_is_down_leaves_the_outcome_unknown(tmp_path: Path) -> None:
    platform = FindingPlatform()
    async with FailingDatabase.opened(tmp_path) as database:
        async with delivering(database, platform) as worker:
            platform.when_sent = lambda: setattr(database, "is_down", True)
            await worker.enqueue(KEY, [text("a")])
            await platform.until(1)
        platform.when_sent, database.is_down = None, False
        async with delivering(database, platform) as worker:
            assert (await closed(worker, "a")).state == "delivered"
    assert platform.texts == ["hello"]


async def test_a_full_disk_refuses_new_rows_and_everything_goes_on_when_there_is_room(
    tmp_path: Path,
) -> None:
    platform = FakePlatform()
    platform.fail("send", DeliveryError("503", retryable=True), times=2)
    async with (
        Database.open(StoreConfig(), tmp_path) as database,
        delivering(database, platform) as worker,
    ):
        pages = await database.transaction(lambda tx: tx.run("PRAGMA page_count")[0]["page_count"])
        await database.transaction(lambda tx: tx.run(f"PRAGMA max_page_count = {pages}"))
        accepted: list[str] = []

        async def fill() -> None:
            for number in range(100):
                markdown = f"{number} {'x' * 700}"
                await worker.enqueue(KEY, [text(f"k{number}", markdown)])
                accepted.append(markdown)

        with pytest.raises(StoreUnavailable, match="full"):
            await fill()
        with pytest.raises(StoreUnavailable, match="full"):
            await worker.enqueue(KEY, [text("large", "y" * 10_000)])
        await database.transaction(lambda tx: tx.run("PRAGMA max_page_count = 100000"))
        await worker.enqueue(KEY, [text("last", "room again")])
        assert (await closed(worker, "last")).state == "delivered"
    assert platform.texts == [*accepted, "room again"]


# Rows that cannot be sent


@pytest.mark.parametrize("body", ["", "{", '{"kind": "poem"}'])
async def test_an_undecodable_row_fails_and_the_others_are_sent(tmp_path: Path, body: str) -> None:
    platform = FakePlatform()
    async with Database.open(StoreConfig(), tmp_path) as database:
        bad = NewOutboxRow(key="bad", conversation=KEY, body=body)
        await OutboxStore(database).enqueue([bad, text("a"), text("b", conversation=OTHER)])
        async with delivering(database, platform) as worker:
            assert (await closed(worker, "a")).state == "delivered"
            assert (await closed(worker, "b")).state == "delivered"
            row = await closed(worker, "bad")
    assert (row.state, row.error) == ("failed", "The row cannot be decoded.")


async def test_a_bug_of_an_adapter_outside_a_send_stops_no_other_channel(tmp_path: Path) -> None:
    class BrokenPlatform(FakePlatform):
        reads = 0

        @property
        @override
        def capabilities(self) -> Capabilities:
            self.reads += 1
            if self.reads == 1:
                raise ZeroDivisionError("a bug")
            return super().capabilities

    platform = BrokenPlatform()
    async with (
        Database.open(StoreConfig(), tmp_path) as database,
        delivering(database, platform) as worker,
    ):
        await worker.enqueue(KEY, [text("a"), text("b", "next")])
        assert (await closed(worker, "a")).state == "uncertain"
        assert (await closed(worker, "b")).state == "delivered"


# Attempts of unknown outcome


@pytest.mark.parametrize(
    "later", [RATE_LIMITED, DeliveryError("503", retryable=True), DeliveryError("archived")]
)
async def test_doubt_survives_a_later_refusal(tmp_path: Path, later: DeliveryError) -> None:
    platform = FakePlatform()
    platform.fail("send", UNKNOWN, after_effect=True)
    platform.fail("send", later)
    async with (
        Database.open(StoreConfig(), tmp_path) as database,
        delivering(database, platform) as worker,
    ):
        await worker.enqueue(KEY, [text("a")])
        row = await closed(worker, "a")
    assert (row.state, row.uncertain_attempts) == ("uncertain", 1)


async def test_doubt_is_looked_up_again_after_a_refusal(tmp_path: Path) -> None:
    platform = FindingPlatform()
    platform.fail("send", UNKNOWN)
    platform.fail("send", RATE_LIMITED)
    async with (
        Database.open(StoreConfig(), tmp_path) as database,
        delivering(database, platform) as worker,
    ):
        await worker.enqueue(KEY, [text("a")])
        row = await closed(worker, "a")
    assert (row.state, platform.texts) == ("delivered", ["hello"])


class ForgetfulPlatform(CardPlatform):
    """Drops repeated sends only within `idempotent_send_s` of the first, as Feishu does."""

    def __init__(self, clock: OffsetClock) -> None:
        super().__init__("fake")
        self._clock = clock
        self._first: dict[str, float] = {}

    @override
    async def send(self, place: ReplyTarget, markdown: str, *, key: str) -> MessageId:
        first = self._first.setdefault(key, self._clock())
        is_forgotten = self._clock() - first >= self.capabilities.idempotent_send_s
        return await super().send(place, markdown, key=f"{key}!" if is_forgotten else key)


async def test_the_idempotency_window_counts_from_the_first_attempt(tmp_path: Path) -> None:
    """Two attempts of unknown outcome are 40 minutes apart. The third, after 80 minutes, cannot rely on the key."""
    clock = OffsetClock()
    platform = ForgetfulPlatform(clock)
    platform.fail("send", UNKNOWN, times=3, after_effect=True)
    async with (
        Database.open(StoreConfig(), tmp_path) as database,
        delivering(database, platform, clock) as worker,
    ):
        outbox = OutboxStore(database)
        await worker.enqueue(KEY, [text("a")])
        for attempt in (1, 2):
            await until_uncertain(outbox, attempt)
            clock.ahead += 2400.0
            worker.notify(KEY)
        row = await closed(worker, "a")
    assert row.state == "uncertain"
    assert platform.texts == ["hello"]


async def until_uncertain(outbox: OutboxStore, attempts: int) -> None:
    await eventually(
        lambda: outbox.find("a"),
        lambda row: row is not None and row.uncertain_attempts >= attempts,
        every_s=0.001,
    )


async def test_an_edit_of_unknown_outcome_is_repeated_with_backoff(tmp_path: Path) -> None:
    platform = ButtonPlatform("fake")
    platform.fail("edit", UNKNOWN, times=3)
    async with (
        Database.open(StoreConfig(), tmp_path) as database,
        delivering(database, platform) as worker,
    ):
        await worker.enqueue(KEY, [text("a"), text("b", "edited", replaces="a")])
        row = await closed(worker, "b")
    assert (row.state, row.attempts, row.uncertain_attempts) == ("delivered", 4, 0)
    assert platform.texts == ["edited"]


async def test_an_edit_of_unknown_outcome_is_given_up_after_a_day(tmp_path: Path) -> None:
    clock = OffsetClock()
    platform = ButtonPlatform("fake")
    platform.fail("edit", UNKNOWN, times=10_000)
    async with (
        Database.open(StoreConfig(), tmp_path) as database,
        delivering(database, platform, clock) as worker,
    ):
        await worker.enqueue(KEY, [text("a"), text("b", "edited", replaces="a")])
        await closed(worker, "a")
        await eventually(lambda: platform.calls.count("edit") >= 3)
        clock.ahead += 25 * 3600.0
        assert (await closed(worker, "b")).state == "failed"


# Rows that need several messages


class ShortMessagePlatform(FindingPlatform):
    """Discovers while sending that a text needs several messages."""

    @override
    async def send(self, place: ReplyTarget, markdown: str, *, key: str) -> MessageId:
        if " " in markdown:
            raise MessageTooLong(markdown.split(" "))
        return await super().send(place, markdown, key=key)


@pytest.mark.parametrize("error", [RATE_LIMITED, UNKNOWN, OSError("a bug")])
async def test_each_message_of_a_row_is_sent_once_even_if_the_next_fails(
    tmp_path: Path, error: Exception
) -> None:
    platform = ShortMessagePlatform()

    def fail_once() -> None:
        if len(platform.shown) == 1:
            platform.fail("send", error)

    platform.when_sent = fail_once
    async with (
        Database.open(StoreConfig(), tmp_path) as database,
        delivering(database, platform) as worker,
    ):
        await worker.enqueue(KEY, [text("a", "one two three"), text("b", "next")])
        assert (await closed(worker, "b")).state == "delivered"
        assert (await closed(worker, "a")).state == "delivered"
        topics = MessageTopicStore(database)
        assert [await topics.find_topic(KEY, f"m{number}") for number in (1, 2, 3)] == ["t"] * 3
    assert platform.texts == ["one", "two", "three", "next"]
    assert [message.key for message in platform.shown] == ["a", "a+1", "a+2", "b"]


class BlindPlatform(ShortMessagePlatform):
    """A platform that cannot look up sent messages."""

    find_message = None  # type: ignore[assignment]


@pytest.mark.parametrize("last", [None, DeliveryError("refused")])
async def test_doubt_about_one_message_of_a_row_survives_the_next(
    tmp_path: Path, last: DeliveryError | None
) -> None:
    platform = BlindPlatform()
    platform.fail("send", UNKNOWN, after_effect=True)

    def refuse_last() -> None:
        if last is not None and len(platform.shown) == 2:
            platform.fail("send", last)

    platform.when_sent = refuse_last
    async with (
        Database.open(StoreConfig(), tmp_path) as database,
        delivering(database, platform) as worker,
    ):
        await worker.enqueue(KEY, [text("a", "one two")])
        assert (await closed(worker, "a")).state == "uncertain"
    assert platform.texts[:2] == ["one", "one"]


# Records, resends, migrations


async def test_the_topic_of_a_message_is_recorded_with_its_delivery(tmp_path: Path) -> None:
    platform = FakePlatform()
    async with FailingDatabase.opened(tmp_path) as database:
        async with delivering(database, platform) as worker:
            await worker.enqueue(KEY, [text("a")])
            await closed(worker, "a")
        assert await MessageTopicStore(database).find_topic(KEY, "m1") == "t"


async def test_a_resent_row_does_not_wait_for_the_time_of_the_one_behind_it(tmp_path: Path) -> None:
    platform = FakePlatform()
    platform.fail("send", DeliveryError("no"))
    platform.fail("send", DeliveryError("429", retryable=True, retry_after_s=0.0))
    async with (
        Database.open(StoreConfig(), tmp_path) as database,
        delivering(database, platform) as worker,
    ):
        await worker.enqueue(KEY, [text("a")])
        first = await closed(worker, "a")
        await worker.wait_idle()  # no task searches for another row
        outbox = OutboxStore(database)
        [waiting] = await outbox.enqueue([text("b", "later")])
        await outbox.reschedule(waiting.id, not_before=9e9, error="429", now=1.0)
        worker.notify(KEY)
        await anyio.sleep(0.05)  # the delivery task sleeps
        await worker.resend([first.id])
        assert (await closed(worker, "a")).state == "delivered"
        await outbox.delete(waiting.id)
        worker.notify_gone(waiting)
        with anyio.fail_after(20):
            await worker.wait_idle()
    assert platform.texts == ["hello"]


async def test_rows_of_a_migrated_flat_chat_are_sent(tmp_path: Path) -> None:
    old, new = replace(KEY, chat="-4", topic=""), replace(KEY, chat="-100", topic="")
    platform = FakePlatform()
    async with (
        Database.open(StoreConfig(), tmp_path) as database,
        delivering(database, platform) as worker,
    ):
        outbox = OutboxStore(database)
        rows = [text("old", "1", conversation=old), text("new", "2", conversation=new)]
        await outbox.enqueue(rows)
        migration = ChatMigration(channel="fake", workspace="w", old_chat="-4", new_chat="-100")
        assert await ChatMigrationStore(database).migrate(migration)
        await worker.migrate_chat(migration)
        assert (await closed(worker, "old")).state == "delivered"
        assert (await closed(worker, "new")).state == "delivered"
        assert await outbox.list_open() == []


async def test_two_waiters_for_one_row_are_both_woken(tmp_path: Path) -> None:
    platform = FakePlatform()
    platform.fail("send", DeliveryError("503", retryable=True), times=3)
    states: list[str] = []
    async with (
        Database.open(StoreConfig(), tmp_path) as database,
        delivering(database, platform) as worker,
    ):

        async def wait() -> None:
            states.append((await closed(worker, "a")).state)

        await worker.enqueue(KEY, [text("a")])
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(wait)
            tasks.start_soon(wait)
    assert states == ["delivered", "delivered"]


# Decorations


class FailingIndicatorsPlatform(CardPlatform):
    """Fails every decoration with an exception that no adapter should raise."""

    has_failed = False

    @override
    async def update_streaming(
        self,
        place: ReplyTarget,
        message: MessageId,
        markdown: str,
        *,
        final: bool,
        buttons: Sequence[Button] = (),
    ) -> None:
        raise OSError("a bug")

    @override
    async def show_working(self, place: ReplyTarget) -> None:
        self.has_failed = True
        raise ExceptionGroup("bugs", [OSError("a bug")])

    @override
    async def show_finished(
        self, place: ReplyTarget, *, ok: bool, was_shown: WorkShown = WorkShown.UNKNOWN
    ) -> None:
        raise OSError("a bug")

    @override
    async def show_refused(self, place: ReplyTarget) -> None:
        raise OSError("a bug")


def working(worker: DeliveryWorker, place: ReplyTarget) -> Callable[[], Awaitable[None]]:
    show = worker.show_working("fake", place)
    assert show is not None
    return show


async def test_failing_indicators_raise_nothing(tmp_path: Path) -> None:
    platform = FailingIndicatorsPlatform("fake")
    async with (
        Database.open(StoreConfig(), tmp_path) as database,
        delivering(database, platform) as worker,
    ):
        place = ReplyTarget(chat="c")
        async with run_beside(working(worker, place)):
            await eventually(lambda: platform.has_failed)
        await worker.show_finished(KEY, place, ok=True)
        await worker.show_finished(replace(KEY, channel="gone"), place, ok=True)
        await worker.show_refused("fake", place)
        await worker.show_refused("gone", place)
