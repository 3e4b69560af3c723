"""The send rate limiter: bursts, the average rate, and a platform's Retry-After."""

from bus.outbound.send_rate_limiter import SendRateLimiter
from tests.eventually import is_waiting
from tests.fakes.clock import ManualClock

CHAT, OTHER = ("slack", "C1"), ("slack", "C2")


async def free(pacer: SendRateLimiter, chat: tuple[str, str], burst: int = 3) -> bool:
    """Return whether the chat has a free slot now."""
    return not await is_waiting(lambda: pacer.acquire(chat, 1.0, burst=burst))


async def test_a_quiet_chat_may_burst_and_then_keeps_its_distance() -> None:
    clock = ManualClock()
    pacer = SendRateLimiter(clock=clock)
    assert [await free(pacer, CHAT) for _ in range(4)] == [True, True, True, False]
    assert await free(pacer, OTHER)
    clock.now += 1.0
    assert [await free(pacer, CHAT) for _ in range(2)] == [True, False]
    clock.now += 60.0
    assert [await free(pacer, CHAT) for _ in range(4)] == [True, True, True, False]


async def test_a_pause_stops_one_chat_even_within_its_burst() -> None:
    clock = ManualClock()
    pacer = SendRateLimiter(clock=clock)
    pacer.pause(CHAT, 5.0)
    pacer.pause(CHAT, 1.0)
    assert not await free(pacer, CHAT)
    assert await free(pacer, OTHER)
    clock.now += 4.9
    assert not await free(pacer, CHAT)
    clock.now += 0.2
    assert await free(pacer, CHAT)


async def test_a_chat_is_forgotten_when_its_next_slot_is_past() -> None:
    clock = ManualClock()
    pacer = SendRateLimiter(clock=clock)
    for number in range(10):
        assert await free(pacer, ("slack", str(number)))
    assert len(pacer._schedule) == 10
    clock.now += 2.0
    assert await free(pacer, CHAT)
    assert list(pacer._schedule) == [CHAT]
