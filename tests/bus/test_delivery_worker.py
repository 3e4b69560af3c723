"""The delivery worker with platforms that refuse, disconnect and forget."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from itertools import count
from pathlib import Path

import anyio
import httpx
import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer
from typing_extensions import override

from bus.errors import DeliveryError
from bus.locales.en import ENGLISH
from bus.messages import MessageId, OutboundFile, OutboundText, ReplyTarget, encode_outbound
from bus.outbound.delivery_attempts import SEND_DEADLINE_S
from bus.outbound.retry_policy import RetryTimings
from bus.outbound.worker import DeliveryWorker
from bus.retry import Backoff
from bus.runs.remote_files import RemoteFiles
from store.config import StoreConfig
from store.conversations import ConversationKey
from store.database import Database
from store.outbox import (
    NewOutboxRow,
    OutboxRow,
    OutboxStore,
)
from tests.bus.test_full_disk import HeldSendPlatform
from tests.eventually import eventually
from tests.fakes.clock import OffsetClock
from tests.fakes.disk import full_disk
from tests.fakes.migrated import place_database
from tests.fakes.platform import CardPlatform, FakePlatform, FindingPlatform

KEY = ConversationKey(channel="fake", workspace="w", chat="c", topic="t")
PLACE = ReplyTarget(chat="c")
QUICK = Backoff(first_s=0.01, cap_s=0.02)
LARGE_BYTES = 8_000_000
"""Larger than any file of the database."""

FAST = RetryTimings(backoff=QUICK, lookup_after_s=0.02, repeat_after_s=0.05)


@asynccontextmanager
async def pump(
    platform: FakePlatform,
    home: Path,
    clock: OffsetClock | None = None,
    gateway_url: str = "http://127.0.0.1:9",
    timings: RetryTimings | None = None,
) -> AsyncIterator[DeliveryWorker]:
    async with (
        Database.open(StoreConfig(), place_database(home)) as database,
        httpx.AsyncClient(base_url=f"{gateway_url.rstrip('/')}/api/") as gateway,
    ):
        clock = clock or OffsetClock()
        delivery = DeliveryWorker(
            adapters={platform.name: platform},
            outbox=OutboxStore(database, now=clock),
            files=RemoteFiles(gateway),
            now=clock,
            timings=timings or RetryTimings(backoff=QUICK, lookup_after_s=0.05),
        )
        async with anyio.create_task_group() as tasks:
            await tasks.start(delivery.run)
            yield delivery
            tasks.cancel_scope.cancel()


def text(
    key: str, markdown: str = "hello", *, channel: str = "fake", edits: str = ""
) -> NewOutboxRow:
    place = ReplyTarget(chat="c")
    body = OutboundText(channel=channel, reply_target=place, markdown=markdown, replaces=edits)
    return NewOutboxRow(key=key, conversation=KEY, body=encode_outbound(body))


async def settle(delivery: DeliveryWorker, key: str) -> OutboxRow:
    with anyio.fail_after(20):
        row = await delivery.wait_closed(key)
    assert row is not None
    return row


async def test_rows_go_out_in_order_once(tmp_path: Path) -> None:
    platform = FakePlatform()
    async with pump(platform, tmp_path) as delivery:
        await delivery.enqueue(KEY, [text(f"k{i}", f"m{i}") for i in range(5)])
        await delivery.enqueue(KEY, [text("k0", "again")])
        await platform.until(5)
        row = await settle(delivery, "k4")
    assert platform.texts == [f"m{i}" for i in range(5)]
    assert (row.state, row.platform_id, row.attempts) == ("delivered", "m5", 1)


async def test_a_refusal_with_retry_after_is_waited_out_and_order_is_kept(tmp_path: Path) -> None:
    platform, clock = FakePlatform(), OffsetClock()
    platform.fail("send", DeliveryError("429", retryable=True, retry_after_s=0.3))
    async with pump(platform, tmp_path, clock) as delivery:
        begin = anyio.current_time()
        await delivery.enqueue(KEY, [text("a", "first"), text("b", "second")])
        await platform.until(2)
        waited = anyio.current_time() - begin
    assert platform.texts == ["first", "second"]
    assert waited >= 0.3


async def test_a_clock_that_is_set_back_prolongs_no_wait(tmp_path: Path) -> None:
    platform, clock = FakePlatform(), OffsetClock()
    platform.fail("send", DeliveryError("429", retryable=True, retry_after_s=0.2))
    clock.ahead += 3600
    async with pump(platform, tmp_path, clock) as delivery:
        await delivery.enqueue(KEY, [text("a", "first"), text("b", "second")])
        await eventually(lambda: delivery.find_row("a"), lambda row: bool(row and row.error))
        clock.ahead -= 3600
        await platform.until(2)
    assert platform.texts == ["first", "second"]


async def test_a_clock_that_is_set_back_prolongs_no_wait_for_an_unknown_outcome(
    tmp_path: Path,
) -> None:
    platform, clock = FakePlatform(), OffsetClock()
    platform.fail("send", DeliveryError("broke", retryable=True, ambiguous=True))
    clock.ahead += 3600
    async with pump(platform, tmp_path, clock, timings=FAST) as delivery:
        await delivery.enqueue(KEY, [text("a", "first")])
        await eventually(lambda: delivery.find_row("a"), lambda row: bool(row and row.error))
        clock.ahead -= 3600
        row = await settle(delivery, "a")
    assert (row.state, row.attempts, platform.texts) == ("delivered", 2, ["first"])


async def test_a_kill_while_the_clock_was_ahead_prolongs_no_wait(tmp_path: Path) -> None:
    """The send was recorded with a future time. The lookup of its unknown outcome is due soon anyway."""
    platform, clock = FakePlatform(), OffsetClock()
    async with Database.open(StoreConfig(), tmp_path) as database:
        outbox = OutboxStore(database, now=clock)
        [row] = await outbox.enqueue([text("a", "first")])
        await outbox.mark_sending(row.id, now=clock() + 3600)
    async with pump(platform, tmp_path, clock, timings=FAST) as delivery:
        delivery.notify(KEY)
        row = await settle(delivery, "a")
    assert (row.state, platform.texts) == ("delivered", ["first"])


async def test_a_clock_that_is_set_back_has_rows_wait_side_by_side(tmp_path: Path) -> None:
    """Otherwise, final reactions that Slack postponed would each wait their full time, one after another."""
    platform, clock = FakePlatform(), OffsetClock()
    clock.ahead += 3600
    async with pump(platform, tmp_path, clock) as delivery:
        later = [
            replace(text(f"k{number}", f"m{number}"), not_before=clock() + 1.0)
            for number in range(40)
        ]
        await delivery.enqueue(KEY, later)
        clock.ahead -= 3600
        await platform.until(40)
    assert platform.texts == [f"m{number}" for number in range(40)]


async def test_rows_with_a_future_time_are_sent_despite_new_messages(tmp_path: Path) -> None:
    platform, clock = FakePlatform(), OffsetClock()
    clock.ahead += 3600
    async with pump(platform, tmp_path, clock) as delivery:
        await delivery.enqueue(KEY, [replace(text("a", "first"), not_before=clock() + 1.0)])
        clock.ahead -= 3600
        with anyio.fail_after(20):
            for number in count():
                await delivery.enqueue(KEY, [text(f"k{number}", f"m{number}")])
                await settle(delivery, f"k{number}")
                if "first" in platform.texts:
                    break


async def test_rows_of_an_earlier_process_wait_no_longer_than_planned(tmp_path: Path) -> None:
    """Some rows were tried before, others were not. The clock was set back while no process ran."""
    platform, clock = FakePlatform(), OffsetClock()
    async with Database.open(StoreConfig(), tmp_path) as database:
        outbox = OutboxStore(database, now=lambda: clock() + 3600)
        tried, due, sending = await outbox.enqueue(
            [text("a", "first"), text("b", "second"), text("d", "fourth")]
        )
        ahead = clock() + 3600
        await outbox.reschedule(tried.id, not_before=ahead + 0.5, error="429", now=ahead)
        for row in (due, sending):
            await outbox.reschedule(row.id, not_before=ahead - 5.0, error="429", now=ahead)
        await outbox.mark_sending(sending.id, now=ahead)
        await outbox.enqueue([replace(text("c", "third"), not_before=ahead + 1.0)])
    async with pump(platform, tmp_path, clock, timings=FAST) as delivery:
        delivery.notify(KEY)
        assert (await settle(delivery, "c")).state == "delivered"
    assert sorted(platform.texts) == ["first", "fourth", "second", "third"]


async def test_server_errors_are_tried_again_until_it_is_out(tmp_path: Path) -> None:
    platform = FakePlatform()
    platform.fail("send", DeliveryError("503", retryable=True), times=4)
    async with pump(platform, tmp_path) as delivery:
        await delivery.enqueue(KEY, [text("a")])
        row = await settle(delivery, "a")
    assert (row.state, row.attempts, platform.texts) == ("delivered", 5, ["hello"])


async def test_a_permanent_refusal_is_kept_for_the_admin_and_blocks_nobody(tmp_path: Path) -> None:
    platform = FakePlatform()
    platform.fail("send", DeliveryError("channel is archived"))
    async with pump(platform, tmp_path) as delivery:
        await delivery.enqueue(KEY, [text("a", "lost"), text("b", "next")])
        assert (await settle(delivery, "b")).state == "delivered"
        row = await delivery.find_row("a")
        assert row is not None
        assert (row.state, row.error) == ("failed", "channel is archived")
        await delivery.resend([row.id])
        assert (await settle(delivery, "a")).state == "delivered"
    assert platform.texts == ["next", "lost"]


async def test_an_unknown_outcome_is_looked_up_where_it_can_be(tmp_path: Path) -> None:
    platform, clock = FindingPlatform(), OffsetClock()
    lost = DeliveryError("timeout", retryable=True, ambiguous=True)
    platform.fail("send", lost, after_effect=True)
    platform.fail("send", lost)
    async with pump(platform, tmp_path, clock) as delivery:
        clock.ahead += 0.0
        await delivery.enqueue(KEY, [text("arrived", "A"), text("did not", "B")])
        clock.ahead += 60.0
        assert (await settle(delivery, "arrived")).state == "delivered"
        clock.ahead += 60.0
        assert (await settle(delivery, "did not")).state == "delivered"
    assert platform.texts == ["A", "B"]


class LatePlatform(FindingPlatform):
    """Carries out a send after its connection broke, and after the first lookup."""

    def __init__(self) -> None:
        super().__init__()
        self._late: tuple[ReplyTarget, str, str] | None = None

    @override
    async def send(self, place: ReplyTarget, markdown: str, *, key: str) -> MessageId:
        try:
            return await super().send(place, markdown, key=key)
        except DeliveryError:
            self._late = (place, markdown, key)
            raise

    @override
    async def find_message(self, place: ReplyTarget, *, key: str, since: float) -> MessageId | None:
        found = await super().find_message(place, key=key, since=since)
        if self._late is not None:
            self._show(*self._late)
            self._late = None
        return found


async def test_a_message_that_appears_after_the_first_lookup_is_not_sent_again(
    tmp_path: Path,
) -> None:
    platform, clock = LatePlatform(), OffsetClock()
    platform.fail("send", DeliveryError("timeout", retryable=True, ambiguous=True))
    async with pump(platform, tmp_path, clock) as delivery:
        await delivery.enqueue(KEY, [text("a")])
        await eventually(
            lambda: delivery.find_row("a"), lambda row: row and row.not_before - clock() > 5.0
        )
        clock.ahead += 10.0
        delivery.notify(KEY)
        row = await settle(delivery, "a")
    assert (row.state, platform.texts) == ("delivered", ["hello"])
    assert platform.calls == ["send", "find", "find"]


class DatedPlatform(FindingPlatform):
    """Dates messages by its own clock, and finds messages after a date, as Slack does."""

    def __init__(self) -> None:
        super().__init__()
        self._clock = OffsetClock()
        self._sent_at = 0.0

    @override
    async def send(self, place: ReplyTarget, markdown: str, *, key: str) -> MessageId:
        self._sent_at = self._clock()
        return await super().send(place, markdown, key=key)

    @override
    async def find_message(self, place: ReplyTarget, *, key: str, since: float) -> MessageId | None:
        found = await super().find_message(place, key=key, since=since)
        return found if since < self._sent_at else None


async def test_a_message_is_found_although_the_clock_here_is_ahead(tmp_path: Path) -> None:
    platform, clock = DatedPlatform(), OffsetClock()
    clock.ahead += 10 * 60.0
    platform.fail(
        "send", DeliveryError("timeout", retryable=True, ambiguous=True), after_effect=True
    )
    async with pump(platform, tmp_path, clock, timings=FAST) as delivery:
        await delivery.enqueue(KEY, [text("a")])
        row = await settle(delivery, "a")
    assert (row.state, platform.texts) == ("delivered", ["hello"])


async def test_a_failing_lookup_never_leads_to_a_blind_repeat(tmp_path: Path) -> None:
    platform, clock = FindingPlatform(), OffsetClock()
    platform.fail(
        "send", DeliveryError("timeout", retryable=True, ambiguous=True), after_effect=True
    )
    platform.fail("find", DeliveryError("503", retryable=True), times=2)
    async with pump(platform, tmp_path, clock) as delivery:
        await delivery.enqueue(KEY, [text("a")])
        await _until_error(delivery, "a", "timeout")
        clock.ahead += 60.0
        assert (await settle(delivery, "a")).state == "delivered"
    assert (platform.texts, platform.calls.count("send")) == (["hello"], 1)


async def test_without_lookup_it_is_repeated_once_after_ten_seconds_and_marked(
    tmp_path: Path,
) -> None:
    platform, clock = FakePlatform(), OffsetClock()
    lost = DeliveryError("timeout", retryable=True, ambiguous=True)
    platform.fail("send", lost, times=2, after_effect=True)
    async with pump(platform, tmp_path, clock) as delivery:
        await delivery.enqueue(KEY, [text("a")])
        await platform.until(1)
        await _until_error(delivery, "a", "timeout")
        row = await delivery.find_row("a")
        assert row is not None
        assert row.not_before - row.updated_at == pytest.approx(10.0, abs=1.0)
        assert platform.texts == ["hello"]


async def test_a_restart_settles_what_was_being_sent(tmp_path: Path) -> None:
    """The crash came between the send and its record, so the row is in state `sending`."""
    platform, clock = FakePlatform(), OffsetClock()
    async with Database.open(StoreConfig(), tmp_path) as database:
        outbox = OutboxStore(database)
        [row] = await outbox.enqueue([text("a")])
        await outbox.mark_sending(row.id, now=clock() - 60)
    async with pump(platform, tmp_path, clock) as delivery:
        row = await settle(delivery, "a")
    assert (row.state, platform.texts) == ("uncertain", ["hello"])
    async with pump(platform, tmp_path, clock) as delivery:
        await delivery.enqueue(KEY, [text("b", "next")])
        await settle(delivery, "b")
    assert platform.texts == ["hello", "next"]


async def test_a_key_makes_a_repeat_harmless(tmp_path: Path) -> None:
    platform = CardPlatform("fake")
    platform.fail(
        "send", DeliveryError("timeout", retryable=True, ambiguous=True), after_effect=True
    )
    async with pump(platform, tmp_path) as delivery:
        await delivery.enqueue(KEY, [text("a")])
        row = await settle(delivery, "a")
    assert (row.state, platform.texts, platform.calls) == ("delivered", ["hello"], ["send", "send"])


async def test_a_final_edits_its_card_or_replaces_one_that_is_gone(tmp_path: Path) -> None:
    platform = CardPlatform("fake")
    place = ReplyTarget(chat="c")
    card = OutboundText(channel="fake", reply_target=place, markdown="…", provisional=True)
    async with pump(platform, tmp_path) as delivery:
        for number in (1, 2):
            body = encode_outbound(card)
            await delivery.enqueue(
                KEY, [NewOutboxRow(key=f"card{number}", conversation=KEY, body=body)]
            )
        await settle(delivery, "card2")
        platform.fail("patch", DeliveryError("recalled", target_gone=True))
        await delivery.enqueue(
            KEY, [text("f1", "replaced", edits="card1"), text("f2", "edited", edits="card2")]
        )
        await settle(delivery, "f2")
    assert platform.texts == ["…", "edited", "replaced"]


async def test_an_unexpected_exception_leaves_one_row_uncertain_and_the_next_goes_out(
    tmp_path: Path,
) -> None:
    platform = FakePlatform()
    platform.fail("send", ValueError("bug"), times=2)
    async with pump(platform, tmp_path, timings=FAST) as delivery:
        await delivery.enqueue(KEY, [text("a"), text("b", "next")])
        row = await settle(delivery, "a")
        assert (row.state, row.error) == ("uncertain", "unexpected error (ValueError)")
        assert (await settle(delivery, "b")).state == "delivered"
    assert platform.calls == ["send"] * 3


async def test_a_file_that_cannot_be_fetched_is_reported(tmp_path: Path) -> None:
    async def artifact(request: web.Request) -> web.Response:
        if request.match_info["path"] != "mnt/user-data/outputs/a.txt":
            raise web.HTTPNotFound
        return web.Response(body=b"data")

    app = web.Application()
    app.router.add_get("/api/threads/T/artifacts/{path:.*}", artifact)
    platform = FakePlatform()
    async with (
        TestServer(app) as gateway,
        pump(platform, tmp_path, gateway_url=str(gateway.make_url("/"))) as delivery,
    ):
        for name in ("a.txt", "gone.txt"):
            body = OutboundFile(
                channel="fake",
                reply_target=ReplyTarget(chat="c"),
                thread_id="T",
                path=f"/mnt/user-data/outputs/{name}",
                name=name,
            )
            await delivery.enqueue(
                KEY, [NewOutboxRow(key=name, conversation=KEY, body=encode_outbound(body))]
            )
        await settle(delivery, "gone.txt")
    assert platform.files == [("a.txt", b"data")]
    assert platform.texts == ["⚠️ I could not attach **gone.txt**: the file is no longer there."]


async def test_a_file_for_which_the_disk_has_no_room_waits_until_there_is_some(
    tmp_path: Path,
) -> None:
    async def artifact(_request: web.Request) -> web.Response:
        return web.Response(body=b"x" * LARGE_BYTES)

    app = web.Application()
    app.router.add_get("/api/threads/T/artifacts/large.bin", artifact)
    platform = FakePlatform()
    async with (
        TestServer(app) as gateway,
        pump(platform, tmp_path, gateway_url=str(gateway.make_url("/"))) as delivery,
    ):
        body = OutboundFile(
            channel="fake", reply_target=PLACE, thread_id="T", path="/large.bin", name="large.bin"
        )
        row = NewOutboxRow(key="a", conversation=KEY, body=encode_outbound(body))
        with full_disk(LARGE_BYTES // 2):
            await delivery.enqueue(KEY, [row])
            reason = "no temporary file could be written (File too large)"
            await _until_error(delivery, "a", reason)
        assert (await settle(delivery, "a")).state == "delivered"
    assert platform.files == [("large.bin", b"x" * LARGE_BYTES)]
    assert platform.texts == []


async def test_a_file_that_the_platform_refuses_is_reported_with_its_reason(tmp_path: Path) -> None:
    platform = FakePlatform()
    platform.fail("send_file", DeliveryError("Files of this type are not allowed."))
    async with pump(platform, tmp_path) as delivery:
        await delivery.enqueue(KEY, [note("one")])
        assert (await settle(delivery, "one")).state == "delivered"
        assert platform.texts == [
            "⚠️ I could not attach **note.md**. Files of this type are not allowed."
        ]
        platform.fail("send_file", DeliveryError("The channel is archived."))
        platform.fail("send", DeliveryError("The channel is archived."))
        await delivery.enqueue(KEY, [note("two")])
        row = await settle(delivery, "two")
        assert (row.state, row.error) == ("failed", "The channel is archived.")
        platform.fail("send_file", DeliveryError("unwell", retryable=True))
        await delivery.enqueue(KEY, [note("three")])
        assert (await settle(delivery, "three")).state == "delivered"
    assert [name for name, _ in platform.files] == ["note.md"]
    assert len(platform.texts) == 1


def note(key: str) -> NewOutboxRow:
    """Return the row of one of the bot's own texts, sent as a file."""
    body = OutboundFile(
        channel="fake",
        reply_target=ReplyTarget(chat="c"),
        thread_id="T",
        path="",
        name="note.md",
        content="hi",
    )
    return NewOutboxRow(key=key, conversation=KEY, body=encode_outbound(body))


