"""The shared parts of adapters: connection loop, health, limits, background tasks, greeting, indicator."""

import logging
from collections.abc import Awaitable, Callable
from itertools import pairwise
from pathlib import Path

import anyio
import anyio.lowlevel
import pytest
from typing_extensions import override

from bots.common.adapter import BaseAdapter
from bots.common.background import MAX_TASKS, BackgroundTasks
from bots.common.call_limits import AccountLimiter, RateLimiter
from bots.common.connection import ConnectionFailure, ConnectionLoop
from bots.common.greeting import Greeting
from bots.common.health import HealthTracker
from bots.common.indicators import ReactionIndicator
from bots.common.webhooks import WebhookHealth, WebhookRequest
from bots.config import PlatformConfig
from bus.config import ChannelPolicy
from bus.errors import DeliveryError
from bus.locales import LANGUAGES, messages_for
from bus.messages import MessageId, ReplyTarget
from bus.platform import Capabilities, ConnectionState, Intake, OutgoingFile
from bus.retry import Backoff
from tests.eventually import eventually
from tests.fakes.clock import ManualClock
from tests.fakes.intake import RecordingIntake

FAST = Backoff(first_s=0.01, cap_s=0.02, jitter=0.0)


async def run_loop(
    connect: Callable[[], Awaitable[None]],
    health: HealthTracker,
    done: Callable[[], bool],
    *,
    loop: ConnectionLoop | None = None,
) -> None:
    loop = loop or ConnectionLoop(health, backoff=FAST, failed_retry_s=0.02, stable_s=0.0)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(loop.run, connect)
        await eventually(done)
        tasks.cancel_scope.cancel()


async def test_the_loop_reconnects_and_health_follows() -> None:
    health = HealthTracker("acme")
    states: list[tuple[ConnectionState, str]] = []

    async def connect() -> None:
        states.append((health.state, health.health().detail))
        match len(states):
            case 1:
                raise ConnectionFailure("no route")
            case 2:
                raise DeliveryError("token refused")
            case 3:
                health.mark_connected()
            case 4:
                health.mark_connected()
                raise DeliveryError("broken pipe", retryable=True)

    await run_loop(connect, health, lambda: len(states) == 5)
    assert states == [
        (ConnectionState.CONNECTING, ""),
        (ConnectionState.CONNECTING, "no route"),
        (ConnectionState.FAILED, "token refused"),
        (ConnectionState.RECONNECTING, "The connection was closed. Reconnecting."),
        (ConnectionState.RECONNECTING, "broken pipe"),
    ]


async def test_delays_grow_and_respect_the_platforms_own() -> None:
    health = HealthTracker("acme")
    started: list[float] = []
    loop = ConnectionLoop(health, backoff=Backoff(first_s=0.02, cap_s=1.0, jitter=0.0))

    async def connect() -> None:
        started.append(anyio.current_time())
        raise ConnectionFailure("busy", retry_after_s=0.2 if len(started) == 3 else None)

    await run_loop(connect, health, lambda: len(started) == 4, loop=loop)
    first, second, third = (b - a for a, b in pairwise(started))
    assert first >= 0.02
    assert second >= 0.04  # Both may be late on a busy machine.
    assert third >= 0.2


async def test_reconnect_ends_the_connection_and_the_wait() -> None:
    health = HealthTracker("acme")
    loop = ConnectionLoop(health, backoff=Backoff(first_s=60.0, cap_s=60.0))
    attempts = 0

    async def connect() -> None:
        nonlocal attempts
        attempts += 1
        if attempts == 1:
            raise ConnectionFailure("gone")
        health.mark_connected()
        await anyio.sleep_forever()

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(loop.run, connect)
        await eventually(lambda: attempts == 1)
        loop.reconnect()
        await eventually(lambda: health.state is ConnectionState.CONNECTED)
        loop.reconnect()
        await eventually(lambda: attempts == 3)
        tasks.cancel_scope.cancel()


async def test_an_unknown_error_leaves_the_loop() -> None:
    health = HealthTracker("acme")

    async def connect() -> None:
        raise KeyError("bug")

    with pytest.raises(KeyError):
        await ConnectionLoop(health).run(connect)


def test_health_changes_are_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    clock = ManualClock()
    health = HealthTracker("acme-2", clock)
    health.mark_connecting()
    for _ in range(3):
        clock.now += 1
        health.mark_connected()
        health.mark_event()
    health.set_warning("scope missing")
    assert (health.health().since, health.health().last_event_at) == (1001.0, 1003.0)
    assert health.health().detail == "scope missing"
    health.mark_failed("token refused")
    assert health.health().detail == "token refused"
    health.mark_stopped()
    assert health.state is ConnectionState.FAILED
    assert [record.getMessage() for record in caplog.records] == [
        "acme-2: connecting",
        "acme-2: connected",
        "acme-2: scope missing",
        "acme-2: failed: token refused",
    ]


