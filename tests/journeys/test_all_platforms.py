"""Six places on three platforms: one message gets one answer, and the conversation continues."""

from pathlib import Path
from typing import Any

import anyio

from tests.fakes.model import FakeModelServer
from tests.fakes.model_switches import ModelSwitches
from tests.journeys.service import serving, with_model
from tests.people.feishu import own_words
from tests.people.platforms import PlatformServers


async def test_every_place_is_answered_once_and_remembers(
    tmp_path: Path, with_database: dict[str, Any]
) -> None:
    async with PlatformServers() as platforms, FakeModelServer() as model:
        config = {**with_model(model.base_url), **with_database, "channels": platforms.channels}
        async with serving(tmp_path, config, "slack", "telegram", "feishu") as service:
            async with anyio.create_task_group() as people:
                for user in platforms.users:
                    people.start_soon(user.send, f"hello from {user.name}")
            for user in platforms.users:
                await user.expect_messages(f"You said: hello from {user.name}")
            for user in platforms.users:
                await user.send(f"again from {user.name}")
            for user in platforms.users:
                await user.expect_messages(
                    f"You said: hello from {user.name}", f"You said: again from {user.name}"
                )
                assert user.misplaced_messages() == []
            async with service.client() as client:
                found = await client.post("/api/threads/search", json={"limit": 100})
            assert len(found.json()) == len(platforms.users)
            assert await service.stop() == 0
        again = [r for r in model.requests if r.last_user_text.startswith("again")]
        for request in again:
            said = " ".join(str(m.get("content")) for m in request.messages)
            assert own_words(request.last_user_text).replace("again", "hello") in said
        assert len(again) == len(platforms.users)
        assert platforms.violations == []


async def test_messages_of_one_conversation_are_answered_one_by_one_in_order(
    tmp_path: Path,
    with_database: dict[str, Any],
) -> None:
    async with (
        PlatformServers() as platforms,
        FakeModelServer(ModelSwitches(token_delay_s=0.01)) as model,
    ):
        config = {**with_model(model.base_url), **with_database, "channels": platforms.channels}
        async with serving(tmp_path, config, "slack", "telegram", "feishu"):
            for user in platforms.users:
                for number in range(3):
                    await user.send(f"{number}")
                    await anyio.sleep(0.05)
            for user in platforms.users:
                if user.name != "feishu group":  # There, each mention starts a separate chain.
                    await user.expect_messages(*(f"You said: {number}" for number in range(3)))
        assert platforms.violations == []


async def test_feishu_shows_a_card_at_once_that_grows_into_the_answer(tmp_path: Path) -> None:
    async with (
        PlatformServers() as platforms,
        FakeModelServer(ModelSwitches(token_delay_s=0.1)) as model,
    ):
        config = {**with_model(model.base_url), "channels": {"feishu": platforms.feishu.settings}}
        async with serving(tmp_path, config, "feishu"):
            words = " ".join(f"word{n}" for n in range(20))
            model.reply(words)
            asked = await platforms.feishu.dm("hi")
            card = await platforms.feishu.wait_for(
                lambda: next(iter(platforms.feishu.answers_to(asked)), None)
            )
            assert model.requests == [] or not model.requests[0].finished
            await platforms.feishu.wait_for(lambda: card.text == words)
            await platforms.feishu.wait_for(lambda: "DONE" in asked.emojis)
        frames = [text for text in card.texts if "word" in text]
        assert len(frames) >= 3
        assert all(words.startswith(frame.split("\n")[0].rstrip("… ")) for frame in frames)
        assert len(platforms.feishu.answers(card.chat)) == 1
        assert platforms.violations == []
