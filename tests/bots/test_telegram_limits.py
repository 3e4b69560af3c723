"""The limit of a Telegram bot's calls a second: found by 429s, few of them, and kept."""

from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import anyio
import pytest

from bots.common.limits import AccountLimiter, RateLimitExceeded
from bots.telegram.adapter import TelegramAdapter
from bots.telegram.limits import (
    FIRST_PER_S,
    GROUP_WINDOWS,
    LEAST_PER_S,
    PATCH_SHARE,
    telegram_limiter,
)
from bus.errors import DeliveryError
from bus.platform import ConnectionState
from tests.bots.telegram_rig import COMMANDS, FAST, config_for, linked
from tests.bus.harness import BusHarness, running_bus
from tests.fakes.clock import run_in_virtual_time
from tests.fakes.telegram import TelegramServer
from tests.fakes.telegram_chats import TelegramApiError
from tests.fakes.telegram_flood import AccountFloodLimit

LATENCY_S = 0.05


class Crowd:
    """Chats that each get messages one after the other, as the delivery worker sends them.

    Attributes:
        arrived: Of each chat, the numbers of its messages in the order in which they came.
        times: When each came, virtual seconds.
        limit: Telegram's limit.
    """

    def __init__(self, per_second: int, *, wait_s: int = 1) -> None:
        self.arrived: dict[str, list[int]] = {}
        self.times: list[float] = []
        self.limit = AccountFloodLimit(per_second, wait_s=wait_s, clock=anyio.current_time)
        self.limiter = telegram_limiter()

    async def talk(self, chats: int, messages: int) -> None:
        """Send messages to each chat at once."""
        async with anyio.create_task_group() as tasks:
            for number in range(chats):
                tasks.start_soon(self._lane, str(number), messages)

    def rate(self, last_s: float) -> float:
        """Return the messages a second that arrived in the last seconds."""
        return sum(1 for at in self.times if at > self.times[-1] - last_s) / last_s

    async def _lane(self, chat: str, messages: int) -> None:
        for number in range(messages):
            while not await self._attempt(chat, number):
                pass
            await anyio.sleep(1.0)  # `send_interval_s`

    async def _attempt(self, chat: str, number: int) -> bool:
        try:
            async with self.limiter.limit(chat):
                await anyio.sleep(LATENCY_S)
                try:
                    self.limit.check()
                except TelegramApiError as error:
                    wait_s = error.parameters["retry_after"]
                    raise RateLimitExceeded("429", retry_after_s=wait_s) from None
                self.arrived.setdefault(chat, []).append(number)
                self.times.append(anyio.current_time())
        except DeliveryError as error:
            await anyio.sleep(error.retry_after_s or 1.0)
            return False
        return True


