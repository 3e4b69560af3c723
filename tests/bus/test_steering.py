"""session.busy: the effect of a message that arrives while a turn is running."""

import logging
from dataclasses import replace
from pathlib import Path
from typing import Literal

import anyio
import pytest

from bus.config import BusConfig, SessionConfig
from bus.locales.en import ENGLISH
from bus.messages import MessageEdit, decode_inbound, encode_inbound
from store.config import StoreConfig
from store.database import Database
from store.inbox import InboxStore
from tests.bus.harness import (
    OPEN,
    STEER,
    attachment,
    inbound_message,
    running_bus,
    running_steered_bus,
)
from tests.bus.test_turn import turn_harness
from tests.eventually import eventually
from tests.fakes.langgraph import FakeLangGraph, Script
from tests.fakes.platform import CardPlatform
from tests.faults.injection import Faults, FaultyDatabase, Mode

INTERRUPT = OPEN.model_copy(update={"session": SessionConfig(busy="interrupt")})


async def test_a_message_is_injected_into_the_running_turn(tmp_path: Path) -> None:
    async with running_steered_bus(tmp_path, CardPlatform("fake")) as harness:
        gate = harness.hold_next_run("Both", " done")
        await harness.send("do this")
        await harness.wait_for_runs(1)
        await harness.send("and that")
        await harness.server.runs[0].injection_arrived.wait()
        gate.set()
        await harness.wait_until_finished()
        await harness.expect_replies("Both done")
        assert harness.thread_messages() == ["do this", "and that", "Both done"]
        [messages] = harness.server.threads.values()
        assert [m["id"] for m in messages[:2]] == ["fake:e1", "fake:e2"]
        assert messages[1]["additional_kwargs"] == {
            "steering": True,
            "sender": {"id": "u", "name": "u"},
            "chat_type": "private",
        }
        # The indicator on the injected message changed, too.
        await eventually(lambda: harness.platform.indicators.count("done") == 2)  # type: ignore[attr-defined]
        assert len(harness.server.runs) == 1


async def test_messages_that_the_run_did_not_consume_get_a_turn_of_their_own(
    tmp_path: Path,
) -> None:
    async with running_steered_bus(tmp_path) as harness:
        ends = anyio.Event()
        harness.server.scripts.append(Script(words=("First",), ends=ends))
        await harness.send("one")
        await harness.wait_for_runs(1)
        await harness.send("two")
        await harness.server.runs[0].injection_arrived.wait()
        ends.set()
        await harness.expect_replies("First", "Hello you")
        assert harness.prompts() == ["one", "two"]
        await harness.wait_until_finished()


async def test_several_messages_are_injected_in_order_with_their_files(tmp_path: Path) -> None:
    async with running_steered_bus(tmp_path) as harness:
        gate = harness.hold_next_run("All", " done")
        await harness.send("one")
        await harness.wait_for_runs(1)
        await harness.send("two")
        await harness.send("three")
        await eventually(lambda: len(harness.server.runs[0].injected) == 2)
        gate.set()
        await harness.expect_replies("All done")
        assert harness.thread_messages() == ["one", "two", "three", "All done"]
        await harness.wait_until_finished()


async def test_a_file_that_cannot_be_fetched_is_reported(tmp_path: Path) -> None:
    async with running_steered_bus(tmp_path) as harness:
        gate = harness.hold_next_run("Seen")
        await harness.send("one")
        await harness.wait_for_runs(1)
        await harness.send("look", attachments=(attachment("a.txt"),))
        await harness.server.runs[0].injection_arrived.wait()
        gate.set()
        await harness.expect_replies("Seen")
        assert harness.thread_messages()[1].startswith("look\n[")


async def test_messages_of_others_wait(tmp_path: Path) -> None:
    async with running_steered_bus(tmp_path) as harness:
        gate = harness.hold_next_run("Mine")
        await harness.send("one", is_private=False)
        await harness.wait_for_runs(1)
        await harness.send("two", is_private=False, user="another")
        gate.set()
        await harness.expect_replies("Mine", "Hello you")
        assert harness.prompts() == ["one", "two"]
        assert "steering" not in str(harness.server.threads)