async def _until_error(delivery: DeliveryWorker, key: str, error: str) -> None:
    await eventually(
        lambda: delivery.find_row(key), lambda row: row is not None and row.error == error
    )


async def test_stopping_records_what_the_platform_has_taken(tmp_path: Path) -> None:
    platform = DelayedResponsePlatform()
    async with pump(platform, tmp_path) as delivery:
        await delivery.enqueue(KEY, [text("a")])
        await platform.until(1)
    async with pump(platform, tmp_path) as delivery:
        row = await settle(delivery, "a")
    assert (row.state, row.attempts, platform.texts) == ("delivered", 1, ["hello"])


class DelayedResponsePlatform(FakePlatform):
    """Shows a message at once but responds a little later."""

    @override
    async def send(self, place: ReplyTarget, markdown: str, *, key: str) -> MessageId:
        message = await super().send(place, markdown, key=key)
        await anyio.sleep(0.2)
        return message


async def test_a_card_whose_answer_is_refused_says_so(tmp_path: Path) -> None:
    platform = CardPlatform("fake")
    card = OutboundText(
        channel="fake", reply_target=ReplyTarget(chat="c"), markdown="…", provisional=True
    )
    async with pump(platform, tmp_path) as delivery:
        new = NewOutboxRow(key="card", conversation=KEY, body=encode_outbound(card))
        await delivery.enqueue(KEY, [new])
        await settle(delivery, "card")
        platform.fail("patch", DeliveryError("audited"))
        await delivery.enqueue(KEY, [text("final", "phone numbers", edits="card")])
        row = await settle(delivery, "final")
    assert (row.state, row.error, platform.texts) == ("failed", "audited", [ENGLISH.answer_refused])


