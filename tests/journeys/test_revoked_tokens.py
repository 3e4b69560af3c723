"""Tokens are revoked while the service runs. After the next message, its status shows that."""

from pathlib import Path

from tests.eventually import eventually
from tests.fakes.model import FakeModelServer, ModelReply
from tests.journeys.service import serving, with_model
from tests.people.platforms import PlatformServers

PLATFORMS = ("slack", "telegram")


async def test_a_revoked_token_shows_in_the_status_of_its_channel_alone(tmp_path: Path) -> None:
    """For the recovery of a channel and its waiting answers, see tests/bots and test_limits_on_platforms.py."""
    reply = ModelReply(text="hello")
    async with PlatformServers() as platforms, FakeModelServer(answer=lambda _: reply) as model:
        config = {**with_model(model.base_url), "channels": platforms.channels}
        async with serving(tmp_path, config, *PLATFORMS) as service, service.client() as client:
            server = platforms.slack.server
            server.bot_token, server.refusal = "xoxb-another", "token_revoked"
            platforms.telegram.revoke()
            slack, telegram, feishu = platforms.private_users(1)
            for user in (slack, telegram, feishu):
                await user.send("hi")

            async def states() -> dict[str, tuple[str, str]]:
                found = (await client.get("/api/channels")).json()["channels"]
                return {name: (one["state"], one["detail"]) for name, one in found.items()}

            found = await eventually(
                states, lambda now: all(now[name][0] == "failed" for name in PLATFORMS)
            )
            for name in PLATFORMS:
                assert f"channels.{name}.bot_token" in found[name][1]
            ready = await client.get(f"{service.url}/health/ready")
            assert ready.status_code == 200
            channels = ready.json()["checks"]["channels"]
            assert channels["state"] == "degraded"
            assert all(f"channels.{name}.bot_token" in channels["detail"] for name in PLATFORMS)
            await feishu.expect_messages("hello")
