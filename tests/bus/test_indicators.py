"""The done indicator appears even if the platform refuses it for a while, or Parley is killed right before it."""

import gc
from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path

import anyio
import pytest
from typing_extensions import override

from bus.errors import DeliveryError
from bus.locales.en import ENGLISH
from bus.messages import OutboundRemoval, OutboundText, ReplyTarget, encode_outbound
from bus.outbound.indicators import MAX_WORKING, IndicatorUpdater
from bus.platform import WorkShown
from bus.tasks import run_beside
from store.config import StoreConfig
from store.conversations import ConversationKey
from store.database import Database
from store.figures import FigureStore
from store.outbox import NewOutboxRow, OutboxStore
from tests.bus.harness import running_bus
from tests.bus.test_delivery_worker import pump, settle
from tests.eventually import eventually
from tests.fakes.clock import OffsetClock
from tests.fakes.platform import CardPlatform

CONVERSATION = ConversationKey(channel="cards", workspace="w", chat="c")


def answer(key: str, *, status: str = "ok") -> NewOutboxRow:
    body = OutboundText(
        channel="cards",
        reply_target=ReplyTarget(chat="c", reply_to=key),
        markdown="hello",
        final_status="ok" if status == "ok" else "failed",
    )
    conversation = ConversationKey(channel="cards", workspace="w", chat="c", topic=key)
    return NewOutboxRow(key=key, conversation=conversation, body=encode_outbound(body))


async def shows(platform: CardPlatform, *signs: str) -> None:
    await eventually(lambda: platform.indicators == list(signs))


async def test_an_outcome_that_is_rate_limited_is_shown_later(tmp_path: Path) -> None:
    platform = CardPlatform()
    limited = DeliveryError("429", retryable=True, retry_after_s=0.05)
    platform.fail("finished", limited, times=2)
    async with pump(platform, tmp_path) as delivery:
        row = answer("a")
        await delivery.enqueue(row.conversation, [row])
        await settle(delivery, "a")
        await shows(platform, "done")


async def test_an_outcome_that_is_rate_limited_survives_kills_and_holds_nothing_up(
    tmp_path: Path,
) -> None:
    """Seed 27 of the proof: the reaction stayed forever if a second kill came before the next attempt."""
    platform, clock = CardPlatform(), OffsetClock()
    platform.fail("finished", DeliveryError("429", retryable=True, retry_after_s=90.0))
    async with pump(platform, tmp_path, clock) as delivery:
        for key in ("a", "b"):  # b is closed last, so a restart repeats only its indicator
            row = replace(answer(key), conversation=CONVERSATION)
            await delivery.enqueue(CONVERSATION, [row])
            await settle(delivery, key)
            await eventually(lambda: "finished" in platform.calls)
            clock.ahead += 30.0
        await eventually(lambda: platform.marks == {"b": "done"})
    async with pump(platform, tmp_path, clock) as delivery:
        await eventually(lambda: platform.indicators == ["done", "done"])
        with anyio.fail_after(20):
            await delivery.wait_idle()
    clock.ahead += 60.0
    async with pump(platform, tmp_path, clock) as delivery:
        await eventually(lambda: platform.marks == {"a": "done", "b": "done"})
        await eventually(delivery._outbox.list_open, lambda rows: not rows)


REFUSED = DeliveryError("channel is archived")


def removal(key: str) -> NewOutboxRow:
    """Return the row after an answer, which removes the progress notice."""
    body = OutboundRemoval(
        channel="cards",
        reply_target=ReplyTarget(chat="c", reply_to="m"),
        target_key="notice",
        final_status="ok",
    )
    return NewOutboxRow(key=key, conversation=CONVERSATION, body=encode_outbound(body))


def first_text(key: str) -> NewOutboxRow:
    body = OutboundText(channel="cards", reply_target=ReplyTarget(chat="c"), markdown="hello")
    return NewOutboxRow(key=key, conversation=CONVERSATION, body=encode_outbound(body))


@pytest.mark.parametrize("has_notice", [False, True])
async def test_an_answer_that_the_platform_refused_is_not_marked_as_done(
    tmp_path: Path, *, has_notice: bool
) -> None:
    """The indicator must not claim an answer that people cannot see. A restart repeats the same outcome."""
    platform, clock = CardPlatform(), OffsetClock()
    platform.fail("send", REFUSED)
    rows = [replace(answer("7:reply:0"), conversation=CONVERSATION)]
    if has_notice:
        rows = [first_text("7:reply:0"), removal("7:removal")]
    async with pump(platform, tmp_path, clock) as delivery:
        await delivery.enqueue(CONVERSATION, rows)
        await settle(delivery, rows[-1].key)
        await shows(platform, "failed")
    async with pump(platform, tmp_path, clock):
        await shows(platform, "failed", "failed")


