"""Platforms and model servers fail or are unreachable: nothing is lost or repeated, and people get a notice."""

import time
from pathlib import Path
from typing import Any

import anyio
import httpx

from tests.eventually import eventually
from tests.fakes.model import FakeModelServer, ModelReply, ModelRequest
from tests.fakes.model_switches import ModelSwitches
from tests.journeys.service import Service, serving, with_model
from tests.people.chat_user import ChatUser
from tests.people.feishu import FeishuPrivateUser
from tests.people.platforms import PlatformServers
from tests.people.slack import SlackDirectUser
from tests.people.telegram import TelegramPrivateUser

PLATFORMS = ("slack", "telegram", "feishu")
RETRY_AFTER_S = 2
CLOCK_S = 0.1


class SendFault:
    """The call that sends a final answer on each platform, and how it can fail."""

    def __init__(self, platforms: PlatformServers) -> None:
        self._town = platforms

    def slow_down(self, channel: str) -> None:
        match channel:
            case "slack":
                headers = {"Retry-After": str(RETRY_AFTER_S)}
                self._town.slack.fail(
                    "chat.postMessage", status=429, error="ratelimited", headers=headers
                )
            case "telegram":
                parameters = {"retry_after": RETRY_AFTER_S}
                self._town.telegram.fail("sendMessage", status=429, parameters=parameters)
            case _:
                headers = {"x-ogw-ratelimit-reset": str(RETRY_AFTER_S)}
                self._town.feishu.fail("message.patch", status=429, code=99991400, headers=headers)

    def unwell(self, channel: str, times: int) -> None:
        match channel:
            case "slack":
                self._town.slack.fail("chat.postMessage", status=503, times=times)
            case "telegram":
                self._town.telegram.fail("sendMessage", status=502, times=times)
            case _:
                self._town.feishu.fail("message.patch", status=502, text="bad", times=times)

    def cut(self, channel: str) -> None:
        """Break the connection before the message arrives."""
        match channel:
            case "slack":
                self._town.slack.fail("chat.postMessage", drop="before")
            case "telegram":
                self._town.telegram.fail("sendMessage", drop="before")
            case _:
                self._town.feishu.fail("message.reply", drop="before")

    def calls(self, channel: str) -> int:
        match channel:
            case "slack":
                return len(self._town.slack.asked("chat.postMessage"))
            case "telegram":
                return len(self._town.telegram.calls("sendMessage"))
            case _:
                calls = ("message.patch", "message.reply")
                return sum(len(self._town.feishu.calls(op)) for op in calls)


async def test_refusals_and_cuts_while_sending_lose_and_repeat_nothing(tmp_path: Path) -> None:
    async with PlatformServers() as platforms, FakeModelServer() as model:
        config = {**with_model(model.base_url), "channels": platforms.channels}
        async with serving(tmp_path, config, *PLATFORMS) as service:
            cut, patient, other, tried = (platforms.private_users(number) for number in range(4))
            async with anyio.create_task_group() as tasks:
                for place in range(len(PLATFORMS)):
                    users = [crowd[place] for crowd in (cut, patient, other, tried)]
                    tasks.start_soon(_send_through_trouble, platforms, users)
            for user in (*cut, *patient, *other, *tried):
                await user.expect_messages("You said: hi")
            async with service.client() as client:
                rows = (await client.get("/api/channels/outbox")).json()["rows"]
        states = sorted((row["channel"], row["state"]) for row in rows)
        assert [state for state in states if state[1] not in ("delivered", "uncertain")] == []
        assert [channel for channel, state in states if state == "uncertain"] in ([], ["telegram"])
        assert platforms.violations == []


async def _send_through_trouble(platforms: PlatformServers, users: list[ChatUser]) -> None:
    """One connection is cut, the next gets Retry-After while a third is answered, and a fourth gets 5xx three times."""
    sending, channel = SendFault(platforms), users[0].channel
    cut, patient, other, tried = users
    before = sending.calls(channel)
    sending.cut(channel)
    await cut.send("hi")
    await eventually(lambda: sending.calls(channel) > before)
    if (
        channel != "telegram"
    ):  # There it takes 10 s, because Telegram cannot say which messages it has.
        await cut.expect_messages("You said: hi")
    refused = sending.calls(channel)
    sending.slow_down(channel)
    await patient.send("hi")
    await eventually(lambda: sending.calls(channel) > refused)
    began = time.monotonic()
    await other.send("hi")
    await other.expect_messages("You said: hi")
    if channel != "feishu":  # Its card shows the growing words. Only the last patch waits.
        assert patient.bot_messages() == []
    await patient.expect_messages("You said: hi")
    if channel != "feishu":
        assert time.monotonic() - began >= RETRY_AFTER_S - CLOCK_S
    sending.unwell(channel, 3)
    await tried.send("hi")
    await tried.expect_messages("You said: hi")


