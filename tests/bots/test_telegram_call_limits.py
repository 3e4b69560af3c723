"""Rate limits of a Telegram bot's calls: Parley respects them, and waits if Telegram's are lower."""

from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import anyio
import pytest

from bots.common.call_limits import AccountLimiter
from bots.telegram.adapter import TelegramAdapter, call_limiter
from bots.telegram.capabilities import CALLS_PER_S, GROUP_CALLS_PER_MINUTE, PATCH_SHARE
from bus.errors import DeliveryError
from bus.platform import ConnectionState
from gateway.playground.telegram.chats import TelegramApiError
from gateway.playground.telegram.flood import AccountFloodLimit
from gateway.playground.telegram.server import TelegramServer
from tests.bots.telegram_rig import COMMANDS, FAST, config_for, linked
from tests.bus.harness import BusHarness, running_bus
from tests.fakes.clock import run_in_virtual_time

LATENCY_S = 0.05


class Crowd:
    """Chats that each get one message after another, as the delivery worker sends them.

    Attributes:
        arrived: The numbers of each chat's messages, in order of arrival.
        times: When each message arrived, virtual seconds.
        limit: Telegram's limit.
    """

    def __init__(self, per_second: int, *, wait_s: int = 1) -> None:
        self.arrived: dict[str, list[int]] = {}
        self.times: list[float] = []
        self.limit = AccountFloodLimit(per_second, wait_s=wait_s, clock=anyio.current_time)
        self.limiter = call_limiter()

    async def talk(self, chats: int, messages: int) -> None:
        """Send messages to each chat at once."""
        async with anyio.create_task_group() as tasks:
            for number in range(chats):
                tasks.start_soon(self._lane, str(number), messages)

    def rate(self, last_s: float) -> float:
        """Return how many messages a second arrived in the last seconds."""
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
                    raise DeliveryError("429", retryable=True, retry_after_s=wait_s) from None
                self.arrived.setdefault(chat, []).append(number)
                self.times.append(anyio.current_time())
        except DeliveryError as error:
            await anyio.sleep(error.retry_after_s or 1.0)
            return False
        return True


@pytest.mark.parametrize("per_second", [20, 30, 100])
def test_every_message_arrives_in_order_whatever_telegram_takes(per_second: int) -> None:
    async def main() -> Crowd:
        crowd = Crowd(per_second)
        await crowd.talk(chats=200, messages=5)
        return crowd

    crowd = run_in_virtual_time(main)
    assert all(numbers == list(range(5)) for numbers in crowd.arrived.values())
    assert len(crowd.arrived) == 200
    if per_second >= CALLS_PER_S:
        assert crowd.limit.refusals == 0
        assert crowd.rate(last_s=20) >= 0.8 * CALLS_PER_S


def test_a_group_that_exceeds_its_own_limit_slows_nobody_else() -> None:
    async def main() -> int:
        limiter = call_limiter()
        for group in ("-1", "-2", "-3"):
            for _ in range(GROUP_CALLS_PER_MINUTE):
                await limiter.acquire(group)
                await anyio.sleep(0.1)
            with pytest.raises(DeliveryError):
                await _refused(limiter, group)
        await anyio.sleep(1.0)
        return await _count_at_once(limiter)

    assert run_in_virtual_time(main) == CALLS_PER_S


def test_nodes_share_the_limit() -> None:
    async def main() -> int:
        return await _count_at_once(call_limiter(divide_limit=lambda limit: limit // 3))

    assert run_in_virtual_time(main) == CALLS_PER_S // 3


def test_optional_calls_leave_room_for_answers() -> None:
    async def main() -> tuple[int, int]:
        limiter = call_limiter()
        optional = await _count_at_once(limiter, share=PATCH_SHARE)
        return optional, await _count_at_once(limiter)

    assert run_in_virtual_time(main) == (22, 8)


def test_required_calls_that_wait_go_in_their_order() -> None:
    async def main() -> list[int]:
        limiter, order = call_limiter(), []

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
        raise DeliveryError("429", retryable=True, retry_after_s=20.0)


async def _count_at_once(limiter: AccountLimiter, share: float | None = None) -> int:
    """Return how many calls pass without waiting."""
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

        # A notice that work continues stays until the answer arrives.
        await telegram.wait_for(
            lambda: all(len(each) >= 2 and "Worki" not in each for each in answers()), 60
        )
        assert len(answers()) == 1
        assert telegram.account_limit.refusals > 0
        assert telegram.violations == []