def test_a_webhook_channel_is_connected_after_the_first_verified_request() -> None:
    tracker = HealthTracker("acme")
    tracker.mark_connecting()
    health = WebhookHealth(tracker, "Set the request URL.")
    health.mark_rejected("unsigned")
    assert tracker.health().detail == ""
    health.mark_ready()
    assert tracker.health().awaiting_first_event
    health.mark_rejected("unsigned")
    assert "rejected: unsigned" in tracker.health().detail
    health.mark_verified()
    assert tracker.health().state is ConnectionState.CONNECTED
    assert not tracker.health().awaiting_first_event
    health.mark_unready()
    tracker.mark_disconnected("token refused")
    health.mark_verified()
    assert tracker.health().state is ConnectionState.RECONNECTING


def test_windows_slide_and_shares_leave_room() -> None:
    clock = ManualClock()
    limiter = RateLimiter({1.0: 2, 60.0: 4}, clock=clock)
    assert [limiter.try_acquire() for _ in range(3)] == [0.0, 0.0, 1.0]
    clock.now += 1.0
    assert limiter.delay_s(share=0.5) == 59.0
    assert [limiter.try_acquire() for _ in range(2)] == [0.0, 0.0]
    clock.now += 1.0
    assert limiter.try_acquire() == 58.0
    clock.now += 58.0
    limiter.pause(5.0)
    limiter.pause(2.0)
    assert limiter.try_acquire() == 5.0


async def test_required_calls_wait_and_optional_ones_do_not() -> None:
    clock = ManualClock()
    limiter = AccountLimiter(
        {60.0: 40},
        chat_windows=lambda chat: {60.0: 4} if chat == "group" else {},
        max_wait_s=1.0,
        clock=clock,
    )
    for _ in range(2):
        await limiter.acquire("group", share=0.5)
    with pytest.raises(DeliveryError) as refused:
        await limiter.acquire("group", share=0.5)
    assert (refused.value.retryable, refused.value.retry_after_s) == (True, 60.0)
    for _ in range(4):  # the platform itself refuses required calls
        await limiter.acquire("group")
    limiter.pause(7.0, "person")
    with pytest.raises(DeliveryError):
        await limiter.acquire("person", share=0.9)
    await limiter.acquire("person")
    for _ in range(33):
        await limiter.acquire("other")
    with pytest.raises(DeliveryError):
        await limiter.acquire("other")


async def test_required_calls_are_spaced() -> None:
    limiter = AccountLimiter({0.1: 5})
    began = anyio.current_time()
    for _ in range(11):
        await limiter.acquire()
    assert anyio.current_time() - began >= 0.2