async def test_stop_ends_the_turn_and_the_injected_messages(tmp_path: Path) -> None:
    async with running_steered_bus(tmp_path, CardPlatform("fake")) as harness:
        harness.hold_next_run("never")
        await harness.send("one")
        await harness.wait_for_runs(1)
        await harness.send("two")
        await harness.server.runs[0].injection_arrived.wait()
        await harness.send("/stop")
        await eventually(lambda: harness.platform.texts == ["⏹ Stopped.", "Stopped."])
        await harness.wait_until_finished()
        assert harness.prompts() == ["one"]


async def test_a_stop_does_not_affect_later_messages(tmp_path: Path) -> None:
    """The next message arrives before the command is executed, or while the run is being canceled."""
    async with turn_harness(tmp_path) as harness, anyio.create_task_group() as tasks:
        harness.server.accepts_injection = True
        harness.server.scripts.append(Script(hang_after=1))
        turn = await harness.accept_turn("one", "e1")
        tasks.start_soon(turn.run)
        await eventually(lambda: harness.server.runs)
        before, after, late = [
            (await harness.accept_turn(word, word)).message for word in ("before", "after", "late")
        ]
        turn.control.steer(before)
        turn.control.steer(after)
        await eventually(lambda: len(harness.server.runs[0].injected) == 2)
        turn.control.stop(before=before.row.seq)
        turn.control.steer(late)
        await turn.control.finished.wait()
        assert [one.text for one in turn.outcome.taken] == ["before"]


async def test_undo_and_retry_mean_the_whole_turn(tmp_path: Path) -> None:
    async with running_steered_bus(tmp_path) as harness:
        gate = harness.hold_next_run("Both")
        await harness.send("one")
        await harness.wait_for_runs(1)
        await harness.send("two")
        await harness.server.runs[0].injection_arrived.wait()
        gate.set()
        await harness.expect_replies("Both")
        harness.server.scripts.append(Script(words=("Better",)))
        await harness.send("/retry")
        await harness.expect_replies("Both", "Better")
        assert harness.prompts() == ["one", "one\n\ntwo"]
        assert harness.thread_messages() == ["one\n\ntwo", "Better"]
        await harness.send("/undo")
        await eventually(lambda: harness.thread_messages() == [])


async def test_a_run_on_a_server_without_injection_is_interrupted(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING)
    async with running_bus(tmp_path, policy=STEER) as harness:
        harness.server.scripts.append(Script(hang_after=1))
        await harness.send("one")
        await harness.wait_for_runs(1)
        await harness.send("two")
        await harness.expect_replies("Hello you")
        harness.server.scripts.append(Script(hang_after=1))
        await harness.send("three")
        await harness.wait_for_runs(3)
        await harness.send("four")
        await harness.expect_replies("Hello you", "Hello you")
        assert harness.prompts() == ["one", "two", "three", "four"]
        await harness.wait_until_finished()
    assert caplog.text.count("cannot inject messages") == 1


async def test_a_server_that_cannot_inject_into_one_thread_is_asked_for_the_next(
    tmp_path: Path,
) -> None:
    """A 404 concerns one thread only. Other conversations are still steered."""
    async with running_bus(tmp_path, policy=STEER) as harness:
        harness.server.scripts.append(Script(hang_after=1))
        await harness.send("one", chat="a")
        await harness.wait_for_runs(1)
        await harness.send("two", chat="a")
        await harness.expect_replies("Hello you")
        harness.server.accepts_injection = True
        gate = harness.hold_next_run("Both")
        await harness.send("three", chat="b")
        await harness.wait_for_runs(3)
        await harness.send("four", chat="b")
        await harness.server.runs[2].injection_arrived.wait()
        gate.set()
        await harness.expect_replies("Hello you", "Both")


@pytest.mark.parametrize("heard", [True, False])
async def test_a_crash_loses_nothing_and_answers_nothing_twice(
    tmp_path: Path, *, heard: bool
) -> None:
    """The process dies while a message is queued at the run: after the run consumed it, or before."""
    async with FakeLangGraph() as server:
        async with running_steered_bus(tmp_path, server=server) as harness:
            gate = harness.hold_next_run("Both")
            server.scripts[-1].ends = anyio.Event()
            await harness.send("one")
            await harness.wait_for_runs(1)
            await harness.send("two")
            await server.runs[0].injection_arrived.wait()
            if heard:
                gate.set()
                await eventually(lambda: len(harness.thread_messages()) == 2)
        # Stopping the bus cancels no run. This one continues, or died with its server.
        [run] = server.runs
        if not heard:
            run.injected.clear()
            run.status = "interrupted"
            run.canceled.set()
        async with running_steered_bus(
            tmp_path, server=server, platform=CardPlatform("fake")
        ) as harness:
            if heard:
                await eventually(lambda: harness.platform.indicators.count("working") == 2)  # type: ignore[attr-defined]
                run.script.ends.set()  # type: ignore[union-attr]
            await harness.wait_until_finished()
            await eventually(lambda: all(shown.final for shown in harness.platform.shown))
            assert harness.thread_messages().count("two") == 1
            assert run.injected == []
            if heard:
                assert harness.platform.texts == ["Both"]
                assert len(server.runs) == 1
            else:
                assert set(harness.platform.texts) == {"Hello you"}


