"""Six places on three platforms: one message in, one answer out, and the conversation goes on."""

from pathlib import Path

import anyio

from tests.fakes.model import FakeModelServer
from tests.journeys.people import Town
from tests.journeys.service import serving, with_model


async def test_every_place_is_answered_once_and_remembers(tmp_path: Path) -> None:
    async with Town() as town, FakeModelServer() as model:
        config = {**with_model(model.base_url), "channels": town.channels}
        async with serving(tmp_path, config, "slack", "telegram", "feishu") as service:
            async with anyio.create_task_group() as people:
                for seat in town.seats:
                    people.start_soon(seat.say, f"hello from {seat.name}")
            for seat in town.seats:
                await seat.hears(f"You said: hello from {seat.name}")
            for seat in town.seats:
                await seat.say(f"again from {seat.name}")
            for seat in town.seats:
                await seat.hears(
                    f"You said: hello from {seat.name}", f"You said: again from {seat.name}"
                )
                assert seat.stray() == []
            async with service.client() as client:
                found = await client.post("/api/threads/search", json={"limit": 100})
            assert len(found.json()) == len(town.seats)
            assert await service.stop() == 0
        again = [r for r in model.requests if r.last_user_text.startswith("again")]
        for request in again:
            said = " ".join(str(m.get("content")) for m in request.messages)
            assert request.last_user_text.replace("again", "hello") in said
        assert len(again) == len(town.seats)
        assert town.violations == []


async def test_messages_of_one_conversation_are_answered_one_by_one_in_order(
    tmp_path: Path,
) -> None:
    async with Town() as town, FakeModelServer(token_delay_s=0.01) as model:
        config = {**with_model(model.base_url), "channels": town.channels}
        async with serving(tmp_path, config, "slack", "telegram", "feishu"):
            for seat in town.seats:
                for number in range(3):
                    await seat.say(f"{number}")
                    await anyio.sleep(0.05)
            for seat in town.seats:
                if seat.name != "feishu group":  # there each mention starts a chain of its own
                    await seat.hears(*(f"You said: {number}" for number in range(3)))
        assert town.violations == []


async def test_feishu_shows_a_card_at_once_that_grows_into_the_answer(tmp_path: Path) -> None:
    async with Town() as town, FakeModelServer(token_delay_s=0.1) as model:
        config = {**with_model(model.base_url), "channels": {"feishu": town.feishu.settings}}
        async with serving(tmp_path, config, "feishu"):
            words = " ".join(f"word{n}" for n in range(20))
            model.reply(words)
            asked = await town.feishu.dm("hi")
            card = await town.feishu.wait_for(
                lambda: next(iter(town.feishu.answers_to(asked)), None)
            )
            assert model.requests == [] or not model.requests[0].finished
            await town.feishu.wait_for(lambda: card.text == words, timeout_s=15)
            await town.feishu.wait_for(lambda: "DONE" in asked.emojis)
        frames = [text for text in card.texts if "word" in text]
        assert len(frames) >= 3
        assert all(words.startswith(frame.split("\n")[0].rstrip("… ")) for frame in frames)
        assert len(town.feishu.answers(card.chat)) == 1
        assert town.violations == []