async def test_a_send_that_cannot_be_looked_up_is_repeated_at_most_once(tmp_path: Path) -> None:
    platform = FindingPlatform()
    platform.fail("send", DeliveryError("timeout", retryable=True, ambiguous=True), times=9)
    platform.fail("find", DeliveryError("this place cannot be read"), times=9)
    timings = RetryTimings(backoff=QUICK, lookup_after_s=0.01, repeat_after_s=0.05)
    async with pump(platform, tmp_path, timings=timings) as delivery:
        await delivery.enqueue(KEY, [text("a")])
        row = await settle(delivery, "a")
    assert (row.state, platform.calls.count("send")) == ("uncertain", 2)


async def attempt(delivery: DeliveryWorker, count: int, *, ends: str = "pending") -> None:
    """Wake the task until the row has this many attempts and this state."""

    async def row() -> OutboxRow | None:
        delivery.notify(KEY)
        return await delivery.find_row("a")

    await eventually(row, lambda one: one and (one.attempts, one.state) == (count, ends))


async def test_credentials_that_are_refused_are_waited_for_longer_than_anything_else(
    tmp_path: Path,
) -> None:
    """When the credentials work again, later failures get a new day of retries."""
    platform, clock = FakePlatform(), OffsetClock()
    refused = DeliveryError("revoked", retryable=True, credentials_refused=True)
    platform.fail("send", refused, times=3)
    platform.fail("send", DeliveryError("busy", retryable=True))
    timings = RetryTimings(backoff=Backoff(first_s=3600.0), credentials_after_s=30 * 86_400.0)
    async with pump(platform, tmp_path, clock, timings=timings) as delivery:
        await delivery.enqueue(KEY, [text("a")])
        for count in range(1, 5):
            await attempt(delivery, count)
            clock.ahead += 9 * 86_400.0 if count < 4 else 4 * 3600.0
        await attempt(delivery, 5, ends="delivered")


