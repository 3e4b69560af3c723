"""/undo and /retry: the last message is removed once or answered again."""

from dataclasses import replace
from pathlib import Path

import pytest

from bus.config import ChannelPolicy
from bus.history.user_messages import last_rewind_point
from bus.messages import RewindPoint, encode_inbound
from store.config import StoreConfig
from store.conversations import ConversationStore
from store.database import Database
from store.inbox import InboxStore, NewInboxRow
from tests.bus.harness import BusHarness, inbound_message, running_bus
from tests.eventually import eventually
from tests.fakes.langgraph import FakeLangGraph, FakeRun, Script
from tests.fakes.platform import FakePlatform

RUNNING = "Something is running: send /stop first."


async def talk(harness: BusHarness, *words: str) -> None:
    """Send these messages one by one. Each is answered with its own text."""
    for word in words:
        before = len(harness.platform.texts)
        harness.server.scripts.append(Script(words=(f"You said {word}",)))
        await harness.send(word)
        await eventually(lambda before=before: len(harness.platform.texts) > before)  # type: ignore[misc]


async def ask(harness: BusHarness, command: str, **changes: object) -> str:
    """Send a command; return its answer."""
    before = len(harness.platform.texts)
    await harness.send(command, **changes)
    await eventually(lambda: len(harness.platform.texts) > before)
    return harness.platform.texts[before]


def thread(harness: BusHarness) -> list[str]:
    """Return the content of the only thread."""
    [messages] = harness.server.threads.values()
    return [str(message["content"]) for message in messages]


async def test_undo_takes_back_exchange_by_exchange(tmp_path: Path) -> None:
    async with running_bus(tmp_path) as harness:
        assert await ask(harness, "/undo") == "Nothing to undo."
        await talk(harness, "one", "two", "three")
        assert await ask(harness, "/undo") == "Undone: “three”."
        assert thread(harness) == ["one", "You said one", "two", "You said two"]
        assert await ask(harness, "/undo") == "Undone: “two”."
        await talk(harness, "four")
        assert thread(harness) == ["one", "You said one", "four", "You said four"]
        assert await ask(harness, "/undo") == "Undone: “four”."
        assert await ask(harness, "/undo") == "Undone: “one”."
        assert thread(harness) == []
        assert [harness.server.history[key][-1]["next"] for key in harness.server.history] == [[]]
        assert await ask(harness, "/undo") == "Nothing to undo."
        await talk(harness, "five")
        assert thread(harness) == ["five", "You said five"]


async def test_undo_works_where_the_server_forgot_the_state_before(tmp_path: Path) -> None:
    async with running_bus(tmp_path) as harness:
        harness.server.max_states = 2
        await talk(harness, "one", "two")
        assert await ask(harness, "/undo") == "Undone: “two”."
        assert thread(harness) == ["one", "You said one"]


async def test_undo_is_refused_where_the_past_cannot_be_read(tmp_path: Path) -> None:
    async with FakeLangGraph("deerflow") as server, running_bus(tmp_path, server=server) as harness:
        await talk(harness, "one", "two")
        answer = await ask(harness, "/undo")
        assert answer == "The agent's server does not support taking messages back."
        assert thread(harness) == ["one", "You said one", "two", "You said two"]


@pytest.mark.parametrize("command", ["/undo", "/retry"])
async def test_nothing_is_taken_back_while_a_turn_runs(tmp_path: Path, command: str) -> None:
    async with running_bus(tmp_path) as harness:
        harness.server.scripts.append(Script(hang_after=1))
        await harness.send("hang")
        await harness.wait_for_runs(1)
        assert await ask(harness, command) == RUNNING
        assert await ask(harness, command, chat="elsewhere") in (
            "Nothing to undo.",
            "Nothing to retry.",
        )
        assert await ask(harness, "/stop") == "Stopped."


async def test_retry_answers_the_last_message_again(tmp_path: Path) -> None:
    async with running_bus(tmp_path) as harness:
        assert await ask(harness, "/retry") == "Nothing to retry."
        await talk(harness, "one", "two")
        for answer in ("better", "best"):
            harness.server.scripts.append(Script(words=(answer,)))
            assert await ask(harness, "/retry") == answer
            assert thread(harness) == ["one", "You said one", "two", answer]
        assert harness.prompts() == ["one", "two", "two", "two"]
        [messages] = harness.server.threads.values()
        assert len({message["id"] for message in messages}) == len(messages)
        assert await ask(harness, "/undo") == "Undone: “two”."
        assert thread(harness) == ["one", "You said one"]