@pytest.mark.parametrize("wait_s", [1, 5])
@pytest.mark.parametrize("per_second", [20, 30, 100])
def test_the_rate_converges_to_what_telegram_takes(per_second: int, wait_s: int) -> None:
    async def main() -> Crowd:
        crowd = Crowd(per_second, wait_s=wait_s)
        await crowd.talk(chats=400, messages=20)
        return crowd

    crowd = run_in_virtual_time(main)
    assert all(numbers == list(range(20)) for numbers in crowd.arrived.values())
    assert len(crowd.arrived) == 400
    # In the end, while few are left, nothing waits for the limit: the rate is that of the time before.
    busy = crowd.times[: -per_second * 5]
    steady = sum(1 for at in busy if at > busy[-1] - 30) / 30
    assert 0.8 * per_second <= steady <= per_second
    # Those that were under way at the first refusal, and few more whenever the limit is tried out again.
    duration_s = crowd.times[-1] - crowd.times[0]
    assert crowd.limit.refusals <= FIRST_PER_S + 10 * (1 + duration_s // 300)


def test_ninety_five_answers_at_once_do_not_wait_for_the_documented_rate() -> None:
    async def main() -> float:
        crowd = Crowd(per_second=1000)
        await crowd.talk(chats=95, messages=1)
        return crowd.times[-1] - crowd.times[0]

    assert run_in_virtual_time(main) <= 95 / 60 + 0.1


def test_a_rate_that_was_refused_is_remembered_for_minutes() -> None:
    async def main() -> tuple[int, int, int]:
        crowd = Crowd(per_second=30)
        await crowd.talk(chats=300, messages=3)
        first = crowd.limit.refusals
        await crowd.talk(chats=300, messages=5)
        second = crowd.limit.refusals
        await anyio.sleep(301)
        await crowd.talk(chats=300, messages=10)
        return first, second - first, crowd.limit.refusals - second

    first, second, later = run_in_virtual_time(main)
    assert first > 0
    assert second == 0
    assert 0 < later <= 10


def test_a_group_that_exceeds_its_own_limit_slows_nobody_else() -> None:
    async def main() -> int:
        limiter = telegram_limiter()
        for group in ("-1", "-2", "-3"):
            for _ in range(GROUP_WINDOWS[60.0]):
                await limiter.acquire(group)
                await anyio.sleep(0.1)
            with pytest.raises(RateLimitExceeded):
                await _refused(limiter, group)
        await anyio.sleep(1.0)
        return await _count_at_once(limiter)

    assert run_in_virtual_time(main) == FIRST_PER_S


def test_groups_whose_limits_an_earlier_process_used_up_slow_nobody_else() -> None:
    async def main() -> int:
        limiter = telegram_limiter()
        for group in ("-1", "-2", "-3"):
            with pytest.raises(RateLimitExceeded):
                await _refused(limiter, group)
        await anyio.sleep(1.0)
        return await _count_at_once(limiter)

    assert run_in_virtual_time(main) == FIRST_PER_S


def test_a_chat_that_is_refused_alone_slows_nobody_else() -> None:
    async def main() -> int:
        limiter = telegram_limiter()
        for _ in range(3):
            with pytest.raises(RateLimitExceeded):
                await _refused(limiter, "42")
            await anyio.sleep(30)
        return await _count_at_once(limiter)

    assert run_in_virtual_time(main) == FIRST_PER_S


def test_two_chats_that_are_refused_at_once_stop_the_account_for_the_time_that_telegram_names() -> (
    None
):
    async def main() -> tuple[float, int]:
        limiter = telegram_limiter()
        for chat in ("1", "2", "3", "4"):
            with pytest.raises(RateLimitExceeded):
                await _refused(limiter, chat)
        began = anyio.current_time()
        await limiter.acquire("5")
        return anyio.current_time() - began, 1 + await _count_at_once(limiter)

    assert run_in_virtual_time(main) == (20.0, LEAST_PER_S)


def test_optional_calls_leave_room_for_answers_at_every_rate() -> None:
    async def main() -> tuple[int, int]:
        limiter = telegram_limiter()
        for chat in ("1", "2"):
            with pytest.raises(RateLimitExceeded):
                await _refused(limiter, chat)
        await anyio.sleep(20)
        optional = await _count_at_once(limiter, share=PATCH_SHARE)
        return optional, await _count_at_once(limiter)

    assert run_in_virtual_time(main) == (7, 3)


def test_required_calls_that_wait_go_in_their_order() -> None:
    async def main() -> list[int]:
        limiter, order = telegram_limiter(), []

        async def call(number: int) -> None:
            await limiter.acquire(str(number))
            order.append(number)

        async with anyio.create_task_group() as tasks:
            for number in range(500):
                tasks.start_soon(call, number)
        return order

    assert run_in_virtual_time(main) == list(range(500))


async def _refused(limiter: AccountLimiter, chat: str) -> None:
    async with limiter.limit(chat):
        raise RateLimitExceeded("429", retry_after_s=20.0)


async def _count_at_once(limiter: AccountLimiter, share: float | None = None) -> int:
    """Return how many calls are let through without waiting."""
    count = 0
    while True:
        with anyio.move_on_after(0) as scope:
            try:
                await limiter.acquire(f"new {share} {count}", share=share)
            except DeliveryError:
                return count
        if scope.cancelled_caught:
            return count
        count += 1


@asynccontextmanager
async def serving(telegram: TelegramServer, home: Path) -> AsyncIterator[BusHarness]:
    adapter = TelegramAdapter(config_for(telegram), COMMANDS, timeouts=FAST)
    async with running_bus(home, others={"telegram": adapter}) as harness:
        await linked(adapter, ConnectionState.CONNECTED)
        yield harness


async def test_a_crowd_above_the_limit_is_answered_once_and_in_order(tmp_path: Path) -> None:
    async with TelegramServer() as telegram, serving(telegram, tmp_path):
        telegram.account_limit = AccountFloodLimit(20, clock=anyio.current_time)
        for number in range(40):
            telegram.dm("/help", user=3000 + number)
            telegram.dm("hello", user=3000 + number)

        def answers() -> Counter[tuple[str, ...]]:
            return Counter(
                tuple(answer.text[:5] for answer in telegram.answers(3000 + number))
                for number in range(40)
            )

        # A notice that work goes on stands there until the answer comes.
        await telegram.wait_for(
            lambda: all(len(each) >= 2 and "Worki" not in each for each in answers()), 60
        )
        assert len(answers()) == 1
        assert telegram.account_limit.refusals > 0
        assert telegram.violations == []