async def test_an_answer_is_given_up_if_no_credentials_come_until_it_would_be_deleted(
    tmp_path: Path,
) -> None:
    platform, clock = FakePlatform(), OffsetClock()
    refused = DeliveryError("revoked", retryable=True, credentials_refused=True)
    platform.fail("send", refused, times=2)
    timings = RetryTimings(backoff=Backoff(first_s=3600.0), credentials_after_s=30 * 86_400.0)
    async with pump(platform, tmp_path, clock, timings=timings) as delivery:
        await delivery.enqueue(KEY, [text("a")])
        await attempt(delivery, 1)
        clock.ahead += 31 * 86_400.0
        await attempt(delivery, 2, ends="failed")


class StoppedOutbox(OutboxStore):
    """Stores the start of an attempt at the moment when the service stops."""

    def __init__(self, database: Database) -> None:
        super().__init__(database)
        self.scope = anyio.CancelScope()
        self.worker_stopped = anyio.Event()

    @override
    async def mark_sending(
        self, row_id: int, *, now: float, uncertain_attempts: int | None = None
    ) -> bool:
        is_open = await super().mark_sending(row_id, now=now, uncertain_attempts=uncertain_attempts)
        self.scope.cancel()
        with anyio.CancelScope(shield=True):
            await self.worker_stopped.wait()
        return is_open


async def test_an_attempt_that_begins_while_the_service_stops_does_not_hold_it_up(
    tmp_path: Path,
) -> None:
    platform = HeldSendPlatform()
    async with (
        Database.open(StoreConfig(), place_database(tmp_path)) as database,
        httpx.AsyncClient() as gateway,
    ):
        outbox = StoppedOutbox(database)
        delivery = DeliveryWorker({platform.name: platform}, outbox, RemoteFiles(gateway))

        async def run() -> None:
            with outbox.scope:
                await delivery.run()

        await outbox.enqueue([text("a")])
        with anyio.fail_after(SEND_DEADLINE_S / 2):
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(run)
                await eventually(lambda: outbox.scope.cancel_called and delivery._tasks is None)
                outbox.worker_stopped.set()
        row = await outbox.find("a")
        assert row is not None
        assert row.state == "sending"
