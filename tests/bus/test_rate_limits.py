"""The limit of messages per person, and what happens to messages beyond it."""

from pathlib import Path

import pytest

from bots.config import TerminalConfig
from bus.config import BusConfig, ChannelPolicy, RateLimit, RateOverride
from bus.inbound.rate_limits import COMMAND_LIMIT, SenderRateLimiter, rate_limit_for
from bus.platform import Disposition
from store.errors import StoreUnavailable
from tests.bus.harness import inbound_message, running_bus
from tests.bus.test_full_disk import fill, make_room
from tests.eventually import eventually

THREE = RateLimit(messages=3, per_seconds=60)
CONFIG = BusConfig(drain_s=0.1, rate_limit=THREE)
TOLD = (
    "You are sending messages too fast, so I did not accept this one. Please send it again in {}."
)
ADMIN = ChannelPolicy(dm_policy="open", admin_users=["u"])


async def test_people_over_the_rate_limit_are_told_in_each_chat_when_to_write_again(
    tmp_path: Path,
) -> None:
    async with running_bus(tmp_path, config=CONFIG, policy=ADMIN) as harness:
        reasons = [await harness.send(f"m{i}", chat=f"c{i}") for i in range(5)]
        assert reasons == [Disposition.ACCEPTED] * 3 + [Disposition.RATE_LIMITED] * 2
        await harness.expect_replies(*["Hello you"] * 3, *[TOLD.format("60 seconds")] * 2)
        # Other people and commands are not delayed.
        assert await harness.send("hi", user="v") is Disposition.ACCEPTED
        assert await harness.send("/why", chat="c3") is Disposition.ACCEPTED
        await eventually(lambda: len(harness.platform.texts) == 7)
        why = next(text for text in harness.platform.texts if "Not accepted" in text)
        assert "`rate_limited` (the sender exceeded the rate limit)" in why
        assert harness.bus.counters()[("fake", Disposition.RATE_LIMITED)] == 2


async def test_the_remaining_time_is_shown(tmp_path: Path) -> None:
    async with running_bus(tmp_path, config=CONFIG) as harness:
        for number in range(3):
            await harness.send(f"m{number}")
        harness.clock.ahead = 40
        assert await harness.send("too soon") is Disposition.RATE_LIMITED
        await harness.expect_replies(*["Hello you"] * 3, TOLD.format("20 seconds"))
        harness.clock.ahead = 61
        assert await harness.send("now") is Disposition.ACCEPTED


@pytest.mark.parametrize(
    ("language", "told"),
    [
        ("en", TOLD.format("24 hours")),
        ("zh", "你发送消息过于频繁，这条消息未被接收。请在 24 小时后重新发送。"),
    ],
)
async def test_a_long_wait_is_told_in_hours(tmp_path: Path, language: str, told: str) -> None:
    limits = BusConfig(drain_s=0.1, rate_limit=RateLimit(messages=1, per_seconds=86_400))
    async with running_bus(tmp_path, config=limits) as harness:
        await harness.send("first", language=language)
        harness.clock.ahead = 8
        await harness.send("second", language=language)
        await harness.expect_replies("Hello you", told)


async def test_a_refused_message_is_not_run_when_the_platform_sends_it_again(
    tmp_path: Path,
) -> None:
    async with running_bus(tmp_path, config=CONFIG) as harness:
        for number in range(3):
            await harness.send(f"m{number}")
        assert await harness.send("lost", event="lost") is Disposition.RATE_LIMITED
        harness.clock.ahead = 120
        assert await harness.send("lost", event="lost") is Disposition.DUPLICATE


async def test_messages_written_over_hours_are_accepted_when_they_arrive_at_once(
    tmp_path: Path,
) -> None:
    async with running_bus(tmp_path, config=CONFIG) as harness:
        outage = harness.clock() - 3600
        moments = [outage + 30 * number for number in range(10)]
        reasons = [await harness.send(f"m{at}", chat=f"c{at}", sent_at=at) for at in moments]
        assert set(reasons) == {Disposition.ACCEPTED}
        burst = [await harness.send(f"b{n}", chat=f"b{n}", sent_at=outage + 400) for n in range(4)]
        assert burst == [Disposition.ACCEPTED] * 3 + [Disposition.RATE_LIMITED]