@pytest.mark.parametrize("has_notice", [False, True])
async def test_an_answer_of_which_one_text_was_refused_says_so_and_is_not_marked_as_done(
    tmp_path: Path, *, has_notice: bool
) -> None:
    """Otherwise the text would be missing in the middle, and nobody would know."""
    platform, clock = CardPlatform(), OffsetClock()

    def refuse_second() -> None:
        if platform.texts == ["hello"]:
            platform.fail("send", REFUSED)

    platform.when_sent = refuse_second
    last = [first_text("7:reply:2"), removal("7:removal")]
    if not has_notice:
        last = [replace(answer("7:reply:2"), conversation=CONVERSATION)]
    rows = [first_text("7:reply:0"), first_text("7:reply:1"), *last]
    async with pump(platform, tmp_path, clock) as delivery:
        await delivery.enqueue(CONVERSATION, rows)
        await settle(delivery, rows[-1].key)
        await shows(platform, "failed")
    assert platform.texts == ["hello", ENGLISH.answer_refused, "hello"]
    async with pump(platform, tmp_path, clock):
        await shows(platform, "failed", "failed")


async def test_a_refusal_leaves_memory_without_a_garbage_collection(tmp_path: Path) -> None:
    """Under load there are many refusals. Each would hold its message and the call's frames until a full collection."""

    class RefusalError(DeliveryError):
        alive = 0

        def __init__(self) -> None:
            super().__init__("403")
            RefusalError.alive += 1

        def __del__(self) -> None:
            RefusalError.alive -= 1

    class RefusingPlatform(CardPlatform):
        @override
        async def show_finished(
            self, target: ReplyTarget, *, ok: bool, was_shown: WorkShown = WorkShown.UNKNOWN
        ) -> None:
            self.calls.append("finished")
            raise RefusalError

    platform = RefusingPlatform()
    gc.disable()
    try:
        async with pump(platform, tmp_path) as delivery:
            row = answer("a")
            await delivery.enqueue(row.conversation, [row])
            await settle(delivery, "a")
            await eventually(lambda: "finished" in platform.calls)
            await eventually(lambda: RefusalError.alive == 0)
    finally:
        gc.enable()


async def test_an_outcome_that_is_refused_for_good_is_left(tmp_path: Path) -> None:
    platform = CardPlatform()
    platform.fail("finished", DeliveryError("403"))
    async with pump(platform, tmp_path) as delivery:
        for number, row in enumerate((answer("a"), answer("b", status="failed")), start=1):
            await delivery.enqueue(row.conversation, [row])
            # Two conversations: nothing else keeps the second outcome behind the first.
            await eventually(lambda: platform.calls.count("finished") == number)  # noqa: B023 - awaited here
        await shows(platform, "failed")
    assert platform.calls.count("finished") == 2


async def test_an_outcome_that_a_kill_came_before_is_shown_at_the_next_start(
    tmp_path: Path,
) -> None:
    async with Database.open(StoreConfig(), tmp_path) as database:
        outbox = OutboxStore(database, now=lambda: 1000.0)
        long_ago, last, open_row = await outbox.enqueue([answer("a"), answer("b"), answer("c")])
        for row, closed_at in ((long_ago, 1000.0), (last, 2000.0)):
            await outbox.mark_sending(row.id, now=closed_at)
            await outbox.mark_delivered(row.id, "m1", now=closed_at)
    platform = CardPlatform()
    async with pump(platform, tmp_path) as delivery:
        await settle(delivery, open_row.key)
        await shows(platform, "done", "done")
    assert platform.calls.count("finished") == 2


async def test_a_kill_in_a_busy_minute_leaves_no_indicator_standing(tmp_path: Path) -> None:
    count = 120
    async with Database.open(StoreConfig(), tmp_path) as database:
        outbox = OutboxStore(database, now=lambda: 1000.0)
        for row in await outbox.enqueue([answer(f"a{number}") for number in range(count)]):
            await outbox.mark_sending(row.id, now=1000.0)
            await outbox.mark_delivered(row.id, "m1", now=1000.0)
    platform = CardPlatform()
    async with pump(platform, tmp_path):
        await eventually(lambda: len(platform.marks) == count)


async def test_a_row_of_the_future_hides_no_indicator_that_a_kill_came_before(
    tmp_path: Path,
) -> None:
    """Seed 501 of the proof: an answer was closed while the clock was an hour ahead."""
    clock = OffsetClock()
    async with Database.open(StoreConfig(), tmp_path) as database:
        outbox = OutboxStore(database, now=clock)
        ahead, last = await outbox.enqueue([answer("a"), answer("b")])
        for row, closed_at in ((ahead, clock() + 3600.0), (last, clock() - 100.0)):
            await outbox.mark_sending(row.id, now=closed_at)
            await outbox.mark_delivered(row.id, "m1", now=closed_at)
    platform = CardPlatform()
    async with pump(platform, tmp_path, clock):
        await eventually(lambda: "b" in platform.marks)


