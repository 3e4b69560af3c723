"""After kill -9 at bad moments, each message is answered: on Feishu exactly once, elsewhere at most twice."""

from pathlib import Path
from typing import Any

import pytest

from tests.eventually import eventually
from tests.fakes.model import FakeModelServer, ModelReply, ModelRequest
from tests.journeys.service import Service, serving, with_model
from tests.people.chat_user import ChatUser
from tests.people.platforms import PlatformServers

PLATFORMS = ("slack", "telegram", "feishu")


async def restart(service: Service) -> None:
    await service.kill()
    await service.start()
    await service.until_connected(*PLATFORMS)


async def test_killed_in_mid_run_every_message_is_answered_once(
    tmp_path: Path, with_database: dict[str, Any]
) -> None:
    async with PlatformServers() as platforms, FakeModelServer() as model:
        config = {**with_model(model.base_url), **with_database, "channels": platforms.channels}
        async with serving(tmp_path, config, *PLATFORMS) as service:
            model.reply(
                *[ModelReply(text="never to be finished", hang_after=2)] * len(platforms.users)
            )
            for user in platforms.users:
                await user.send(f"hi from {user.name}")
            await model.until(lambda m: len(m.requests) == len(platforms.users))
            await restart(service)
            for user in platforms.users:
                await user.expect_messages(f"You said: hi from {user.name}")
                assert user.misplaced_messages() == []
        assert platforms.violations == []


async def test_killed_right_after_the_acknowledgement_nothing_is_lost(
    tmp_path: Path, with_database: dict[str, Any]
) -> None:
    async with PlatformServers() as platforms, FakeModelServer() as model:
        config = {**with_model(model.base_url), **with_database, "channels": platforms.channels}
        async with serving(tmp_path, config, *PLATFORMS) as service:
            model.answer = _slow
            for user in platforms.users:
                await user.send(f"hi from {user.name}")
            await platforms.slack.wait_for(
                lambda: all(e.acked for e in platforms.slack.sockets.envelopes)
            )
            await platforms.feishu.wait_for(
                lambda: all(e.acked for e in platforms.feishu.state.events)
            )
            await restart(service)
            for user in platforms.users:
                await user.expect_messages(f"You said: hi from {user.name}")
        assert platforms.violations == []


@pytest.mark.parametrize("kind", range(2), ids=["thread, private, private", "dm, topic, group"])
async def test_a_kill_between_reply_and_record_loses_no_answer(tmp_path: Path, kind: int) -> None:
    """The answer is sent, the connection breaks before the platform's response arrives, and then comes kill -9."""
    async with PlatformServers() as platforms, FakeModelServer() as model:
        users = platforms.users[kind::2]  # One on each platform.
        config = {**with_model(model.base_url), "channels": platforms.channels}
        async with serving(tmp_path, config, *PLATFORMS) as service:
            for user in users:
                user.lose_next_response()
                await user.send("hi")
            for user in users:
                await _sees(user, "You said: hi")
            await restart(service)
            for user in users:
                await user.send("still there?")
            for user in users:
                await _sees(user, "You said: still there?")
            answers = {user.channel: user.bot_messages().count("You said: hi") for user in users}
            assert (answers["slack"], answers["feishu"]) == (1, 1)
            assert answers["telegram"] <= 2
            async with service.client() as client:
                rows = _rows((await client.get("/api/channels/outbox")).json())
            states = [row["state"] for row in rows if row["channel"] == "telegram"]
            assert states.count("uncertain") == answers["telegram"] - 1
        assert platforms.violations == []


async def test_sigterm_while_a_run_hangs_ends_in_time_and_the_turn_is_taken_up_again(
    tmp_path: Path,
) -> None:
    async with PlatformServers() as platforms, FakeModelServer() as model:
        config = {**with_model(model.base_url), "channels": platforms.channels}
        async with serving(tmp_path, config, *PLATFORMS) as service:
            model.reply(*[ModelReply(text="never", hang_after=0)] * len(platforms.users))
            for user in platforms.users:
                await user.send("hi")
            await model.until(lambda m: len(m.requests) == len(platforms.users))
            assert await service.stop() == 0
            await service.start()
            for user in platforms.users:
                await user.expect_messages("You said: hi")
        assert platforms.violations == []


def _slow(request: ModelRequest) -> ModelReply:
    return ModelReply(text=f"You said: {request.last_user_text}", first_token_delay_s=0.5)


def _rows(body: object) -> list[dict[str, object]]:
    found = body["rows"] if isinstance(body, dict) else body
    assert isinstance(found, list)
    return found


async def _sees(user: ChatUser, text: str) -> None:
    await eventually(lambda: text in user.bot_messages())
