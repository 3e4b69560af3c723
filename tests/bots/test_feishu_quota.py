"""The app's share of calls: exact windows, growing cards yield, the platform's word holds."""

import pytest

from bots.feishu.errors import FeishuError
from bots.feishu.quota import WINDOWS, Quota


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


async def refused(quota: Quota, *, is_frame: bool = False) -> FeishuError:
    with pytest.raises(FeishuError) as caught:
        await quota.take(is_frame=is_frame)
    assert caught.value.retryable
    assert not caught.value.ambiguous
    return caught.value


async def test_a_window_is_never_overdrawn() -> None:
    clock = Clock()
    quota = Quota({60.0: 10}, clock=clock)
    for _ in range(10):
        await quota.take()
    clock.now += 20
    assert (await refused(quota)).retry_after_s == pytest.approx(40)
    clock.now += 40
    await quota.take()


async def test_cards_that_only_grow_leave_room_for_answers() -> None:
    clock = Clock()
    quota = Quota({60.0: 10}, clock=clock)
    for _ in range(8):
        await quota.take(is_frame=True)
    await refused(quota, is_frame=True)
    await quota.take()
    await quota.take()


async def test_a_pause_stops_everything_at_once() -> None:
    clock = Clock()
    quota = Quota({1.0: 10}, clock=clock)
    quota.pause(7)
    quota.pause(2)
    assert (await refused(quota)).retry_after_s == pytest.approx(7)
    assert (await refused(quota, is_frame=True)).retry_after_s == pytest.approx(7)
    clock.now += 7
    await quota.take()


async def test_short_waits_are_waited_out() -> None:
    quota = Quota({0.05: 2})
    for _ in range(6):
        await quota.take()


def test_the_windows_are_inside_those_of_the_platform() -> None:
    assert WINDOWS[1.0] < 50
    assert WINDOWS[60.0] < 1000