async def test_an_outcome_that_is_rate_limited_is_shown_though_the_clock_jumps(
    tmp_path: Path,
) -> None:
    """Seed 501 of the proof: the clock was corrected by an hour, and that counted as an hour of attempts."""
    platform, clock = CardPlatform(), OffsetClock()
    limited = DeliveryError("429", retryable=True, retry_after_s=90.0)
    platform.fail("finished", limited, times=2)
    async with pump(platform, tmp_path, clock) as delivery:
        row = answer("a")
        await delivery.enqueue(row.conversation, [row])
        await settle(delivery, "a")
        for error, count in ((None, 2), ("refused", 3)):

            async def errors() -> list[str | None]:
                return [one.error for one in await delivery._outbox.list_open()]

            await eventually(errors, [error].__eq__)
            clock.ahead += 3700.0

            async def is_tried(count: int = count) -> bool:
                delivery.notify(row.conversation)
                return platform.calls.count("finished") >= count

            await eventually(is_tried)
        await eventually(lambda: platform.marks == {"a": "done"})


class TypingPlatform(CardPlatform):
    """Typing must be repeated, as on Telegram, and each call takes a moment."""

    def __init__(self) -> None:
        super().__init__()
        self.typing: list[str] = []
        self._capabilities = replace(self._capabilities, indicator_refresh_s=60.0)

    @override
    async def show_working(self, place: ReplyTarget) -> None:
        self.typing.append(place.chat)


def working(
    indicators: IndicatorUpdater,
    platform: TypingPlatform,
    place: ReplyTarget,
    *,
    is_first: bool = False,
) -> Callable[[], Awaitable[None]]:
    show = indicators.working(platform, place, is_first=is_first)
    assert show is not None
    return show


async def test_the_indicators_of_a_burst_are_bounded() -> None:
    platform, indicators = TypingPlatform(), IndicatorUpdater()
    scopes = [anyio.CancelScope() for _ in range(MAX_WORKING + 3)]

    async def show(number: int) -> None:
        with scopes[number]:
            await working(indicators, platform, ReplyTarget(chat=f"{number}"))()
            await anyio.sleep_forever()

    async with anyio.create_task_group() as tasks:
        for number in range(len(scopes)):
            tasks.start_soon(show, number)
        await eventually(lambda: len(platform.typing) >= MAX_WORKING)
        for number in range(2):  # each call that ends lets exactly one waiting call start
            scopes[number].cancel()
            shown = MAX_WORKING + number + 1
            await eventually(lambda: len(platform.typing), shown.__le__)
            await anyio.wait_all_tasks_blocked()
            assert platform.typing[MAX_WORKING:] == [str(n) for n in range(MAX_WORKING, shown)]
        tasks.cancel_scope.cancel()


async def test_an_answer_that_comes_at_once_has_no_working_indicator_in_its_way() -> None:
    platform, indicators = TypingPlatform(), IndicatorUpdater()
    async with run_beside(working(indicators, platform, ReplyTarget(chat="quick"))):
        await anyio.wait_all_tasks_blocked()
    async with run_beside(working(indicators, platform, ReplyTarget(chat="slow"))):
        await eventually(lambda: platform.typing == ["slow"])


class NotingPlatform(TypingPlatform):
    """Records the calls that end the working indicator."""

    def __init__(self) -> None:
        super().__init__()
        self.told: dict[str, str] = {}

    @override
    async def show_finished(
        self, target: ReplyTarget, *, ok: bool, was_shown: WorkShown = WorkShown.UNKNOWN
    ) -> None:
        self.told[target.chat] = was_shown


async def test_the_end_tells_whether_work_was_shown() -> None:
    """An indicator that was never shown does not have to be removed. Slack permits few removals a minute."""
    platform, indicators = NotingPlatform(), IndicatorUpdater()
    quick, slow, again, unknown = (
        ReplyTarget(chat=chat) for chat in ("quick", "slow", "again", "unknown")
    )
    async with run_beside(working(indicators, platform, quick, is_first=True)):
        await anyio.wait_all_tasks_blocked()
    for place in (slow, again):
        async with run_beside(working(indicators, platform, place, is_first=True)):
            await eventually(lambda: platform.typing, lambda shown: place.chat in shown)  # noqa: B023
    async with run_beside(working(indicators, platform, again, is_first=True)):
        await anyio.wait_all_tasks_blocked()
    async with run_beside(
        working(indicators, platform, unknown)
    ):  # an earlier process may have shown it
        await anyio.wait_all_tasks_blocked()
    for place in (quick, slow, again, unknown):
        assert await indicators.finished(platform, place, ok=True) is None
    assert platform.told == {"quick": "no", "slow": "here", "again": "here", "unknown": "unknown"}


async def test_the_row_of_a_turn_keeps_when_people_saw_its_first_sign(tmp_path: Path) -> None:
    platform = CardPlatform()
    async with running_bus(tmp_path, platform=platform) as harness:
        finish = harness.hold_next_run("done")
        await harness.send("one", channel="cards")
        await eventually(lambda: "working" in platform.indicators)
        harness.clock.ahead += 60.0
        finish.set()
        await harness.wait_until_finished()
        await eventually(lambda: "done" in platform.indicators)
        [row] = await harness.bus.inbox.list_recent()
        assert row.signed_at is not None
        assert 0 <= row.signed_at - row.received_at < 60.0
        found = await FigureStore(harness.database).read(0.0, row.received_at + 1)
        assert found.signs_s[0] < 60.0 <= found.answers_s[0]
