"""A model's stream breaks after some words were shown: people get one complete answer on every platform."""

from collections import Counter
from pathlib import Path

import pytest

from tests.fakes.model import FakeModelServer, ModelReply, ModelRequest
from tests.journeys.service import serving, with_model
from tests.people.platforms import PlatformServers

PLATFORMS = ("slack", "telegram", "feishu")
ANSWER = "This is the complete answer."


@pytest.mark.parametrize("streaming", [False, True])
async def test_an_answer_whose_stream_breaks_once_is_shown_once(
    tmp_path: Path, *, streaming: bool
) -> None:
    calls: Counter[str] = Counter()

    def answer(request: ModelRequest) -> ModelReply:
        calls[request.last_user_text] += 1
        if calls[request.last_user_text] == 1:
            return ModelReply(text="alpha beta gamma delta", drop_after=3, token_delay_s=0.5)
        return ModelReply(text=ANSWER, token_delay_s=0.1)

    async with PlatformServers() as platforms, FakeModelServer(answer=answer) as model:
        channels = {name: dict(section) for name, section in platforms.channels.items()}
        for name in ("slack", "telegram"):
            channels[name]["streaming"] = streaming
        config = {
            **with_model(model.base_url),
            "llm_retry": {"first_wait_s": 0.1},
            "memory": {"enabled": False},
            "channels": channels,
        }
        async with serving(tmp_path, config, *PLATFORMS) as service:
            users = platforms.private_users(1)
            for number, user in enumerate(users):
                await user.send(f"question {number}")
            for user in users:
                await user.expect_messages(ANSWER)
            assert await service.stop() == 0
        assert platforms.violations == []
    assert [calls[f"question {number}"] for number in range(len(users))] == [2] * len(users)
