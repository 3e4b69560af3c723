"""Values that no store accepts, in texts and file names: each message gets an answer, and so does the next one."""

from pathlib import Path

import anyio

from tests.fakes.model import FakeModelServer, ModelReply, ModelRequest
from tests.journeys.service import serving, with_model
from tests.journeys.test_attachments import CSV, PLATFORMS, sends
from tests.people.chat_user import ChatUser
from tests.people.platforms import PlatformServers

ODD = {
    "surrogate": "a\ud83d b",
    "two halves": "\udc00\ud83d",
    "nul": "a\x00b",
    "controls": "a\x07\x1b[31mb\x85",
    "direction": "invoice\u202efdp.exe",
    "number": "9" * 400,
    "nan": "NaN Infinity -0",
    "deep": "[" * 2_000,
    "long": "x" * 3_000,
}


def answer(request: ModelRequest) -> ModelReply:
    """Answer with the number of the person's messages."""
    count = sum(message["role"] == "user" for message in request.messages)
    return ModelReply(text=f"That was message {count}.")


async def test_odd_texts_and_names_of_files_are_answered(tmp_path: Path) -> None:
    async with PlatformServers() as platforms, FakeModelServer(answer=answer) as model:
        config = {**with_model(model.base_url), "channels": platforms.channels}
        async with serving(tmp_path, config, *PLATFORMS) as service:
            async with anyio.create_task_group() as people:
                for number, odd in enumerate(ODD.values()):
                    for user in platforms.private_users(number):
                        people.start_soon(_sends_and_goes_on, platforms, user, odd)
            assert await service.stop() == 0
        assert platforms.violations == []
        assert "Traceback" not in service.log.read_text()


async def _sends_and_goes_on(platforms: PlatformServers, user: ChatUser, odd: str) -> None:
    await user.send(odd)
    await user.wait_for_message("That was message 1.", within_s=60)
    await sends(platforms, user, f"{odd[:100]}.csv", CSV.encode(), "text/csv")
    await user.wait_for_message("That was message 2.", within_s=60)
    await user.send("still here?")
    await user.wait_for_message("That was message 3.", within_s=60)
