"""People get the agent's files unchanged on every platform, or the reason why not."""

from pathlib import Path

import anyio

from gateway.playground.slack.state import SlackFile
from tests.eventually import eventually
from tests.fakes.model import FakeModelServer, ModelReply, ModelRequest, ToolCall
from tests.journeys.service import serving, with_model
from tests.people.chat_user import ChatUser
from tests.people.platforms import PlatformServers

PLATFORMS = ("slack", "telegram", "feishu")
OUTPUTS = "/mnt/user-data/outputs"
TEXT = "Größe,数量\n1,2\n" * 40
FEISHU_LIMIT = 30 * 1024 * 1024
TELEGRAM_LIMIT = 50_000_000
LAST_WORDS_S = 1.0


def hand_over(request: ModelRequest) -> ModelReply:
    """Write a file with the name that the person gives, present it, and reply."""
    name, content = request.last_user_text, "" if "empty" in request.last_user_text else TEXT
    last = request.messages[-1]
    if last["role"] != "tool":
        args = {"description": "write", "path": f"{OUTPUTS}/{name}", "content": content}
        return ModelReply(calls=(ToolCall("write_file", args, id="w1"),))
    if last["tool_call_id"] == "w1":
        return ModelReply(
            calls=(ToolCall("present_files", {"filepaths": [f"{OUTPUTS}/{name}"]}, id="p1"),)
        )
    pause_s = LAST_WORDS_S if name.startswith(("lost", "big")) else 0.0
    return ModelReply(text=f"Here is {name}.", first_token_delay_s=pause_s)


def received(platforms: PlatformServers, user: ChatUser) -> list[tuple[str, bytes]]:
    """Return the names and content of the files that the bot sent to a person."""
    match user.channel:
        case "slack":
            messages = platforms.slack.messages(user.chat)
            kept = [platforms.slack.workspace.files[f["id"]] for m in messages for f in m.files]
            return [(file.name, _content(file)) for file in kept]
        case "telegram":
            sent = [m.file for m in platforms.telegram.answers(int(user.chat)) if m.file]
            return [(file.name, file.content) for file in sent]
        case _:
            keys = [m.content.get("file_key") for m in platforms.feishu.answers(user.chat)]
            found = [platforms.feishu.files[str(key)] for key in keys if key]
            return [(name, content) for _, name, content in found]


def _content(file: SlackFile) -> bytes:
    assert file.content is not None
    assert file.shared
    return file.content


async def test_a_file_arrives_with_its_bytes_or_the_reason_why_not(tmp_path: Path) -> None:
    async with PlatformServers() as platforms, FakeModelServer(answer=hand_over) as model:
        config = {**with_model(model.base_url), "channels": platforms.channels}
        async with serving(tmp_path, config, *PLATFORMS) as service:
            presented = PresentedFiles(model, service.home)
            async with anyio.create_task_group() as people:
                for user in platforms.private_users(1):
                    people.start_soon(_gets_the_file, platforms, user)
                for user in platforms.private_users(2):
                    people.start_soon(_hears_why_not, platforms, user, "empty.txt", "empty")
                for user in platforms.private_users(3):
                    people.start_soon(_loses_the_file, platforms, user, presented)
                for user in platforms.private_users(4)[1:]:  # Slack accepts a whole gigabyte.
                    people.start_soon(_grows_the_file, platforms, user, presented)
                for user in platforms.private_users(5):
                    people.start_soon(_takes_the_conversation_home, platforms, user)
            assert await service.stop() == 0
        assert platforms.violations == []
        assert "Traceback" not in service.log.read_text()


async def _gets_the_file(platforms: PlatformServers, user: ChatUser) -> None:
    await user.send("report 报告.csv")
    await user.wait_for_message("Here is report 报告.csv.")
    await eventually(lambda: received(platforms, user))
    assert received(platforms, user) == [("report 报告.csv", TEXT.encode())]
    said = [text for text in user.bot_messages() if "Here is" in text]
    assert said == ["Here is report 报告.csv."]


async def _takes_the_conversation_home(platforms: PlatformServers, user: ChatUser) -> None:
    await user.send("plan.csv")
    await eventually(
        lambda: received(platforms, user)
    )  # It is sent when the answer is stored. A card shows it earlier.
    await user.send("/export")
    await eventually(lambda: len(received(platforms, user)) >= 2)
    name, content = next(file for file in received(platforms, user) if file[0] != "plan.csv")
    assert name == "conversation.md"
    assert content.decode() == (
        "# Conversation\n\n## You\n\nplan.csv\n\n## Parley\n\n"
        "*Used: `write_file`*\n\n*Used: `present_files`*\n\nHere is plan.csv.\n"
    )


async def _hears_why_not(
    platforms: PlatformServers, user: ChatUser, name: str, reason: str
) -> None:
    await user.send(name)
    await user.wait_for_message(f"Here is {name}.")
    said = await user.wait_for_message("could not attach", reason)
    assert name in said
    assert received(platforms, user) == []


async def _loses_the_file(
    platforms: PlatformServers, user: ChatUser, presented: "PresentedFiles"
) -> None:
    name = f"lost-{user.channel}.txt"
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(_hears_why_not, platforms, user, name, "no longer there")
        (await presented.file(name)).unlink()


async def _grows_the_file(
    platforms: PlatformServers, user: ChatUser, presented: "PresentedFiles"
) -> None:
    name = f"big-{user.channel}.txt"
    limit = FEISHU_LIMIT if user.channel == "feishu" else TELEGRAM_LIMIT
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(_hears_why_not, platforms, user, name, "MB")
        with (await presented.file(name)).open("r+b") as file:
            file.truncate(limit + 1)


class PresentedFiles:
    """Files that wait for the end of the turn, which takes `LAST_WORDS_S`."""

    def __init__(self, model: FakeModelServer, home: Path) -> None:
        self._model = model
        self._home = home

    async def file(self, name: str) -> Path:
        """Wait until a file was presented. Return its path."""
        await self._model.until(lambda m: any(_is_last(r, name) for r in m.requests))
        (found,) = self._home.glob(f"**/{name}")
        return found


def _is_last(request: ModelRequest, name: str) -> bool:
    return request.last_user_text == name and request.messages[-1].get("tool_call_id") == "p1"