async def test_processes_share_the_limits_of_an_account() -> None:
    nodes = 2
    limiter = AccountLimiter({60.0: 10}, max_wait_s=0.0, divide_limit=lambda limit: limit // nodes)
    for _ in range(5):
        await limiter.acquire()
    with pytest.raises(DeliveryError):
        await limiter.acquire()
    nodes = 1  # the other process ended: this one gets the whole limit
    for _ in range(5):
        await limiter.acquire()
    with pytest.raises(DeliveryError):
        await limiter.acquire()


async def test_a_429_pauses_what_it_was_about() -> None:
    limiter = AccountLimiter({60.0: 40})
    with pytest.raises(DeliveryError):
        async with limiter.limit("chat"):
            raise DeliveryError("429", retryable=True, retry_after_s=30.0)
    with pytest.raises(DeliveryError):
        await limiter.acquire("chat", share=0.9)
    await limiter.acquire("another", share=0.9)
    with pytest.raises(DeliveryError):
        async with limiter.limit():
            raise DeliveryError("429", retryable=True, retry_after_s=30.0)
    with pytest.raises(DeliveryError):
        await limiter.acquire("another")


async def test_background_tasks_fail_alone(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    background = BackgroundTasks("acme", timeout_s=0.05)
    done: list[str] = []

    async def succeed() -> None:
        done.append("ok")

    async def refuse() -> None:
        raise DeliveryError("chat not found")

    async def break_down() -> None:
        raise KeyError("bug")

    background.start("before", succeed)
    async with background.running():
        for name, task in (("a", refuse), ("b", break_down), ("c", anyio.sleep_forever)):
            background.start(name, task)
        background.start("d", succeed)
        await eventually(lambda: "acme: c: timed out" in caplog.messages)
    assert done == ["ok"]
    assert {"acme: before: skipped", "acme: a: chat not found", "acme: b failed"} <= set(
        caplog.messages
    )


async def test_background_tasks_are_bounded_and_end_with_the_adapter() -> None:
    background = BackgroundTasks("acme")
    started = 0

    async def wait() -> None:
        nonlocal started
        started += 1
        await anyio.sleep_forever()

    async def run() -> None:
        async with background.running():
            for _ in range(MAX_TASKS + 5):
                background.start("task", wait)
            await eventually(lambda: started == MAX_TASKS)
            raise ValueError("the adapter's own")

    with pytest.raises(ValueError, match="the adapter's own"):
        await run()


async def test_greetings_follow_the_policy() -> None:
    sent: list[tuple[str, str, str]] = []

    async def send(target: ReplyTarget, markdown: str, *, key: str) -> MessageId:
        sent.append((target.chat, markdown, key))
        return MessageId("1")

    background = BackgroundTasks("acme")
    async with background.running():
        open_to_all = Greeting(ChannelPolicy(dm_policy="open"), send, background)
        open_to_all.greet_group("g1", event_id="7", language="zh")
        open_to_all.greet_group("g2", event_id="8")
        open_to_all.greet_user("c1", "ann")
        german = ChannelPolicy(language="zh", dm_policy="open", allowed_users=["ann"])
        listed = Greeting(german, send, background)
        listed.greet_user("c2", "ann", language="en")
        listed.greet_user("c3", "bob")
        closed = ChannelPolicy(group_policy="disabled", dm_policy="disabled")
        Greeting(closed, send, background).greet_group("g3", event_id="9")
        Greeting(closed, send, background).greet_user("c4", "ann")
        await eventually(lambda: len(sent) == 4)
    assert sent[0] == ("g1", messages_for("zh").hello_group, "hello 7")
    assert all(locale.hello_group in sent[1][1] for locale in LANGUAGES.values())
    assert (sent[2][0], sent[2][2]) == ("c1", "hello")
    assert sent[3] == ("c2", messages_for("zh").hello_private, "hello")


async def test_the_reaction_shows_work_and_its_outcome() -> None:
    shown: list[str] = []

    async def add(target: ReplyTarget, name: str) -> str:
        shown.append(f"{target.reply_to}+{name}")
        return name

    async def remove(target: ReplyTarget, reaction: str) -> None:
        shown.append(f"{target.reply_to}-{reaction}")

    async def find(target: ReplyTarget, name: str) -> list[str]:
        return [name] if target.reply_to == "m3" else []

    indicator = ReactionIndicator(add, remove, working="eyes", done="ok", failed="x", find=find)
    target = ReplyTarget(chat="c", reply_to="m1")
    await indicator.show_working(target)
    await indicator.show_working(target)
    await indicator.show_finished(target, ok=True)
    await indicator.show_finished(ReplyTarget(chat="c", reply_to="m2"), ok=False)
    await indicator.show_finished(ReplyTarget(chat="c", reply_to="m3"), ok=True)
    await indicator.show_working(ReplyTarget(chat="c"))
    await indicator.show_finished(ReplyTarget(chat="c"), ok=True)
    assert shown == ["m1+eyes", "m1-eyes", "m1+ok", "m2+x", "m3-eyes", "m3+ok"]


class TextOnlyAdapter(BaseAdapter):
    """An adapter of a platform without files, with only the required overrides."""

    capabilities = Capabilities(streaming=False)

    @override
    async def connect(self, intake: Intake) -> None:
        await self.check_regularly(anyio.lowlevel.checkpoint)

    @override
    async def send(self, target: ReplyTarget, markdown: str, *, key: str) -> MessageId:
        return MessageId("m1")


async def test_a_missing_capability_is_reported_and_breaks_nothing(tmp_path: Path) -> None:
    adapter = TextOnlyAdapter("acme", PlatformConfig(platform="acme", mode="webhook"))
    report = OutgoingFile(
        path=tmp_path / "r.pdf", name="r.pdf", mime="application/pdf", size_bytes=1
    )
    with pytest.raises(
        DeliveryError, match=r"does not support files, so r\.pdf cannot be sent"
    ) as caught:
        await adapter.send_file(ReplyTarget(chat="c"), report, key="k")
    assert not caught.value.retryable
    async with anyio.create_task_group() as tasks:
        await tasks.start(adapter.run, RecordingIntake())
        await eventually(lambda: adapter.health().state is ConnectionState.CONNECTED)
        assert adapter.webhook is not None
        pushed = await adapter.webhook.handle(WebhookRequest(headers={}, body=b"{}"))
        assert pushed.status == 503
        tasks.cancel_scope.cancel()
