"""A Chinese conversation in every place: commands, refusals and failures are said in Chinese."""

from pathlib import Path

import anyio

from agent.locales.zh import CHINESE as AGENT
from bus.commands import help_text
from bus.locales.en import ENGLISH
from bus.locales.zh import CHINESE
from tests.fakes.model import FakeModelServer, ModelRequest, Reply
from tests.journeys.people import Person, TelegramPrivate, Town
from tests.journeys.service import serving, with_model

PLATFORMS = ("slack", "telegram", "feishu")


def answer(request: ModelRequest) -> Reply:
    if "密钥" in request.last_user_text:
        return Reply(status=401)
    return Reply(text=f"你说：{request.last_user_text}")


async def test_who_writes_chinese_is_answered_in_chinese_everywhere(tmp_path: Path) -> None:
    async with Town() as town, FakeModelServer(answer=answer) as model:
        config = {**with_model(model.base_url), "channels": town.channels}
        async with serving(tmp_path, config, *PLATFORMS), anyio.create_task_group() as people:
            for seat in town.seats:
                people.start_soon(_talk, seat)
        assert town.violations == []


async def _talk(seat: Person) -> None:
    said = ["你说：你好，很高兴认识你"]
    await seat.say("你好，很高兴认识你")
    await seat.hears(*said)
    for text, answered in (
        ("请检查密钥", AGENT.model_auth),
        ("/stop", CHINESE.stop_nothing),
        ("/help", help_text(CHINESE)),
        ("/language en", "From now on I speak English here."),
        ("/stop", "Nothing is running."),
    ):
        await seat.say(text)
        said.append(answered)
        await seat.hears(*said)


async def test_telegrams_apps_tell_their_language_and_list_the_commands_in_it(
    tmp_path: Path,
) -> None:
    async with Town() as town, FakeModelServer(answer=answer) as model:
        channels = {"telegram": town.channels["telegram"]}
        async with serving(
            tmp_path, {**with_model(model.base_url), "channels": channels}, "telegram"
        ):
            seat = TelegramPrivate(town.telegram, user=77)
            town.telegram.languages[77] = "zh-hans"
            await seat.say("/help")
            await seat.hears(help_text(CHINESE))
            listed = {command["command"]: command for command in town.telegram.translated["zh"]}
            assert listed["new"]["description"] == CHINESE.help_new
            assert town.telegram.commands[0]["description"] == ENGLISH.help_bootstrap
        assert town.violations == []
