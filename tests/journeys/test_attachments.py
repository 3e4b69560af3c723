"""The agent reads files that people send on any platform."""

from pathlib import Path

import anyio

from gateway.playground.telegram.chats import TelegramUpload
from tests.fakes.model import FakeModelServer, ModelReply, ModelRequest, ToolCall
from tests.journeys.service import serving, with_model
from tests.people.chat_user import ChatUser
from tests.people.platforms import PlatformServers

PLATFORMS = ("slack", "telegram", "feishu")
CSV = "Größe,数量\nsecret-number,4711\n"
PNG = bytes.fromhex(
    "89504e470d0a1a0a0000000d49484452000000010000000108060000001f15c4890000000d49444154789c626001"
    "000000ffff03000006000557bfabd40000000049454e44ae426082"
)


def answer(request: ModelRequest) -> ModelReply:
    """Read the sent file and reply with its number. For a picture, reply that it was seen."""
    said, last = request.last_user_text, request.messages[-1]
    if last["role"] == "tool":
        number = "4711" if "4711" in str(last["content"]) else "nothing"
        return ModelReply(text=f"The number is {number}.")
    if any(block.get("type") == "image_url" for block in _blocks(request)):
        return ModelReply(text="I see the picture.")
    if "<uploaded_files>" in said:
        args = {"path": "/mnt/user-data/uploads/数 data.csv"}
        return ModelReply(calls=(ToolCall("read_file", args, id=f"r{len(request.messages)}"),))
    return ModelReply(text=f"I was told: {said}")


def _blocks(request: ModelRequest) -> list[dict[str, object]]:
    content = [m["content"] for m in request.messages if m["role"] == "user"][-1]
    return content if isinstance(content, list) else []


async def sends(
    platforms: PlatformServers, user: ChatUser, name: str, data: bytes, mime: str
) -> None:
    """Send a person's file in a private chat."""
    match user.channel:
        case "slack":
            file = platforms.slack.file(name, data, mime)
            platforms.slack.dm("", user=user.chat[1:], files=[file], subtype="file_share")
        case "telegram":
            upload = TelegramUpload(name=name, content=data, mime=mime)
            kind = "photo" if mime.startswith("image/") else "document"
            platforms.telegram.send_file(int(user.chat), upload, kind=kind, user=int(user.chat))
        case _:
            open_id = user.chat.removeprefix("oc_dm_")
            if mime.startswith("image/"):
                await platforms.feishu.picture(data, mime=mime, user=open_id)
            else:
                await platforms.feishu.file(name, data, mime=mime, user=open_id)


async def test_files_and_pictures_reach_the_agent(tmp_path: Path) -> None:
    async with PlatformServers() as platforms, FakeModelServer(answer=answer) as model:
        config = {**with_model(model.base_url), "channels": platforms.channels}
        config["models"][0]["supports_vision"] = True
        async with serving(tmp_path, config, *PLATFORMS) as service:
            async with anyio.create_task_group() as people:
                for user in platforms.private_users(1):
                    people.start_soon(_has_a_file_read, platforms, user)
                for user in platforms.private_users(2):
                    people.start_soon(_shows_a_picture, platforms, user)
            assert await service.stop() == 0
        assert platforms.violations == []
        log = service.log.read_text()
        assert "Traceback" not in log
        for secret in (platforms.slack.bot_token, platforms.telegram.token):
            assert secret not in log


async def _has_a_file_read(platforms: PlatformServers, user: ChatUser) -> None:
    await sends(platforms, user, "数 data.csv", CSV.encode(), "text/csv")
    await user.wait_for_message("The number is 4711.")


async def _shows_a_picture(platforms: PlatformServers, user: ChatUser) -> None:
    await sends(platforms, user, "image.png", PNG, "image/png")
    await user.wait_for_message("I see the picture.")


async def test_the_agent_is_told_which_files_could_not_be_downloaded(tmp_path: Path) -> None:
    async with PlatformServers() as platforms, FakeModelServer(answer=answer) as model:
        config = {**with_model(model.base_url), "channels": platforms.channels}
        async with serving(tmp_path, config, *PLATFORMS):
            platforms.slack.fail("download", body="<html>Sign in to Slack</html>")
            platforms.telegram.fail(
                "getFile", status=400, description="Bad Request: file is too big"
            )
            platforms.feishu.fail("resource", status=400, code=234003)
            for user, reason in zip(
                platforms.private_users(1),
                ("files:read", "larger than 20 MB", "234003"),
                strict=True,
            ):
                await sends(platforms, user, "a.csv", CSV.encode(), "text/csv")
                said = await user.wait_for_message(reason)
                assert "could not be read: a.csv" in said
        assert platforms.violations == []
