"""session.busy: what a message does that comes while a turn runs before it."""

import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import anyio
import pytest

from bus.config import BusConfig, ChannelPolicy, SessionConfig
from store.config import StoreConfig
from store.database import Database
from store.inbox import InboxStore
from tests.bus.rig import OPEN, House, file, house, until
from tests.fakes.langgraph import FakeLangGraph, Script
from tests.fakes.platform import CardPlatform, FakePlatform

STEER = OPEN.model_copy(update={"session": SessionConfig(busy="steer")})
INTERRUPT = OPEN.model_copy(update={"session": SessionConfig(busy="interrupt")})


@asynccontextmanager
async def steered(
    home: Path,
    platform: FakePlatform | None = None,
    server: FakeLangGraph | None = None,
    policy: ChannelPolicy = STEER,
) -> AsyncIterator[House]:
    async with house(home, platform=platform, server=server, policy=policy) as here:
        here.server.hears = True
        yield here


def gated(home: House, *words: str) -> anyio.Event:
    """Let the next run wait for a gate, then hear what was said, then say these words."""
    gate = anyio.Event()
    home.server.scripts.append(Script(words=words, gate=gate))
    return gate


def thread(home: House) -> list[str]:
    [messages] = home.server.threads.values()
    return [str(message["content"]) for message in messages]


async def unfinished(home: House) -> list[str]:
    return [row.event_id for row in await home.bus.inbox.list_unfinished()]


async def finished(home: House) -> None:
    """Wait until no message is left to be answered."""
    with anyio.fail_after(15):
        while await unfinished(home):  # noqa: ASYNC110 - the journal tells nobody
            await anyio.sleep(0.01)


async def test_a_message_is_said_to_the_turn_that_runs(tmp_path: Path) -> None:
    async with steered(tmp_path, CardPlatform("fake")) as home:
        gate = gated(home, "Both", " done")
        await home.say("do this")
        await home.runs(1)
        await home.say("and that")
        await home.server.runs[0].heard.wait()
        gate.set()
        await finished(home)
        await home.reads("Both done")
        assert thread(home) == ["do this", "and that", "Both done"]
        [messages] = home.server.threads.values()
        assert [m["id"] for m in messages[:2]] == ["fake:e1", "fake:e2"]
        assert messages[1]["additional_kwargs"] == {"steering": True}
        # The sign on the message that was said turned as well.
        await until(lambda: home.platform.signs.count("done") == 2)  # type: ignore[attr-defined]
        assert len(home.server.runs) == 1


async def test_what_the_run_did_not_hear_gets_a_turn_of_its_own(tmp_path: Path) -> None:
    async with steered(tmp_path) as home:
        ends = anyio.Event()
        home.server.scripts.append(Script(words=("First",), ends=ends))
        await home.say("one")
        await home.runs(1)
        await home.say("two")
        await home.server.runs[0].heard.wait()
        ends.set()
        await home.reads("First", "Hello you")
        assert home.prompts() == ["one", "two"]
        await finished(home)


async def test_several_are_heard_in_order_and_files_go_along(tmp_path: Path) -> None:
    async with steered(tmp_path) as home:
        gate = gated(home, "All", " done")
        await home.say("one")
        await home.runs(1)
        await home.say("two")
        await home.say("three")
        await until(lambda: len(home.server.runs[0].told) == 2)
        gate.set()
        await home.reads("All done")
        assert thread(home) == ["one", "two", "three", "All done"]
        await finished(home)


async def test_a_file_that_cannot_be_fetched_is_told_of(tmp_path: Path) -> None:
    async with steered(tmp_path) as home:
        gate = gated(home, "Seen")
        await home.say("one")
        await home.runs(1)
        await home.say("look", attachments=(file("a.txt"),))
        await home.server.runs[0].heard.wait()
        gate.set()
        await home.reads("Seen")
        assert thread(home)[1].startswith("look\n[")


async def test_messages_of_others_wait(tmp_path: Path) -> None:
    async with steered(tmp_path) as home:
        gate = gated(home, "Mine")
        await home.say("one", is_private=False)
        await home.runs(1)
        await home.say("two", is_private=False, user="another")
        gate.set()
        await home.reads("Mine", "Hello you")
        assert home.prompts() == ["one", "two"]
        assert "steering" not in str(home.server.threads)


async def test_stop_ends_all_that_was_said(tmp_path: Path) -> None:
    async with steered(tmp_path, CardPlatform("fake")) as home:
        gated(home, "never")
        await home.say("one")
        await home.runs(1)
        await home.say("two")
        await home.server.runs[0].heard.wait()
        await home.say("/stop")
        await until(lambda: home.platform.texts == ["⏹ Stopped.", "Stopped."])
        await finished(home)
        assert home.prompts() == ["one"]


async def test_undo_and_retry_mean_the_whole_turn(tmp_path: Path) -> None:
    async with steered(tmp_path) as home:
        gate = gated(home, "Both")
        await home.say("one")
        await home.runs(1)
        await home.say("two")
        await home.server.runs[0].heard.wait()
        gate.set()
        await home.reads("Both")
        home.server.scripts.append(Script(words=("Better",)))
        await home.say("/retry")
        await home.reads("Both", "Better")
        assert home.prompts() == ["one", "one\n\ntwo"]
        assert thread(home) == ["one\n\ntwo", "Better"]
        await home.say("/undo")
        await until(lambda: thread(home) == [])


async def test_a_server_that_hears_nothing_is_interrupted(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING)
    async with house(tmp_path, policy=STEER) as home:
        home.server.scripts.append(Script(hang_after=1))
        await home.say("one")
        await home.runs(1)
        await home.say("two")
        await home.reads("Hello you")
        home.server.scripts.append(Script(hang_after=1))
        await home.say("three")
        await home.runs(3)
        await home.say("four")
        await home.reads("Hello you", "Hello you")
        assert home.prompts() == ["one", "two", "three", "four"]
        await finished(home)
    assert caplog.text.count("injects nothing") == 1


