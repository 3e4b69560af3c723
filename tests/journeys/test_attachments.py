"""Files that people send: the agent reads them, whatever platform they came from."""

from pathlib import Path

import anyio

from tests.fakes.model import Call, FakeModelServer, ModelRequest, Reply
from tests.fakes.telegram_chats import Upload
from tests.journeys.people import Person, Town
from tests.journeys.service import serving, with_model

PLATFORMS = ("slack", "telegram", "feishu")
CSV = "Größe,数量\nsecret-number,4711\n"
PNG = bytes.fromhex(
    "89504e470d0a1a0a0000000d49484452000000010000000108060000001f15c4890000000d49444154789c626001"
    "000000ffff03000006000557bfabd40000000049454e44ae426082"
)


def answer(request: ModelRequest) -> Reply:
    """Read the file that was sent and say its number; say of a picture that it was seen."""
    said, last = request.last_user_text, request.messages[-1]
    if last["role"] == "tool":
        number = "4711" if "4711" in str(last["content"]) else "nothing"
        return Reply(text=f"The number is {number}.")
    if any(block.get("type") == "image_url" for block in _blocks(request)):
        return Reply(text="I see the picture.")
    if "<uploaded_files>" in said:
        args = {"path": "/mnt/user-data/uploads/数 data.csv"}
        return Reply(calls=(Call("read_file", args, id=f"r{len(request.messages)}"),))
    return Reply(text=f"I was told: {said}")


def _blocks(request: ModelRequest) -> list[dict[str, object]]:
    content = [m["content"] for m in request.messages if m["role"] == "user"][-1]
    return content if isinstance(content, list) else []


async def sends(town: Town, seat: Person, name: str, data: bytes, mime: str) -> None:
    """Let a person send a file in private."""
    match seat.channel:
        case "slack":
            file = town.slack.file(name, data, mime)
            town.slack.dm("", user=seat.chat[1:], files=[file], subtype="file_share")
        case "telegram":
            upload = Upload(name=name, content=data, mime=mime)
            kind = "photo" if mime.startswith("image/") else "document"
            town.telegram.send_file(int(seat.chat), upload, kind=kind, user=int(seat.chat))
        case _:
            user = seat.chat.removeprefix("oc_dm_")
            if mime.startswith("image/"):
                await town.feishu.picture(data, mime=mime, user=user)
            else:
                await town.feishu.file(name, data, mime=mime, user=user)


async def test_files_and_pictures_reach_the_agent(tmp_path: Path) -> None:
    async with Town() as town, FakeModelServer(answer=answer) as model:
        config = {**with_model(model.base_url), "channels": town.channels}
        config["models"][0]["supports_vision"] = True
        async with serving(tmp_path, config, *PLATFORMS) as service:
            async with anyio.create_task_group() as people:
                for seat in town.person(1):
                    people.start_soon(_has_a_file_read, town, seat)
                for seat in town.person(2):
                    people.start_soon(_shows_a_picture, town, seat)
            assert await service.stop() == 0
        assert town.violations == []
        log = service.log.read_text()
        assert "Traceback" not in log
        for secret in (town.slack.bot_token, town.telegram.token):
            assert secret not in log


async def _has_a_file_read(town: Town, seat: Person) -> None:
    await sends(town, seat, "数 data.csv", CSV.encode(), "text/csv")
    await seat.sees("The number is 4711.")


async def _shows_a_picture(town: Town, seat: Person) -> None:
    await sends(town, seat, "image.png", PNG, "image/png")
    await seat.sees("I see the picture.")


async def test_what_cannot_be_fetched_is_told_to_the_agent(tmp_path: Path) -> None:
    async with Town() as town, FakeModelServer(answer=answer) as model:
        config = {**with_model(model.base_url), "channels": town.channels}
        async with serving(tmp_path, config, *PLATFORMS):
            town.slack.fail("download", body="<html>Sign in to Slack</html>")
            town.telegram.fail("getFile", status=400, description="Bad Request: file is too big")
            town.feishu.fail("resource", status=400, code=234003)
            for seat, reason in zip(
                town.person(1), ("files:read", "larger than 20 MB", "234003"), strict=True
            ):
                await sends(town, seat, "a.csv", CSV.encode(), "text/csv")
                said = await seat.sees("could not be read: a.csv")
                assert reason in said
        assert town.violations == []
