"""`channels.langgraph_url`: the same journeys against servers that lack Parley's kindnesses."""

from collections.abc import Callable
from pathlib import Path

import anyio
import pytest

from tests.fakes.langgraph import FakeLangGraph, Script
from tests.journeys.people import Person, Town
from tests.journeys.service import serving

PLATFORMS = ("slack", "telegram", "feishu")


def script(*words: str, hang_after: int | None = None, drop_after: int | None = None) -> Script:
    """Return an answer of these words, each with a space before it."""
    spoken = tuple(f" {word}" if place else word for place, word in enumerate(words))
    return Script(words=spoken, hang_after=hang_after, drop_after=drop_after)


async def until(found: Callable[[], object]) -> None:
    with anyio.fail_after(10):
        while not found():  # noqa: ASYNC110 - the fake has no signal for it
            await anyio.sleep(0.02)


@pytest.mark.parametrize("flavour", ["langgraph", "deerflow"])
async def test_answer_continue_stop_and_recover(tmp_path: Path, flavour: str) -> None:
    async with Town() as town, FakeLangGraph(flavour) as server:
        config = {"channels": {**town.channels, "langgraph_url": server.url}}
        async with serving(tmp_path, config, *PLATFORMS) as service:
            # The bus is the same for all platforms: each journey is walked on one, each flavour on another.
            first = flavour == "deerflow"
            await _answer_and_continue(town.person(1)[first], server)
            await _stop(town.person(2)[first + 1], server)
            await _fail_and_go_on(town.person(3)[2 - first], server)
            await _lose_the_connection_and_the_thread(town.person(4)[1 - first], server)
            assert await service.stop() == 0
        assert "Traceback" not in service.log.read_text()
        assert town.violations == []


async def _answer_and_continue(seat: Person, server: FakeLangGraph) -> None:
    server.scripts.append(script("Good", "morning"))
    await seat.say("hello")
    await seat.hears("Good morning")
    server.scripts.append(Script(words=(), question="Red or blue?"))
    await seat.say("paint it")
    await seat.hears("Good morning", "Red or blue?")
    server.scripts.append(script("Red", "then"))
    await seat.say("red")
    await seat.hears("Good morning", "Red or blue?", "Red then")
    threads = {run.thread_id for run in server.runs[-3:]}
    assert len(threads) == 1
    said = [m["content"] for m in server.threads[threads.pop()] if m["type"] == "human"]
    assert said == ["hello", "paint it", "red"]


async def _stop(seat: Person, server: FakeLangGraph) -> None:
    runs = len(server.runs)
    server.scripts.append(script("one", "two", "three", hang_after=2))
    await seat.say("count")
    await until(lambda: len(server.runs) > runs and len(server.runs[-1].events) >= 4)
    await seat.say("/stop")
    await seat.sees("Stopped")
    await until(server.runs[-1].cancelled.is_set)
    server.scripts.append(script("I", "am", "here"))
    await seat.say("and now?")
    await seat.sees("I am here")


async def _fail_and_go_on(seat: Person, server: FakeLangGraph) -> None:
    server.refusals.extend([503, 503])
    server.scripts.append(script("after", "all"))
    await seat.say("hello")
    await seat.hears("after all")
    server.scripts.append(Script(words=(), error={"error": "ValueError", "message": "secret"}))
    await seat.say("break")
    said = await seat.sees("⚠️")
    assert "secret" not in said
    server.scripts.append(script("well", "again"))
    await seat.say("and now?")
    await seat.hears("after all", said, "well again")


async def _lose_the_connection_and_the_thread(seat: Person, server: FakeLangGraph) -> None:
    server.scripts.append(script("a", "b", "c", "d", drop_after=2))
    await seat.say("hello")
    await seat.hears("a b c d")
    server.threads.clear()
    server.scripts.append(script("who", "are", "you"))
    await seat.say("remember me?")
    await seat.hears("a b c d", "who are you")