async def test_unreachable_and_refused_platforms_harm_nobody_else(tmp_path: Path) -> None:
    async with PlatformServers() as platforms, FakeModelServer() as model:
        channels = platforms.channels
        channels["slack"] = channels["slack"] | {"bot_token": "xoxb-quite-wrong-secret"}
        config = {**with_model(model.base_url), "channels": channels}
        telegram, feishu = (
            TelegramPrivateUser(platforms.telegram),
            FeishuPrivateUser(platforms.feishu),
        )
        await platforms.telegram.refuse()
        await telegram.send("I came early")
        async with serving(tmp_path, config, "feishu") as service:
            await feishu.send("hi")
            await feishu.expect_messages("You said: hi")
            slack = await _state(service, "slack", "failed")
            assert "channels.slack.bot_token" in slack["detail"]
            assert (await _state(service, "telegram", "connecting", "reconnecting"))["detail"]
            await platforms.telegram.accept()
            await service.until_connected("telegram")
            await telegram.expect_messages("You said: I came early")
            assert await service.stop() == 0
        log = service.log.read_text()
        assert "channels.slack.bot_token" in log
        for secret in (
            "xoxb-quite-wrong-secret",
            platforms.telegram.token,
            platforms.feishu.app_secret,
        ):
            assert secret not in log
        assert "Traceback" not in log
        assert platforms.violations == []


async def test_slack_offline_and_wrong_secrets_elsewhere_harm_no_other_platform(
    tmp_path: Path,
) -> None:
    async with PlatformServers() as platforms, FakeModelServer() as model:
        channels = platforms.channels
        channels["telegram"] = channels["telegram"] | {"bot_token": "700700:quite-wrong-secret"}
        channels["feishu"] = channels["feishu"] | {"app_secret": "feishu-wrong-secret"}
        config = {**with_model(model.base_url), "channels": channels}
        slack = SlackDirectUser(platforms.slack)
        await platforms.slack.go_offline()
        async with serving(tmp_path, config) as service:
            for name in ("telegram", "feishu"):
                detail = (await _state(service, name, "failed"))["detail"]
                assert f"channels.{name}." in detail
            await slack.send("I came early")
            await platforms.slack.come_back()
            await service.until_connected("slack")
            await slack.expect_messages("You said: I came early")
            assert await service.stop() == 0
        log = service.log.read_text()
        for name in ("telegram", "feishu"):
            assert f"channels.{name}." in log
        for secret in ("quite-wrong-secret", "feishu-wrong-secret", platforms.slack.bot_token):
            assert secret not in log
        assert "Traceback" not in log


async def _state(service: Service, name: str, *wanted: str) -> dict[str, Any]:
    """Wait until GET /api/channels shows that a channel is in one of these states and not running."""
    async with service.client() as client:

        async def look() -> dict[str, Any]:
            return dict((await client.get("/api/channels")).json()["channels"][name])

        state = await eventually(look, lambda known: known["state"] in wanted)
    assert state["running"] is False
    return state


def troubled(request: ModelRequest) -> ModelReply:
    """Fail in the way that the message requests."""
    said = request.last_user_text
    if said.isdigit():
        return ModelReply(status=int(said))
    if said == "cut":
        return ModelReply(text="one two three", drop_after=2)
    if said == "hang":
        return ModelReply(text="one two three", hang_after=1)
    return ModelReply(text=f"You said: {said}")


ADVICE = {
    "401": "tell the person who runs this bot",
    "429": "send your message again",
    "500": "send your message again",
    "cut": "send your message again",
}


async def test_failing_models_and_full_conversations_are_reported_and_delay_no_other(
    tmp_path: Path,
) -> None:
    async with PlatformServers() as platforms:
        async with FakeModelServer(answer=troubled) as model:
            channels = {**platforms.channels, "max_queue": 3}
            patience = {"first_wait_s": 0.1}  # The provider's package also waits, for longer.
            config = {
                **with_model(model.base_url),
                "llm_retry": patience,
                "circuit_breaker": {"failure_threshold": 0},  # Here, all fail at the same time.
                "channels": channels,
            }
            async with serving(tmp_path, config, *PLATFORMS) as service:
                async with anyio.create_task_group() as tasks:
                    for busy, other in zip(
                        platforms.private_users(21), platforms.private_users(22), strict=True
                    ):
                        tasks.start_soon(_overfill, model, busy, other)
                    for number, trouble in enumerate(ADVICE):
                        for user in platforms.private_users(number):
                            tasks.start_soon(_fail_and_go_on, user, trouble)
                await model.__aexit__(None, None, None)
                for user in platforms.private_users(9):
                    await user.send("is anybody there?")
                for user in platforms.private_users(9):
                    assert "send your message again" in await user.wait_for_message("⚠️")
                    assert len(user.bot_messages()) == 1
                assert await service.stop() == 0
        log = service.log.read_text()
        assert "sk-test" not in log
        assert platforms.violations == []


async def _fail_and_go_on(user: ChatUser, trouble: str) -> None:
    await user.send(trouble)
    said = await user.wait_for_message("⚠️", ADVICE[trouble])
    assert len(user.bot_messages()) == 1
    await user.send("and now?")
    await user.expect_messages(said, "You said: and now?")


