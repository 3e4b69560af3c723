"""All three platforms call the service over HTTP: the same six places, and nothing lost while it is away."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import yaml

from tests.fakes.model import FakeModelServer, ModelRequest, Reply
from tests.journeys.people import Town
from tests.journeys.service import Service, with_model

CHANNELS = ("slack", "telegram", "feishu")


def called(town: Town, url: str) -> dict[str, Any]:
    """Return the `channels` section of a service that the town's platforms call at `url`."""
    channels = town.channels
    channels["slack"] |= {"mode": "http", "signing_secret": town.slack.events.secret}
    del channels["slack"]["app_token"]
    channels["telegram"] |= {
        "mode": "webhook",
        "webhook_url": f"{url}/webhooks/telegram",
        "webhook_secret": "a-secret-for-the-journey",
    }
    post = town.feishu.poster
    channels["feishu"] |= {
        "mode": "webhook",
        "encrypt_key": post.encrypt_key,
        "verification_token": post.token,
    }
    return channels


@asynccontextmanager
async def serving(folder: Path, town: Town, model: FakeModelServer) -> AsyncIterator[Service]:
    """Start a service, let the platforms know its address, and wait until they proved themselves."""
    service = Service(folder, {})
    whole = {
        "config_version": 1,
        "gateway": {"port": service.port},
        **with_model(model.base_url),
        "channels": called(town, service.url),
    }
    service.config.write_text(yaml.safe_dump(whole, allow_unicode=True))
    await service.start()
    try:
        town.slack.call_at(f"{service.url}/webhooks/slack")
        town.feishu.call_at(f"{service.url}/webhooks/feishu")
        await service.until_connected(*CHANNELS)
        yield service
    finally:
        if service.running:
            with anyio.CancelScope(shield=True):
                await service.kill()


async def test_every_place_is_answered_once_and_remembers(tmp_path: Path) -> None:
    async with (
        Town() as town,
        FakeModelServer() as model,
        serving(tmp_path, town, model) as service,
    ):
        async with anyio.create_task_group() as people:
            for seat in town.seats:
                people.start_soon(seat.say, f"hello from {seat.name}")
        for seat in town.seats:
            await seat.hears(f"You said: hello from {seat.name}")
        for seat in town.seats:
            await seat.say(f"again from {seat.name}")
        for seat in town.seats:
            greeted = f"You said: hello from {seat.name}"
            await seat.hears(greeted, f"You said: again from {seat.name}")
            assert seat.stray() == []
        assert await service.stop() == 0
        assert town.slack.sockets.connects == 0
        assert town.telegram.calls("getUpdates") == []
        assert not town.feishu.past_connections
        assert town.violations == []


async def test_killed_after_it_acknowledged_and_written_to_while_it_is_away(tmp_path: Path) -> None:
    async with (
        Town() as town,
        FakeModelServer() as model,
        serving(tmp_path, town, model) as service,
    ):
        town.slack.events.retries_s = (0.5,) * 100
        model.answer = _slow
        seats = town.person(1)
        for seat in seats:
            await seat.say("hello")
        await town.slack.wait_for(lambda: all(e.acked for e in town.slack.sockets.envelopes))
        await town.telegram.wait_for(lambda: town.telegram.backlog == 0)
        await town.feishu.wait_for(lambda: all(e.acked for e in town.feishu.world.events))
        await service.kill()
        for seat in seats:
            await seat.say("are you there?")
        await service.start()
        for seat in seats:
            await seat.hears("You said: hello", "You said: are you there?")
        await service.until_connected(*CHANNELS)
        assert town.violations == []


def _slow(request: ModelRequest) -> Reply:
    return Reply(text=f"You said: {request.last_user_text}", first_token_delay_s=0.5)