@pytest.mark.parametrize("is_edited", [False, True])
async def test_a_row_that_a_run_consumed_is_finished_without_a_reply(
    tmp_path: Path, *, is_edited: bool
) -> None:
    """If it was edited after the run consumed it, the bot offers to answer it again."""
    async with FakeLangGraph() as server:
        await _die_before_a_consumed_message_is_finished(tmp_path, server, is_edited=is_edited)
        async with running_steered_bus(
            tmp_path, server=server, platform=CardPlatform("fake")
        ) as harness:
            await harness.wait_until_finished()
            offers = [ENGLISH.rerun_offer_later] if is_edited else []
            await eventually(lambda: harness.platform.texts == offers)
            assert len(server.runs) == 1


@pytest.mark.parametrize("mode", ["steer", "queue"])
async def test_a_message_waits_for_its_thread_as_long_as_an_outage_lasts(
    tmp_path: Path, mode: Literal["steer", "queue"]
) -> None:
    """Until then, nobody knows whether a run consumed it. If it is edited in the meantime, the bot offers to answer."""
    policy = OPEN.model_copy(update={"session": SessionConfig(busy=mode)})
    async with FakeLangGraph() as server:
        await _die_before_a_consumed_message_is_finished(tmp_path, server)
        server.answers_state = False
        async with running_bus(tmp_path, server=server, policy=policy) as harness:
            await _until_asked(server, 4)
            edited = inbound_message("three", "edit")
            await harness.bus.intake.handle_edit(
                MessageEdit(event_id="edit", key=edited.key, message_id="e2", edited=edited)
            )
            await _until_asked(server, 2)
            assert await harness.bus.inbox.list_unfinished() != []
            server.answers_state = True
            await harness.wait_until_finished()
            await harness.expect_replies(ENGLISH.rerun_offer_later)
        assert len(server.runs) == 1


async def test_a_message_that_waits_for_its_thread_can_be_stopped(tmp_path: Path) -> None:
    async with FakeLangGraph() as server:
        await _die_before_a_consumed_message_is_finished(tmp_path, server)
        server.answers_state = False
        async with running_steered_bus(tmp_path, server=server) as harness:
            await _until_asked(server, 2)
            await harness.send("/stop", event="e3")
            await harness.wait_until_finished()
            await harness.expect_replies(ENGLISH.stop_done)
        assert len(server.runs) == 1


async def _until_asked(server: FakeLangGraph, times: int) -> None:
    """Wait until a thread has been requested this many times from now on."""

    def count() -> int:
        return sum(path.endswith("/state") for _, path in server.requests)

    before = count()
    await eventually(lambda: count() >= before + times)


async def _die_before_a_consumed_message_is_finished(
    home: Path, server: FakeLangGraph, *, is_edited: bool = False
) -> None:
    """Let the process die between the end of a turn and finishing the message e2, which was injected into it."""
    async with running_steered_bus(home, server=server) as harness:
        gate = harness.hold_next_run("Both")
        await harness.send("one")
        await harness.wait_for_runs(1)
        await harness.send("two")
        await server.runs[0].injection_arrived.wait()
        gate.set()
        await harness.expect_replies("Both")
        await harness.wait_until_finished()
    async with Database.open(StoreConfig(), home) as database:
        said = next(row for row in await InboxStore(database).list_recent() if row.event_id == "e2")
        assert said.run_id == server.runs[0].run_id
        revive = "UPDATE inbox SET state = 'new' WHERE id = :id"
        await database.transaction(lambda tx: tx.run(revive, {"id": said.id}))
        if is_edited:
            edited = replace(decode_inbound(said.body), text="three", edit_count=1)
            assert await InboxStore(database).update_body(said.id, encode_inbound(edited))


