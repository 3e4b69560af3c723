"""`channels.langgraph_url`: the same journeys with servers that lack Parley's extensions."""

from pathlib import Path

import pytest

from tests.eventually import eventually
from tests.fakes.langgraph import FakeLangGraph, Script
from tests.journeys.service import serving
from tests.people.chat_user import ChatUser
from tests.people.platforms import PlatformServers

PLATFORMS = ("slack", "telegram", "feishu")


def script(*words: str, hang_after: int | None = None, drop_after: int | None = None) -> Script:
    """Return an answer of these words, each preceded by a space."""
    spoken = tuple(f" {word}" if place else word for place, word in enumerate(words))
    return Script(words=spoken, hang_after=hang_after, drop_after=drop_after)


@pytest.mark.parametrize("flavour", ["langgraph", "deerflow"])
async def test_a_remote_server_answers_continues_stops_and_recovers(
    tmp_path: Path, flavour: str
) -> None:
    async with PlatformServers() as platforms, FakeLangGraph(flavour) as server:
        config = {"channels": {**platforms.channels, "langgraph_url": server.url}}
        async with serving(tmp_path, config, *PLATFORMS) as service:
            # The bus is the same for all platforms: each journey runs on one of them, and each flavor on another.
            first = flavour == "deerflow"
            await _answer_and_continue(platforms.private_users(1)[first], server)
            await _stop(platforms.private_users(2)[first + 1], server)
            await _fail_and_go_on(platforms.private_users(3)[2 - first], server)
            await _lose_the_connection_and_the_thread(platforms.private_users(4)[1 - first], server)
            assert await service.stop() == 0
        assert "Traceback" not in service.log.read_text()
        assert platforms.violations == []


async def _answer_and_continue(user: ChatUser, server: FakeLangGraph) -> None:
    server.scripts.append(script("Good", "morning"))
    await user.send("hello")
    await user.expect_messages("Good morning")
    server.scripts.append(Script(words=(), question="Red or blue?"))
    await user.send("paint it")
    await user.expect_messages("Good morning", "Red or blue?")
    server.scripts.append(script("Red", "then"))
    await user.send("red")
    await user.expect_messages("Good morning", "Red or blue?", "Red then")
    threads = {run.thread_id for run in server.runs[-3:]}
    assert len(threads) == 1
    said = [m["content"] for m in server.threads[threads.pop()] if m["type"] == "human"]
    assert said == ["hello", "paint it", "red"]


async def _stop(user: ChatUser, server: FakeLangGraph) -> None:
    runs = len(server.runs)
    server.scripts.append(script("one", "two", "three", hang_after=2))
    await user.send("count")
    await eventually(lambda: len(server.runs) > runs and len(server.runs[-1].events) >= 4)
    await user.send("/stop")
    await user.wait_for_message("Stopped")
    await eventually(server.runs[-1].canceled.is_set)
    server.scripts.append(script("I", "am", "here"))
    await user.send("and now?")
    await user.wait_for_message("I am here")


async def _fail_and_go_on(user: ChatUser, server: FakeLangGraph) -> None:
    server.refusals.extend([503, 503])
    server.scripts.append(script("after", "all"))
    await user.send("hello")
    await user.expect_messages("after all")
    server.scripts.append(Script(words=(), error={"error": "ValueError", "message": "secret"}))
    await user.send("break")
    said = await user.wait_for_message("⚠️")
    assert "secret" not in said
    server.scripts.append(script("well", "again"))
    await user.send("and now?")
    await user.expect_messages("after all", said, "well again")


async def _lose_the_connection_and_the_thread(user: ChatUser, server: FakeLangGraph) -> None:
    server.scripts.append(script("a", "b", "c", "d", drop_after=2))
    await user.send("hello")
    await user.expect_messages("a b c d")
    server.threads.clear()
    server.scripts.append(script("who", "are", "you"))
    await user.send("remember me?")
    await user.expect_messages("a b c d", "who are you")
