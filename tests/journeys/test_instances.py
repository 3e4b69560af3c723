"""Two bots on one platform: each has its own conversations, agent, state and loop guard."""

from functools import partial
from pathlib import Path
from typing import Any

from gateway.playground.feishu.server import FakeFeishu
from gateway.playground.slack.server import FakeSlack
from gateway.playground.telegram.server import TelegramServer
from tests.fakes.model import FakeModelServer
from tests.journeys.service import serving, with_model


def section(telegram: TelegramServer, **more: object) -> dict[str, Any]:
    return {**telegram.settings, **more}


def texts(telegram: TelegramServer, chat: int) -> list[str]:
    return [answer.text for answer in telegram.answers(chat)]


def from_a_bot(text: str) -> dict[str, Any]:
    sender = {"id": 700701, "is_bot": True, "first_name": "Other", "username": "other_bot"}
    chat = {"id": -1001, "type": "supergroup", "title": "Room"}
    return {"message": {"message_id": 5, "date": 1, "chat": chat, "from": sender, "text": text}}


async def test_two_telegram_bots_run_side_by_side(tmp_path: Path) -> None:
    async with (
        TelegramServer() as sales,
        TelegramServer(token="900900:support") as support,
        FakeModelServer() as model,
    ):
        channels = {
            "telegram": section(sales),
            "telegram-support": section(
                support, platform="telegram", session={"context": {"thinking_enabled": False}}
            ),
        }
        config = {**with_model(model.base_url), "channels": channels, "title": {"enabled": False}}
        names = ("telegram", "telegram-support")
        async with serving(tmp_path, config, *names) as service:
            model.reply("From sales.")
            sales.dm("hello")
            await sales.wait_for(lambda: texts(sales, 1001) == ["From sales."])
            model.reply("From support.")
            support.dm("hello")
            await support.wait_for(lambda: texts(support, 1001) == ["From support."])
            support.dm("/new")
            await support.wait_for(lambda: len(texts(support, 1001)) == 2)
            await service.kill()
            await service.start()
            await service.until_connected(*names)
            support.push(from_a_bot("@parley_bot hello"))  # As in a room with the other bot.
            await support.wait_for(lambda: support.backlog == 0)
            async with service.client() as client:
                metrics = (await client.get("/metrics")).text
                restarted = await client.post("/api/channels/telegram-support/restart")
            assert restarted.json()["success"]
            assert 'channel="telegram-support",reason="from_bot"' in metrics
            model.reply("Sales remembers.")
            sales.dm("still there?")
            await sales.wait_for(lambda: len(texts(sales, 1001)) == 2)
        prompt = str(model.requests[-1].body)
        assert ("From sales." in prompt, "From support." in prompt) == (True, False)
        assert sales.token not in service.log.read_text()
        assert sales.violations == support.violations == []


async def test_two_slack_workspaces_and_a_feishu_instance_run_side_by_side(tmp_path: Path) -> None:
    async with (
        FakeSlack() as acme,
        FakeSlack() as globex,
        FakeFeishu() as feishu,
        FakeModelServer() as model,
    ):
        names = ("slack", "slack-globex", "lark")
        channels = {
            "slack": slack_section(acme),
            "slack-globex": {"platform": "slack", **slack_section(globex)},
            "lark": {"platform": "feishu", **feishu.settings},
        }
        config = {**with_model(model.base_url), "channels": channels, "title": {"enabled": False}}
        async with serving(tmp_path, config, *names) as service:
            for number, slack in enumerate((acme, globex)):
                model.reply(f"Answer {number}.")
                replies = partial(slack.replies, slack.mention("hello"))
                (answer,) = await slack.wait_for(replies)
                assert answer.words == f"Answer {number}."
            model.reply("From Lark.")
            asked_lark = await feishu.dm("hello")
            await feishu.wait_for(
                lambda: "From Lark." in str([m.text for m in feishu.answers(asked_lark.chat)]),
            )
            async with service.client() as client:
                metrics = (await client.get("/metrics")).text
                state = (await client.get("/api/channels")).text
            for name in names:
                assert f'channel="{name}"' in metrics
                assert name in state
        assert acme.violations == globex.violations == feishu.violations == []


def slack_section(slack: FakeSlack) -> dict[str, Any]:
    return {
        "enabled": True,
        "base_url": slack.base_url,
        "bot_token": slack.bot_token,
        "app_token": slack.app_token,
    }
