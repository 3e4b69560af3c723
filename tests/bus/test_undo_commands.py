"""/undo and /retry: what was said last is taken back, once, or answered anew."""

from dataclasses import replace
from pathlib import Path

import pytest

from bus.history.user_messages import last_rewind_point
from bus.messages import RewindPoint, encode_inbound
from store.config import StoreConfig
from store.conversations import ConversationStore
from store.database import Database
from store.inbox import InboxStore, NewInboxRow
from tests.bus.rig import House, house, said, until
from tests.fakes.langgraph import FakeLangGraph, Run, Script
from tests.fakes.platform import FakePlatform

RUNNING = "Something is running: send /stop first."


async def talk(home: House, *words: str) -> None:
    """Say these things one by one, each answered with itself."""
    for word in words:
        before = len(home.platform.texts)
        home.server.scripts.append(Script(words=(f"You said {word}",)))
        await home.say(word)
        await until(lambda before=before: len(home.platform.texts) > before)  # type: ignore[misc]


async def ask(home: House, command: str, **changes: object) -> str:
    """Send a command; return its answer."""
    before = len(home.platform.texts)
    await home.say(command, **changes)
    await until(lambda: len(home.platform.texts) > before)
    return home.platform.texts[before]


def thread(home: House) -> list[str]:
    """What the only thread holds."""
    [messages] = home.server.threads.values()
    return [str(message["content"]) for message in messages]


async def test_undo_takes_back_exchange_by_exchange(tmp_path: Path) -> None:
    async with house(tmp_path) as home:
        assert await ask(home, "/undo") == "Nothing to undo."
        await talk(home, "one", "two", "three")
        assert await ask(home, "/undo") == "Undone: “three”."
        assert thread(home) == ["one", "You said one", "two", "You said two"]
        assert await ask(home, "/undo") == "Undone: “two”."
        await talk(home, "four")
        assert thread(home) == ["one", "You said one", "four", "You said four"]
        assert await ask(home, "/undo") == "Undone: “four”."
        assert await ask(home, "/undo") == "Undone: “one”."
        assert thread(home) == []
        assert [home.server.history[key][-1]["next"] for key in home.server.history] == [[]]
        assert await ask(home, "/undo") == "Nothing to undo."
        await talk(home, "five")
        assert thread(home) == ["five", "You said five"]


async def test_undo_works_where_the_server_forgot_the_state_before(tmp_path: Path) -> None:
    async with house(tmp_path) as home:
        home.server.keeps = 2
        await talk(home, "one", "two")
        assert await ask(home, "/undo") == "Undone: “two”."
        assert thread(home) == ["one", "You said one"]


async def test_undo_is_refused_where_the_past_cannot_be_read(tmp_path: Path) -> None:
    async with FakeLangGraph("deerflow") as server, house(tmp_path, server=server) as home:
        await talk(home, "one", "two")
        answer = await ask(home, "/undo")
        assert answer == "The agent's server does not support taking messages back."
        assert thread(home) == ["one", "You said one", "two", "You said two"]


@pytest.mark.parametrize("command", ["/undo", "/retry"])
async def test_nothing_is_taken_back_while_a_turn_runs(tmp_path: Path, command: str) -> None:
    async with house(tmp_path) as home:
        home.server.scripts.append(Script(hang_after=1))
        await home.say("hang")
        await home.runs(1)
        assert await ask(home, command) == RUNNING
        assert await ask(home, command, chat="elsewhere") in (
            "Nothing to undo.",
            "Nothing to retry.",
        )
        assert await ask(home, "/stop") == "Stopped."


async def test_retry_answers_the_last_message_anew(tmp_path: Path) -> None:
    async with house(tmp_path) as home:
        assert await ask(home, "/retry") == "Nothing to retry."
        await talk(home, "one", "two")
        for answer in ("better", "best"):
            home.server.scripts.append(Script(words=(answer,)))
            assert await ask(home, "/retry") == answer
            assert thread(home) == ["one", "You said one", "two", answer]
        assert home.prompts() == ["one", "two", "two", "two"]
        [messages] = home.server.threads.values()
        assert len({message["id"] for message in messages}) == len(messages)
        assert await ask(home, "/undo") == "Undone: “two”."
        assert thread(home) == ["one", "You said one"]


async def test_a_failed_turn_can_be_retried(tmp_path: Path) -> None:
    async with house(tmp_path) as home:
        home.server.scripts.append(Script(words=(), error={"error": "APIConnectionError"}))
        assert "could not reach" in await ask(home, "try")
        assert await ask(home, "/retry") == "Hello you"
        assert thread(home) == ["try", "Hello you"]


async def test_messages_sent_after_retry_are_answered_after_it(tmp_path: Path) -> None:
    async with house(tmp_path) as home:
        await talk(home, "one")
        await home.say("/retry")
        await home.say("two")
        await home.reads("You said one", "Hello you", "Hello you")
        assert home.prompts() == ["one", "one", "two"]


async def test_retry_brings_the_files_of_the_message_again(tmp_path: Path) -> None:
    file = {"filename": "a.txt", "path": "/mnt/user-data/uploads/a.txt", "size": 1}
    async with house(tmp_path) as home:
        await talk(home, "read it")
        [messages] = home.server.threads.values()
        messages[0]["additional_kwargs"] = {"files": [file]}
        assert await ask(home, "/retry") == "Hello you"
        [told] = home.server.runs[-1].body["input"]["messages"]
        assert told["additional_kwargs"]["files"] == [file]


@pytest.mark.parametrize(
    ("command", "answer", "left"),
    [
        ("/undo", "Undone: “two”.", ["one", "You said one"]),
        ("/retry", "Hello you", ["one", "You said one", "two", "Hello you"]),
    ],
)
@pytest.mark.parametrize("done", [False, True])
async def test_a_command_cut_off_by_a_crash_takes_back_what_it_meant(
    tmp_path: Path, command: str, answer: str, left: list[str], *, done: bool
) -> None:
    async with FakeLangGraph() as server:
        async with house(tmp_path, server=server) as home:
            await talk(home, "one", "two")
            [(thread_id, messages)] = server.threads.items()
            meant = last_rewind_point(thread_id, messages)
            if done:
                await ask(home, "/undo")
        await leave_unfinished(tmp_path, command, meant)
        async with house(tmp_path, server=server, platform=FakePlatform()) as home:
            await home.reads(answer)
            await until(lambda: thread(home) == left)


async def leave_unfinished(home: Path, command: str, meant: RewindPoint | None) -> None:
    """Leave a command in the journal as a process does that dies after noting what it takes back."""
    inbound = replace(said(command, "cut off"), rewind_point=meant)
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
    async with house(tmp_path) as home:
        await talk(home, "one", "two")
        assert await ask(home, "/undo", event="u") == "Undone: “two”."
        await home.say("/undo", event="u")
        assert await ask(home, "/help")
        assert thread(home) == ["one", "You said one"]


async def test_nothing_is_taken_back_while_somebody_elses_run_holds_the_thread(
    tmp_path: Path,
) -> None:
    async with house(tmp_path) as home:
        await talk(home, "one")
        [thread_id] = home.server.threads
        home.server.runs.append(Run(run_id="x", thread_id=thread_id, body={}, script=Script()))
        assert await ask(home, "/undo") == RUNNING
        assert thread(home) == ["one", "You said one"]