async def _overfill(model: FakeModelServer, busy: ChatUser, other: ChatUser) -> None:
    await busy.send("hang")
    await eventually(lambda: any(_asks(r, "hang") for r in model.requests))
    for number in range(4):
        await busy.send(f"message {number}")
        await anyio.sleep(0.1)  # A platform may report two messages in either order.
    full = await busy.wait_for_message("did not accept")
    await other.send("hi")
    await other.expect_messages("You said: hi")
    await busy.send("/stop")
    # A card may still show work in progress, so only whole answers count.
    whole = [f"You said: message {number}" for number in range(3)]
    await eventually(
        lambda: [text for text in busy.bot_messages() if text.startswith("You said")] == whole
    )
    assert busy.bot_messages().count(full) == 1


def _asks(request: ModelRequest, text: str) -> bool:
    return request.last_user_text == text


async def test_connections_that_break_under_load_lose_and_repeat_nothing(tmp_path: Path) -> None:
    crowd = 8
    async with (
        PlatformServers() as platforms,
        FakeModelServer(ModelSwitches(token_delay_s=0.02)) as model,
    ):
        config = {**with_model(model.base_url), "channels": platforms.channels}
        async with serving(tmp_path, config, *PLATFORMS):
            users = [user for number in range(crowd) for user in platforms.private_users(number)]
            for count, user in enumerate(users):
                await user.send("hi")
                await anyio.sleep(0.02)
                if count % 9 == 4:
                    platforms.telegram.disconnect_all()
                    platforms.feishu.disconnect_all()
                    platforms.slack.cut_all()
            await platforms.slack.disconnect_all()
            for user in users:
                await user.wait_for_message("You said: hi")
            for user in users:
                await user.send("done?")
            for user in users:
                await user.wait_for_message("You said: done?")
                if user.channel == "telegram":  # Parley cannot look up a message that was cut off.
                    assert user.bot_messages().count("You said: hi") <= 2
                else:
                    await user.expect_messages("You said: hi", "You said: done?")
        assert platforms.violations == []


async def test_events_that_a_platform_delivers_twice_are_answered_once(tmp_path: Path) -> None:
    async with PlatformServers() as platforms, FakeModelServer() as model:
        config = {**with_model(model.base_url), "channels": platforms.channels}
        async with serving(tmp_path, config, *PLATFORMS) as service:
            users = platforms.private_users(1)
            for user in users:
                await user.send("hi")
            for user in users:
                await user.expect_messages("You said: hi")
            await _repeat_all(platforms)
            await service.until_recorded()
            await service.kill()
            await service.start()
            await service.until_connected(*PLATFORMS)
            await _repeat_all(platforms)
            for user in users:
                await user.send("again")
            for user in users:
                await user.expect_messages("You said: hi", "You said: again")
            await _start_anew(service, users, model)
        assert platforms.violations == []


async def _repeat_all(platforms: PlatformServers) -> None:
    """Let each platform deliver its first message again: the same event, then a new event of the same message."""
    slack = next(e for e in platforms.slack.sockets.envelopes if e.kind == "events_api").payload
    again = [
        platforms.slack.send_event(slack["event"], event_id=slack["event_id"]),
        platforms.slack.send_event(slack["event"]),
    ]
    person, bodies = 5001, platforms.telegram
    first = next(m for m in bodies.messages(person) if not m.by_bot)
    update = platforms.telegram.push({"message": platforms.telegram.json_of(first)})
    event = platforms.feishu.state.events[0]
    platforms.feishu.push_again(event)
    renewed = await platforms.feishu.push("im.message.receive_v1", event.payload["event"])
    await eventually(lambda: all(e.acked for e in again))
    await eventually(lambda: update in platforms.telegram.confirmed)
    await eventually(lambda: event.acked and renewed.acked)


async def _start_anew(service: Service, users: list[ChatUser], model: FakeModelServer) -> None:
    """/new creates a thread that does not contain the earlier messages."""
    async with service.client() as client:
        for user in users:
            old = await _thread(user, 3)
            await user.send("/new")
            await user.wait_for_message("New conversation started.")
            await user.send(f"fresh from {user.name}")
            await user.wait_for_message(f"You said: fresh from {user.name}")
            new = await _thread(user, 6)
            assert new != old
            await _is_known(client, new)
            (request,) = [r for r in model.requests if _asks(r, f"fresh from {user.name}")]
            assert [m for m in request.messages if m["content"] in ("hi", "again")] == []


async def _thread(user: ChatUser, position: int) -> str:
    """Send /status. Return the thread in its answer, which is the message at this position."""
    await user.send("/status")
    await eventually(lambda: len(user.bot_messages()) >= position)
    return user.bot_messages()[position - 1].removeprefix("Active thread: ").strip()


async def _is_known(client: httpx.AsyncClient, thread: str) -> None:
    found = await client.post("/api/threads/search", json={"limit": 100})
    assert thread in {row["thread_id"] for row in found.json()}