async def test_a_server_that_cannot_inject_into_one_thread_is_asked_for_the_next(
    tmp_path: Path,
) -> None:
    """A 404 says something about one thread: other conversations are still steered."""
    async with house(tmp_path, policy=STEER) as home:
        home.server.scripts.append(Script(hang_after=1))
        await home.say("one", chat="a")
        await home.runs(1)
        await home.say("two", chat="a")
        await home.reads("Hello you")
        home.server.hears = True
        gate = gated(home, "Both")
        await home.say("three", chat="b")
        await home.runs(3)
        await home.say("four", chat="b")
        await home.server.runs[2].heard.wait()
        gate.set()
        await home.reads("Hello you", "Both")


@pytest.mark.parametrize("heard", [True, False])
async def test_a_crash_loses_nothing_and_answers_nothing_twice(
    tmp_path: Path, *, heard: bool
) -> None:
    """The process dies while a message is with the run: after the run heard it, or before."""
    async with FakeLangGraph() as server:
        async with steered(tmp_path, server=server) as home:
            gate = gated(home, "Both")
            server.scripts[-1].ends = anyio.Event()
            await home.say("one")
            await home.runs(1)
            await home.say("two")
            await server.runs[0].heard.wait()
            if heard:
                gate.set()
                await until(lambda: len(thread(home)) == 2)
        # The end of the bus cancels no run: this one goes on, or died with its server.
        [run] = server.runs
        if not heard:
            run.told.clear()
            run.status = "interrupted"
            run.cancelled.set()
        async with steered(tmp_path, server=server, platform=CardPlatform("fake")) as home:
            if heard:
                await until(lambda: home.platform.signs.count("working") == 2)  # type: ignore[attr-defined]
                run.script.ends.set()  # type: ignore[union-attr]
            await finished(home)
            await until(lambda: all(shown.final for shown in home.platform.shown))
            assert thread(home).count("two") == 1
            assert run.told == []
            if heard:
                assert home.platform.texts == ["Both"]
                assert len(server.runs) == 1
            else:
                assert set(home.platform.texts) == {"Hello you"}


async def test_a_row_that_was_said_and_heard_is_finished_without_a_word(tmp_path: Path) -> None:
    """The process died between the end of the turn and the end of the message that was said to it."""
    async with FakeLangGraph() as server:
        async with steered(tmp_path, server=server) as home:
            gate = gated(home, "Both")
            await home.say("one")
            await home.runs(1)
            await home.say("two")
            await server.runs[0].heard.wait()
            gate.set()
            await home.reads("Both")
            await finished(home)
        async with Database.open(StoreConfig(), tmp_path) as database:
            said = next(
                row for row in await InboxStore(database).list_recent() if row.event_id == "e2"
            )
            assert said.run_id == server.runs[0].run_id
            revive = "UPDATE inbox SET state = 'new' WHERE id = :id"
            await database.transaction(lambda tx: tx.run(revive, {"id": said.id}))
            count = "UPDATE conversation SET pending = 1"
            await database.transaction(lambda tx: tx.run(count, {}))
        async with steered(tmp_path, server=server, platform=CardPlatform("fake")) as home:
            await finished(home)
            assert home.platform.texts == []
            assert len(server.runs) == 1


async def test_what_buttons_ask_for_has_a_turn_of_its_own(tmp_path: Path) -> None:
    async with steered(tmp_path) as home:
        gate = gated(home, "First")
        await home.say("one")
        await home.runs(1)
        await home.say("green", answers_row=1)
        gate.set()
        await home.reads("First", "Hello you")
        assert home.prompts() == ["one", "green"]


async def test_the_persons_own_setting_counts(tmp_path: Path) -> None:
    """Merged user > chat > channel > defaults, as everything in a session."""
    mine = SessionConfig(
        busy="interrupt",
        chats={"b": SessionConfig(busy="queue"), "a": SessionConfig(busy="interrupt")},
        users={"u": SessionConfig(busy="steer")},
    )
    policy = OPEN.model_copy(update={"session": mine})
    async with steered(tmp_path, policy=policy) as home:
        for user, chat in (("u", "a"), ("v", "b")):
            gate = gated(home, user)
            await home.say("one", user=user, chat=chat)
            await home.runs(1 if user == "u" else 2)
            await home.say("two", user=user, chat=chat)
            if user == "u":
                await home.server.runs[0].heard.wait()
            gate.set()
            await finished(home)
        await home.reads("u", "v", "Hello you")
        assert home.prompts() == ["one", "one", "two"]


async def test_a_newer_message_interrupts_and_the_card_says_so(tmp_path: Path) -> None:
    async with house(tmp_path, platform=CardPlatform("fake"), policy=INTERRUPT) as home:
        home.server.scripts.append(Script(words=("Thinking", "…", "on"), hang_after=1))
        await home.say("one")
        await until(lambda: "Thinking" in home.platform.texts)
        await home.say("two")
        interrupted = "Thinking\n\n⏹ Stopped: I am answering your newer message first."
        await until(lambda: home.platform.texts == [interrupted, "Hello you"])
        assert home.server.runs[0].cancelled.is_set()


async def test_the_queue_is_the_default(tmp_path: Path) -> None:
    async with house(tmp_path, config=BusConfig(drain_s=0.2)) as home:
        home.server.hears = True
        gate = gated(home, "First")
        await home.say("one")
        await home.runs(1)
        await home.say("two")
        gate.set()
        await home.reads("First", "Hello you")
        assert home.prompts() == ["one", "two"]
