"""The tool `recall` finds messages from earlier conversations of a place, and nothing from other places."""

import re
from functools import partial
from pathlib import Path

import anyio

from tests.agent.memory_model import noted
from tests.eventually import eventually
from tests.fakes.model import FakeModelServer, ModelReply, ModelRequest, ToolCall
from tests.journeys.service import serving, with_model
from tests.people.chat_user import ChatUser
from tests.people.platforms import PlatformServers
from tests.people.telegram import FORUM_PERSON

ADMINS = {"slack": "U1ANN", "telegram": FORUM_PERSON, "feishu": "ou_alice"}


def answered(request: ModelRequest) -> ModelReply:
    """Search if a person asks for it, and report the results."""
    last = request.messages[-1]
    if last["role"] == "tool":
        marks = sorted(set(re.findall(r"mark\d", str(last["content"]))))
        return ModelReply(text=f"Found: {' '.join(marks) or 'nothing'}.")
    asked = request.last_user_text
    if "<conversation>" in asked:
        return ModelReply(text=noted(""))
    if "search" in asked:
        call = ToolCall(name="recall", args={"query": "密码 mark0 mark1 mark2 mark3 mark4 mark5"})
        return ModelReply(calls=(call,))
    return ModelReply(text="I see.")


def is_new_again(user: ChatUser) -> bool:
    return sum("New conversation" in text for text in user.bot_messages()) == 2


async def undo(user: ChatUser) -> None:
    """Send /undo until it is done: an answer is shown before its run has ended."""
    refusals = 0
    while not any("Undone:" in text for text in user.bot_messages()):
        await user.send("/undo")
        await eventually(partial(has_answered_undo, user, refusals))
        refusals = refusals_of(user)


def refusals_of(user: ChatUser) -> int:
    return sum("Something is running" in text for text in user.bot_messages())


def has_answered_undo(user: ChatUser, refusals: int) -> bool:
    is_done = any("Undone:" in text for text in user.bot_messages())
    return is_done or refusals_of(user) > refusals


async def test_what_was_undone_is_not_found(tmp_path: Path) -> None:
    async with PlatformServers() as platforms, FakeModelServer(answer=answered) as model:
        config = {**with_model(model.base_url), "channels": platforms.channels}
        channels = ("slack", "telegram", "feishu")
        async with serving(tmp_path, config, *channels):
            for number, user in enumerate(platforms.users):
                await user.send(f"My password is mark{number}")
                await user.wait_for_message("I see.")
                await undo(user)
                await user.send("/new")
                await user.wait_for_message("New conversation started.")
                await user.send("search it")
                await user.wait_for_message("Found: nothing.")
        assert platforms.violations == []


async def test_each_place_finds_its_own_words_until_they_are_forgotten(tmp_path: Path) -> None:
    async with PlatformServers() as platforms, FakeModelServer(answer=answered) as model:
        channels = platforms.channels
        for channel, admin in ADMINS.items():  # In a group, nobody else may delete everything.
            channels[channel]["admin_users"] = [admin]
        config = {**with_model(model.base_url), "channels": channels}
        async with serving(tmp_path, config, *ADMINS) as service:
            async with anyio.create_task_group() as people:
                for number, user in enumerate(platforms.users):
                    people.start_soon(user.send, f"我的密码是 mark{number}")
            for user in platforms.users:
                await user.wait_for_message("I see.")
            # Messages sent just before a kill are found, too.
            await service.kill()
            await service.start()
            await service.until_connected(*ADMINS)
            for number, user in enumerate(platforms.users):
                await user.send("/new")
                await user.wait_for_message("New conversation started.")
                await user.send("search it")
                await user.wait_for_message(f"Found: mark{number}.")
                assert not [
                    text for text in user.bot_messages() if re.search(rf"mark[^{number}]", text)
                ]
            for user in platforms.users:
                await user.send("/forget yes")
                await user.wait_for_message("I deleted everything I remembered")
                await user.send("/new")
                await eventually(partial(is_new_again, user))
                await user.send("search again")
                await user.wait_for_message("Found: nothing.")
        assert platforms.violations == []
