"""All three platforms call the service over HTTP: the same six places, and no message is lost during a stop."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import yaml

from tests.fakes.model import FakeModelServer, ModelReply, ModelRequest
from tests.journeys.service import Service, with_model
from tests.people.platforms import PlatformServers

CHANNELS = ("slack", "telegram", "feishu")


def called(platforms: PlatformServers, url: str) -> dict[str, Any]:
    """Return the `channels` section of a service that the platforms call at `url`."""
    channels = platforms.channels
    channels["slack"] |= {"mode": "http", "signing_secret": platforms.slack.events.secret}
    del channels["slack"]["app_token"]
    channels["telegram"] |= {
        "mode": "webhook",
        "webhook_url": f"{url}/webhooks/telegram",
        "webhook_secret": "a-secret-for-the-journey",
    }
    post = platforms.feishu.poster
    channels["feishu"] |= {
        "mode": "webhook",
        "encrypt_key": post.encrypt_key,
        "verification_token": post.token,
    }
    return channels


@asynccontextmanager
async def serving(
    folder: Path, platforms: PlatformServers, model: FakeModelServer
) -> AsyncIterator[Service]:
    """Start a service, tell the platforms its address, and wait until each has sent a valid request."""
    service = Service(folder, {})
    whole = {
        "config_version": 1,
        "gateway": {"port": service.port},
        **with_model(model.base_url),
        "channels": called(platforms, service.url),
    }
    service.config.write_text(yaml.safe_dump(whole, allow_unicode=True))
    await service.start()
    try:
        platforms.slack.call_at(f"{service.url}/webhooks/slack")
        platforms.feishu.call_at(f"{service.url}/webhooks/feishu")
        await service.until_connected(*CHANNELS)
        yield service
    finally:
        if service.running:
            with anyio.CancelScope(shield=True):
                await service.kill()


async def test_every_place_is_answered_once_and_remembers(tmp_path: Path) -> None:
    async with (
        PlatformServers() as platforms,
        FakeModelServer() as model,
        serving(tmp_path, platforms, model) as service,
    ):
        async with anyio.create_task_group() as people:
            for user in platforms.users:
                people.start_soon(user.send, f"hello from {user.name}")
        for user in platforms.users:
            await user.expect_messages(f"You said: hello from {user.name}")
        for user in platforms.users:
            await user.send(f"again from {user.name}")
        for user in platforms.users:
            greeted = f"You said: hello from {user.name}"
            await user.expect_messages(greeted, f"You said: again from {user.name}")
            assert user.misplaced_messages() == []
        assert await service.stop() == 0
        assert platforms.slack.sockets.connects == 0
        assert platforms.telegram.calls("getUpdates") == []
        assert not platforms.feishu.past_connections
        assert platforms.violations == []


async def test_killed_after_it_acknowledged_and_written_to_while_it_is_away(tmp_path: Path) -> None:
    async with (
        PlatformServers() as platforms,
        FakeModelServer() as model,
        serving(tmp_path, platforms, model) as service,
    ):
        platforms.slack.events.retries_s = (0.5,) * 100
        model.answer = _slow
        users = platforms.private_users(1)
        for user in users:
            await user.send("hello")
        await platforms.slack.wait_for(
            lambda: all(e.acked for e in platforms.slack.sockets.envelopes)
        )
        await platforms.telegram.wait_for(lambda: platforms.telegram.backlog == 0)
        await platforms.feishu.wait_for(lambda: all(e.acked for e in platforms.feishu.state.events))
        await service.kill()
        for user in users:
            await user.send("are you there?")
        await service.start()
        for user in users:
            await user.expect_messages("You said: hello", "You said: are you there?")
        await service.until_connected(*CHANNELS)
        assert platforms.violations == []


def _slow(request: ModelRequest) -> ModelReply:
    return ModelReply(text=f"You said: {request.last_user_text}", first_token_delay_s=0.5)