async def test_refused_messages_are_not_counted(tmp_path: Path) -> None:
    async with running_bus(tmp_path, config=CONFIG) as harness:
        for _ in range(5):
            await harness.send("once", event="same")
        assert await harness.send("two") is Disposition.ACCEPTED
        assert await harness.send("three") is Disposition.ACCEPTED
        assert await harness.send("four") is Disposition.RATE_LIMITED


async def test_messages_that_could_not_be_stored_are_not_counted(tmp_path: Path) -> None:
    """The platform keeps resending the message. Once there is room, it counts as its sender's first one."""
    async with running_bus(tmp_path, config=CONFIG) as harness:
        await fill(harness.database)
        for _ in range(THREE.messages):
            with pytest.raises(StoreUnavailable):
                await harness.send("long " * 4000, event="same")
        await make_room(harness.database)
        assert await harness.send("long " * 4000, event="same") is Disposition.ACCEPTED
        await harness.expect_replies("Hello you")


async def test_commands_have_a_bound_of_their_own(tmp_path: Path) -> None:
    async with running_bus(tmp_path, config=CONFIG) as harness:
        for _ in range(COMMAND_LIMIT.messages):
            assert await harness.send("/stop") is Disposition.ACCEPTED
        assert await harness.send("/stop") is Disposition.RATE_LIMITED
        assert await harness.send("hello") is Disposition.ACCEPTED


@pytest.mark.parametrize(
    ("override", "taken"), [(RateOverride(), 3), (RateOverride(messages=1), 1)]
)
async def test_a_channel_may_have_its_own_bound(
    tmp_path: Path, override: RateOverride, taken: int
) -> None:
    policy = ChannelPolicy(dm_policy="open", rate_limit=override)
    async with running_bus(tmp_path, config=CONFIG, policy=policy) as harness:
        reasons = [await harness.send(f"m{number}") for number in range(4)]
        assert reasons.count(Disposition.ACCEPTED) == taken


async def test_without_a_rate_limit_any_number_is_accepted(tmp_path: Path) -> None:
    unbound = CONFIG.model_copy(update={"rate_limit": RateLimit(messages=0)})
    async with running_bus(tmp_path, config=unbound) as harness:
        reasons = {
            await harness.send("/stop" if i % 2 else f"m{i}", chat=f"c{i}") for i in range(80)
        }
        assert reasons == {Disposition.ACCEPTED}


def test_people_are_counted_by_platform_and_workspace_for_a_limited_time() -> None:
    rates = SenderRateLimiter(max_senders=2)
    one = RateLimit(messages=1, per_seconds=10)
    ann, bob, eve = (inbound_message("x", "e", user=name) for name in ("ann", "bob", "eve"))
    assert rates.acquire(ann, one, kind="chat", now=100.0) == 0
    assert rates.acquire(ann, one, kind="chat", now=103.0) == 7
    assert (
        rates.acquire(
            inbound_message("x", "e", user="ann", channel="other"), one, kind="chat", now=103
        )
        == 0
    )
    assert rates.acquire(bob, one, kind="chat", now=103.0) == 0
    assert rates.acquire(eve, one, kind="chat", now=103.0) == 0
    assert len(rates._sent) == 2
    assert rates.acquire(ann, one, kind="chat", now=103.0) == 0  # forgotten in the meantime


def test_a_clock_that_is_set_back_refuses_nobody() -> None:
    rates = SenderRateLimiter()
    one = RateLimit(messages=1, per_seconds=10)
    assert rates.acquire(inbound_message("x", "e"), one, kind="chat", now=100.0) == 0
    assert rates.acquire(inbound_message("x", "e"), one, kind="chat", now=50.0) == 0


def test_the_terminal_takes_lines_from_files() -> None:
    assert rate_limit_for(BusConfig(), TerminalConfig()).messages == 0
