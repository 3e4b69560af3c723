"""kill -9 at the bad moments: every message is answered, Feishu exactly once, elsewhere at most one repeat."""

from pathlib import Path

import anyio
import pytest

from tests.fakes.model import FakeModelServer, ModelRequest, Reply
from tests.journeys.people import Person, Town
from tests.journeys.service import Service, serving, with_model

PLATFORMS = ("slack", "telegram", "feishu")


async def restart(service: Service) -> None:
    await service.kill()
    await service.start()
    await service.until_connected(*PLATFORMS)


async def test_killed_in_mid_run_every_message_is_answered_once(tmp_path: Path) -> None:
    async with Town() as town, FakeModelServer() as model:
        config = {**with_model(model.base_url), "channels": town.channels}
        async with serving(tmp_path, config, *PLATFORMS) as service:
            model.reply(*[Reply(text="never to be finished", hang_after=2)] * len(town.seats))
            for seat in town.seats:
                await seat.say(f"hi from {seat.name}")
            await model.until(lambda m: len(m.requests) == len(town.seats), within_s=15)
            await restart(service)
            for seat in town.seats:
                await seat.hears(f"You said: hi from {seat.name}")
                assert seat.stray() == []
        assert town.violations == []


async def test_killed_right_after_the_acknowledgement_nothing_is_lost(tmp_path: Path) -> None:
    async with Town() as town, FakeModelServer() as model:
        config = {**with_model(model.base_url), "channels": town.channels}
        async with serving(tmp_path, config, *PLATFORMS) as service:
            model.answer = _slow
            for seat in town.seats:
                await seat.say(f"hi from {seat.name}")
            await town.slack.wait_for(lambda: all(e.acked for e in town.slack.sockets.envelopes))
            await town.feishu.wait_for(lambda: all(e.acked for e in town.feishu.world.events))
            await restart(service)
            for seat in town.seats:
                await seat.hears(f"You said: hi from {seat.name}")
        assert town.violations == []


@pytest.mark.parametrize("place", range(6))
async def test_killed_between_reply_and_record(tmp_path: Path, place: int) -> None:
    """The answer is out, the connection broke before the platform's word came back, then kill -9."""
    async with Town() as town, FakeModelServer() as model:
        seat = town.seats[place]
        channels = {seat.channel: town.channels[seat.channel]}
        config = {**with_model(model.base_url), "channels": channels}
        async with serving(tmp_path, config, seat.channel) as service:
            seat.lose_next_answer()
            await seat.say("hi")
            await _sees(seat, "You said: hi")
            await service.kill()
            await service.start()
            await service.until_connected(seat.channel)
            await seat.say("still there?")
            await _sees(seat, "You said: still there?")
            first = [said for said in seat.heard() if said == "You said: hi"]
            if seat.channel != "telegram":
                assert len(first) == 1
            else:
                assert len(first) <= 2
                async with service.client() as client:
                    rows = (await client.get("/api/channels/outbox")).json()
                states = [row["state"] for row in _rows(rows)]
                assert states.count("uncertain") == len(first) - 1
        assert town.violations == []


async def test_sigterm_while_a_run_hangs_ends_in_time_and_the_turn_is_taken_up_again(
    tmp_path: Path,
) -> None:
    async with Town() as town, FakeModelServer() as model:
        config = {**with_model(model.base_url), "channels": town.channels}
        async with serving(tmp_path, config, *PLATFORMS) as service:
            model.reply(*[Reply(text="never", hang_after=0)] * len(town.seats))
            for seat in town.seats:
                await seat.say("hi")
            await model.until(lambda m: len(m.requests) == len(town.seats), within_s=15)
            assert await service.stop() == 0
            await service.start()
            for seat in town.seats:
                await seat.hears("You said: hi")
        assert town.violations == []


def _slow(request: ModelRequest) -> Reply:
    return Reply(text=f"You said: {request.last_user_text}", first_token_delay_s=0.5)


def _rows(body: object) -> list[dict[str, object]]:
    found = body["rows"] if isinstance(body, dict) else body
    assert isinstance(found, list)
    return found


async def _sees(seat: Person, text: str) -> None:
    with anyio.fail_after(25):
        while text not in seat.heard():  # noqa: ASYNC110 - three platforms, three signals
            await anyio.sleep(0.02)
