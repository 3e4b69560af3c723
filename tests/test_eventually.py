"""The waiting helper: its result, and its message if the condition never holds."""

import anyio
import anyio.lowlevel
import pytest

from tests.eventually import eventually, is_waiting


async def test_the_first_result_that_holds_is_returned() -> None:
    results = iter([None, [], ["late"]])
    assert await eventually(lambda: next(results), every_s=0) == ["late"]
    numbers = iter(range(10))

    async def number() -> int:
        return next(numbers)

    assert await eventually(number, lambda value: value > 2, every_s=0) == 3


async def test_a_condition_that_never_holds_fails_with_what_was_seen() -> None:
    texts = ["one", "two"]
    with pytest.raises(AssertionError) as raised:
        await eventually(lambda: len(texts) >= 3 and texts[0] == "three", within_s=0.01)
    assert str(raised.value) == (
        "not within 0.01 s; last seen: False\n  texts = ['one', 'two']\n  texts[0] = 'one'"
    )


async def test_a_failed_assertion_of_the_probe_is_what_was_seen() -> None:
    def probe() -> bool:
        raise AssertionError("two are missing")

    with pytest.raises(AssertionError, match="two are missing"):
        await eventually(probe, within_s=0.01)


async def test_a_probe_that_hangs_is_given_up() -> None:
    with pytest.raises(AssertionError, match="did not return"):
        await eventually(anyio.sleep_forever, within_s=0.01)


async def test_a_call_that_waits_is_canceled_and_one_that_returns_does_not_wait() -> None:
    ended = []

    async def sleep() -> None:
        try:
            await anyio.sleep_forever()
        finally:
            ended.append("sleep")

    async def yield_often() -> None:
        for _ in range(20):
            await anyio.lowlevel.checkpoint()

    assert await is_waiting(sleep)
    assert ended == ["sleep"]
    assert not await is_waiting(yield_often)