async def test_a_message_that_somebody_else_repeats_keeps_its_author(tmp_path: Path) -> None:
    policy = ChannelPolicy(group_policy="open")
    async with running_bus(tmp_path, policy=policy) as harness:
        await ask(harness, "one", is_private=False, user="ann")
        await ask(harness, "/retry", is_private=False, user="bob")
        first, again = (run.body["input"]["messages"][0] for run in harness.server.runs)
        for message in (first, again):
            assert message["additional_kwargs"] == {
                "sender": {"id": "ann", "name": "ann"},
                "chat_type": "group",
            }
        assert harness.server.runs[1].body["context"]["channel_user_id"] == "bob"


async def test_a_failed_turn_can_be_retried(tmp_path: Path) -> None:
    async with running_bus(tmp_path) as harness:
        harness.server.scripts.append(Script(words=(), error={"error": "APIConnectionError"}))
        assert "could not reach" in await ask(harness, "try")
        assert await ask(harness, "/retry") == "Hello you"
        assert thread(harness) == ["try", "Hello you"]


async def test_messages_sent_after_retry_are_answered_after_it(tmp_path: Path) -> None:
    async with running_bus(tmp_path) as harness:
        await talk(harness, "one")
        await harness.send("/retry")
        await harness.send("two")
        await harness.expect_replies("You said one", "Hello you", "Hello you")
        assert harness.prompts() == ["one", "one", "two"]


async def test_retry_brings_the_files_of_the_message_again(tmp_path: Path) -> None:
    file = {"filename": "a.txt", "path": "/mnt/user-data/uploads/a.txt", "size": 1}
    async with running_bus(tmp_path) as harness:
        await talk(harness, "read it")
        [messages] = harness.server.threads.values()
        messages[0]["additional_kwargs"] = {"files": [file]}
        assert await ask(harness, "/retry") == "Hello you"
        [told] = harness.server.runs[-1].body["input"]["messages"]
        assert told["additional_kwargs"]["files"] == [file]


@pytest.mark.parametrize(
    ("command", "answer", "left"),
    [
        ("/undo", "Undone: “two”.", ["one", "You said one"]),
        ("/retry", "Hello you", ["one", "You said one", "two", "Hello you"]),
    ],
)
@pytest.mark.parametrize("done", [False, True])
async def test_a_command_interrupted_by_a_crash_takes_back_the_intended_message(
    tmp_path: Path, command: str, answer: str, left: list[str], *, done: bool
) -> None:
    async with FakeLangGraph() as server:
        async with running_bus(tmp_path, server=server) as harness:
            await talk(harness, "one", "two")
            [(thread_id, messages)] = server.threads.items()
            meant = last_rewind_point(thread_id, messages)
            if done:
                await ask(harness, "/undo")
        await leave_unfinished(tmp_path, command, meant)
        async with running_bus(tmp_path, server=server, platform=FakePlatform()) as harness:
            await harness.expect_replies(answer)
            await eventually(lambda: thread(harness) == left)


async def leave_unfinished(home: Path, command: str, meant: RewindPoint | None) -> None:
    """Leave a command in the journal, like a process that dies after storing what to remove."""
    inbound = replace(inbound_message(command, "cut off"), rewind_point=meant)
    new = NewInboxRow(
        key=inbound.key,
        event_id=inbound.event_id,
        message_id=inbound.message_id,
        kind="command",
        body="",
        received_at=1.0,
    )
    async with Database.open(StoreConfig(), home) as database:
        inbox = InboxStore(database)
        row = await inbox.accept(new, cap=1)
        assert await ConversationStore(database).find(inbound.key) is not None
        assert await inbox.update_body(row.id, encode_inbound(inbound))  # type: ignore[union-attr]


async def test_the_same_event_again_takes_nothing_more_back(tmp_path: Path) -> None:
    async with running_bus(tmp_path) as harness:
        await talk(harness, "one", "two")
        assert await ask(harness, "/undo", event="u") == "Undone: “two”."
        await harness.send("/undo", event="u")
        assert await ask(harness, "/help")
        assert thread(harness) == ["one", "You said one"]


async def test_nothing_is_taken_back_while_somebody_elses_run_holds_the_thread(
    tmp_path: Path,
) -> None:
    async with running_bus(tmp_path) as harness:
        await talk(harness, "one")
        [thread_id] = harness.server.threads
        harness.server.runs.append(
            FakeRun(run_id="x", thread_id=thread_id, body={}, script=Script())
        )
        assert await ask(harness, "/undo") == RUNNING
        assert thread(harness) == ["one", "You said one"]
