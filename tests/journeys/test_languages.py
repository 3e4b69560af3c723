"""A Chinese conversation in every place: commands, refusals and failures are answered in Chinese."""

from pathlib import Path

import anyio

from agent.locales.zh import CHINESE as AGENT
from bus.commands import help_text
from bus.locales.en import ENGLISH
from bus.locales.zh import CHINESE
from tests.fakes.model import FakeModelServer, ModelReply, ModelRequest, ToolCall
from tests.journeys.service import serving, with_model
from tests.people.chat_user import ChatUser
from tests.people.platforms import PlatformServers
from tests.people.telegram import TelegramPrivateUser

PLATFORMS = ("slack", "telegram", "feishu")


def answer(request: ModelRequest) -> ModelReply:
    if "密钥" in request.last_user_text:
        return ModelReply(status=401)
    return ModelReply(text=f"你说：{request.last_user_text}")


Talk = tuple[tuple[str, str], ...]
"""Messages and their answers."""

CHINESE_TALK: Talk = (
    ("你好，很高兴认识你", "你说：你好，很高兴认识你"),
    ("请检查密钥", AGENT.model_auth),
    ("/stop", CHINESE.stop_nothing),
    ("/help", help_text(CHINESE)),
)
ENGLISH_TALK: Talk = (
    ("/language en", "From now on I speak English here."),
    ("/stop", "Nothing is running."),
)


async def test_messages_in_chinese_are_answered_in_chinese_on_every_platform(
    tmp_path: Path,
) -> None:
    async with PlatformServers() as platforms, FakeModelServer(answer=answer) as model:
        config = {**with_model(model.base_url), "channels": platforms.channels}
        async with serving(tmp_path, config, *PLATFORMS):
            # One after the other, because some users are the same person in another place, where their choice also
            # applies.
            for talk in (_talk_chinese, _choose_english):
                async with anyio.create_task_group() as people:
                    for user in platforms.users:
                        people.start_soon(talk, user)
        assert platforms.violations == []


async def _talk_chinese(user: ChatUser) -> None:
    await _expect_answers(user, CHINESE_TALK, earlier=())


async def _choose_english(user: ChatUser) -> None:
    await _expect_answers(user, ENGLISH_TALK, earlier=CHINESE_TALK)


async def _expect_answers(user: ChatUser, talk: Talk, *, earlier: Talk) -> None:
    expected = [answered for _, answered in earlier]
    for text, answered in talk:
        await user.send(text)
        expected.append(answered)
        await user.expect_messages(*expected)


async def test_an_approval_is_asked_for_in_chinese(tmp_path: Path) -> None:
    def write(request: ModelRequest) -> ModelReply:
        call = ToolCall("write_file", {"path": "/mnt/user-data/outputs/a.txt", "content": "好"})
        is_done = request.messages[-1]["role"] == "tool"
        return ModelReply(text="写好了。") if is_done else ModelReply(calls=(call,))

    async with PlatformServers() as platforms, FakeModelServer(answer=write) as model:
        config = {
            **with_model(model.base_url),
            "channels": {"telegram": platforms.channels["telegram"]},
            "guardrails": {"enabled": True, "ask": ["write_file"]},
        }
        async with serving(tmp_path, config, "telegram") as service, service.client() as client:
            user = TelegramPrivateUser(platforms.telegram, user=77)
            await user.send("请把结果写入文件")
            asked = await user.wait_for_message(CHINESE.approval_ask)
            assert CHINESE.approval_hint in asked
            assert "approv" not in asked
            (thread,) = (await client.post("/api/threads/search", json={})).json()
            state = (await client.get(f"/api/threads/{thread['thread_id']}/state")).json()
            (action,) = state["interrupts"][0]["value"]["action_requests"]
            assert action["description"] == AGENT.approval_needed
            await user.send("同意")
            await user.wait_for_message("写好了。")
        assert platforms.violations == []


async def test_telegram_apps_send_their_language_and_list_commands_in_it(
    tmp_path: Path,
) -> None:
    async with PlatformServers() as platforms, FakeModelServer(answer=answer) as model:
        channels = {"telegram": platforms.channels["telegram"]}
        async with serving(
            tmp_path, {**with_model(model.base_url), "channels": channels}, "telegram"
        ):
            user = TelegramPrivateUser(platforms.telegram, user=77)
            platforms.telegram.languages[77] = "zh-hans"
            await user.send("/help")
            await user.expect_messages(help_text(CHINESE))
            listed = {
                command["command"]: command for command in platforms.telegram.translated["zh"]
            }
            assert listed["new"]["description"] == CHINESE.help_new
            assert platforms.telegram.commands[0]["description"] == ENGLISH.help_bootstrap
        assert platforms.violations == []