async def test_messages_from_buttons_have_their_own_turn(tmp_path: Path) -> None:
    async with running_steered_bus(tmp_path) as harness:
        gate = harness.hold_next_run("First")
        await harness.send("one")
        await harness.wait_for_runs(1)
        await harness.send("green", answers_row=1)
        gate.set()
        await harness.expect_replies("First", "Hello you")
        assert harness.prompts() == ["one", "green"]


async def test_the_persons_own_setting_applies(tmp_path: Path) -> None:
    """Settings are merged in the order user > chat > channel > defaults, like all session settings."""
    mine = SessionConfig(
        busy="interrupt",
        chats={"b": SessionConfig(busy="queue"), "a": SessionConfig(busy="interrupt")},
        users={"u": SessionConfig(busy="steer")},
    )
    policy = OPEN.model_copy(update={"session": mine})
    async with running_steered_bus(tmp_path, policy=policy) as harness:
        for user, chat in (("u", "a"), ("v", "b")):
            gate = harness.hold_next_run(user)
            await harness.send("one", user=user, chat=chat)
            await harness.wait_for_runs(1 if user == "u" else 2)
            await harness.send("two", user=user, chat=chat)
            if user == "u":
                await harness.server.runs[0].injection_arrived.wait()
            gate.set()
            await harness.wait_until_finished()
        await harness.expect_replies("u", "v", "Hello you")
        assert harness.prompts() == ["one", "one", "two"]


async def test_a_newer_message_interrupts_and_the_card_says_so(tmp_path: Path) -> None:
    async with running_bus(tmp_path, platform=CardPlatform("fake"), policy=INTERRUPT) as harness:
        harness.server.scripts.append(Script(words=("Thinking", "…", "on"), hang_after=1))
        await harness.send("one")
        await eventually(lambda: "Thinking" in harness.platform.texts)
        await harness.send("two")
        interrupted = "Thinking\n\n⏹ Stopped: I am answering your newer message first."
        await eventually(lambda: harness.platform.texts == [interrupted, "Hello you"])
        assert harness.server.runs[0].canceled.is_set()


@pytest.mark.parametrize("is_there", [True, False])
async def test_an_answer_that_is_complete_is_shown_though_a_newer_message_came_before_it(
    tmp_path: Path, *, is_there: bool
) -> None:
    """The run has ended and its answer is in the thread, but the stream has not reported it yet.

    If the thread has lost the message, nothing is shown.
    """
    async with running_bus(tmp_path, policy=INTERRUPT) as harness:
        harness.server.scripts.append(Script(words=("All", " done"), hang_after=1))
        await harness.send("one")
        await harness.wait_for_runs(1)
        [run] = harness.server.runs
        await eventually(lambda: harness.thread_messages() == ["one"])
        answer = {"type": "ai", "id": "answer", "content": "All done"}
        harness.server.threads[run.thread_id][:] = (
            [*harness.server.threads[run.thread_id], answer] if is_there else []
        )
        run.status = "success"
        await harness.send("two")
        await harness.expect_replies(*(["All done"] if is_there else []), "Hello you")
        assert harness.prompts() == ["one", "two"]


async def test_the_queue_is_the_default(tmp_path: Path) -> None:
    async with running_bus(tmp_path, config=BusConfig(drain_s=0.2)) as harness:
        harness.server.accepts_injection = True
        gate = harness.hold_next_run("First")
        await harness.send("one")
        await harness.wait_for_runs(1)
        await harness.send("two")
        gate.set()
        await harness.expect_replies("First", "Hello you")
        assert harness.prompts() == ["one", "two"]


async def test_messages_that_a_run_consumed_fail_with_its_turn(tmp_path: Path) -> None:
    faults = Faults("TurnSteps.finish > InboxStore.finish", Mode.UNKNOWN)
    platform = CardPlatform("fake")
    async with running_bus(
        tmp_path,
        platform=platform,
        policy=STEER,
        wrap=lambda database: FaultyDatabase(database, faults),
    ) as harness:
        harness.server.accepts_injection = True
        gate = harness.hold_next_run("Both", " done")
        await harness.send("do this")
        await harness.wait_for_runs(1)
        await harness.send("and that")
        await harness.server.runs[0].injection_arrived.wait()
        faults.is_on = True
        gate.set()
        await eventually(lambda: platform.texts == [ENGLISH.failed])
        await harness.wait_until_finished()
        await eventually(lambda: platform.indicators.count("failed") == 2)
        assert len(harness.server.runs) == 1
