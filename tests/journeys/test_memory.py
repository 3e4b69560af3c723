"""The agent remembers what people said in a place after a restart, and only in that place."""

import re
from pathlib import Path

import anyio

from tests.agent.memory_model import noted
from tests.fakes.model import FakeModelServer, ModelReply, ModelRequest
from tests.journeys.service import serving, with_model
from tests.people.feishu import own_words
from tests.people.platforms import PlatformServers


def answered(request: ModelRequest) -> ModelReply:
    """Extract facts from conversations if asked to. Otherwise, echo."""
    asked = request.last_user_text
    return ModelReply(text=noted(asked) if "<conversation>" in asked else f"You said: {asked}")


def remembered(request: ModelRequest) -> set[str]:
    """Return the marks in the notes that the model was shown."""
    system = "".join(str(m["content"]) for m in request.messages if m["role"] == "system")
    return set(re.findall(r"mark\d", system))


async def test_each_chat_has_its_own_memory_after_a_restart(tmp_path: Path) -> None:
    async with PlatformServers() as platforms, FakeModelServer(answer=answered) as model:
        config = {**with_model(model.base_url), "channels": platforms.channels}
        channels = ("slack", "telegram", "feishu")
        async with serving(tmp_path, config, *channels) as service:
            async with anyio.create_task_group() as people:
                for number, user in enumerate(platforms.users):
                    people.start_soon(user.send, f"I am mark{number}")
            for number, user in enumerate(platforms.users):
                await user.expect_messages(f"You said: I am mark{number}")
            # Stopping the service extracts memory from the waiting turns.
            assert await service.stop() == 0
            await service.start()
            await service.until_connected(*channels)
            for number, user in enumerate(platforms.users):
                await user.send(f"hello from {number}")
                await user.wait_for_message(f"You said: hello from {number}")
        asked = {own_words(r.last_user_text): r for r in model.requests}
        for number in range(len(platforms.users)):
            assert remembered(asked[f"I am mark{number}"]) == set()
            assert remembered(asked[f"hello from {number}"]) == {f"mark{number}"}
        assert platforms.violations == []
