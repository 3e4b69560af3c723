"""Installing the Slack app from a browser, through the gateway without a token. The installation survives a restart."""

from pathlib import Path
from urllib.parse import urlsplit

import httpx

from gateway.playground.slack.server import BOT_USER, FakeSlack
from tests.fakes.model import FakeModelServer
from tests.journeys.service import serving, with_model


def hello(number: int) -> dict[str, object]:
    return {
        "type": "message", "channel": "D1ANN", "channel_type": "im", "user": "U1ANN", "text": "hello",
        "ts": f"170000000{number}.000100",
    }  # fmt: skip


async def test_a_workspace_installs_the_app_and_is_answered(tmp_path: Path) -> None:
    async with FakeSlack() as slack, FakeModelServer() as model:
        slack.workspace.channel("D1ANN", kind="im", members={"U1ANN"})
        oauth = slack.server.oauth
        oauth.redirect_url = "https://bot.example.org/slack/slack-all/oauth_redirect"
        section = {
            "platform": "slack",
            "enabled": True,
            "base_url": slack.base_url,
            "app_token": slack.app_token,
            "client_id": oauth.client_id,
            "client_secret": oauth.client_secret,
        }
        config = {
            **with_model(model.base_url),
            "channels": {"slack-all": section},
            "title": {"enabled": False},
        }
        bot = {"team_id": "T2TEAM", "user_id": BOT_USER, "is_bot": True, "enterprise_id": None}
        team = {"team_id": "T2TEAM", "authorizations": [bot]}
        async with serving(tmp_path, config) as service:
            async with service.client() as known:
                browser = httpx.AsyncClient(base_url=known.base_url, trust_env=False)
            async with browser:
                assert (await browser.get("/slack/other/install")).status_code in {401, 404}
                start = await browser.get("/slack/slack-all/install")
                assert start.status_code == 302
                shown = await browser.get(start.headers["location"])
                back = urlsplit(shown.headers["location"])
                done = await browser.get(f"{back.path}?{back.query}")
                assert (done.status_code, "installed" in done.text) == (200, True)
            for number in range(2):
                await service.until_connected("slack-all")
                model.reply(f"Answer {number}.")
                slack.send_event(hello(number), **team)
                await slack.wait_for(
                    lambda n=number: f"Answer {n}." in slack.texts("D1ANN"),  # type: ignore[misc]
                )
                assert {call.team for call in slack.asked("chat.postMessage")} == {"T2TEAM"}
                await service.kill()
                await service.start()
        (token,) = oauth.tokens
        assert token not in service.log.read_text()
        assert slack.violations == []
