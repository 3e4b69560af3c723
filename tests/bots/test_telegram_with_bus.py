"""Telegram and the whole bus: the real SDK between a fake Telegram server and a LangGraph server."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import anyio
import pytest

from bots.telegram.adapter import TelegramAdapter
from bus.locales import messages_for
from bus.platform import ConnectionState
from gateway.playground.telegram.chats import TelegramUpload
from gateway.playground.telegram.server import TelegramServer
from tests.bots.telegram_rig import COMMANDS, FAST, config_for, linked
from tests.bus.harness import BusHarness, running_bus
from tests.eventually import eventually
from tests.fakes.langgraph import Script

GROUP = -1001234567890
WORDS = messages_for("en")
QUICK = replace(FAST, patch_s=0.05, indicator_s=1.0)


@pytest.fixture
async def telegram() -> AsyncIterator[TelegramServer]:
    async with TelegramServer() as server:
        yield server
        assert server.violations == []


@asynccontextmanager
async def serving(
    telegram: TelegramServer, home: Path, *, streaming: bool = False, notice_s: float = 60.0
) -> AsyncIterator[BusHarness]:
    config = config_for(telegram, streaming=streaming)
    adapter = TelegramAdapter(config, COMMANDS, timeouts=replace(QUICK, notice_s=notice_s))
    async with running_bus(home, others={"telegram": adapter}) as running:
        await linked(adapter, ConnectionState.CONNECTED)
        yield running


def said(telegram: TelegramServer, chat: int) -> list[str]:
    return [answer.text for answer in telegram.answers(chat)]


async def test_a_long_turn_is_stopped_by_its_button(
    telegram: TelegramServer, tmp_path: Path
) -> None:
    async with serving(telegram, tmp_path, notice_s=0.05) as harness:
        harness.server.scripts.append(Script(words=("Hel", "lo"), hang_after=1))
        telegram.dm("think hard")
        await telegram.wait_for(lambda: WORDS.button_stop in telegram.labels(1001))
        (working,) = telegram.answers(1001)
        assert (working.text, working.silent) == (WORDS.working, True)
        query = telegram.press(1001, WORDS.button_stop)
        await telegram.wait_for(lambda: telegram.queries[query].answer is not None)
        await telegram.wait_for(lambda: telegram.labels(1001) == [])
        await eventually(harness.server.runs[0].canceled.is_set)
        telegram.dm("and now?")
        await telegram.wait_for(lambda: "Hello you" in said(telegram, 1001))
    assert WORDS.working not in said(telegram, 1001)


async def test_the_working_message_goes_when_the_answer_comes(
    telegram: TelegramServer, tmp_path: Path
) -> None:
    async with serving(telegram, tmp_path, notice_s=0.05) as harness:
        gate = anyio.Event()
        harness.server.scripts.append(Script(words=("Done.",), gate=gate))
        telegram.mention(GROUP, "work")
        await telegram.wait_for(lambda: said(telegram, GROUP) == [WORDS.working])
        await telegram.wait_for(lambda: any(what == "typing" for what, _, _ in telegram.log))
        gate.set()
        await telegram.wait_for(lambda: said(telegram, GROUP) == ["Done."])
    (answer,) = telegram.answers(GROUP)
    assert not answer.silent
    last_typing = max(i for i, (what, _, _) in enumerate(telegram.log) if what == "typing")
    assert telegram.log[last_typing + 1 :][-1][0] == "message"


async def test_a_question_is_answered_by_a_button(telegram: TelegramServer, tmp_path: Path) -> None:
    async with serving(telegram, tmp_path) as harness:
        harness.server.scripts.append(Script(question="Where to?", options=("Paris", "Rome")))
        telegram.dm("book a trip")
        await telegram.wait_for(lambda: telegram.labels(1001))
        query = telegram.press(1001, next(b for b in telegram.labels(1001) if "Rome" in b))
        await telegram.wait_for(lambda: "Hello you" in said(telegram, 1001))
        assert harness.prompts() == ["book a trip", "Rome"]
        assert len(harness.server.threads) == 1
        await telegram.wait_for(lambda: telegram.queries[query].answer is not None)
        await telegram.wait_for(lambda: telegram.labels(1001) == [])


async def test_an_album_is_one_turn(telegram: TelegramServer, tmp_path: Path) -> None:
    uploads = [TelegramUpload(name=f"{n}.pdf", content=b"%PDF" + bytes([n])) for n in range(3)]
    async with serving(telegram, tmp_path) as harness:
        telegram.send_album(1001, uploads, caption="compare", kind="document")
        telegram.dm("and then this")
        await telegram.wait_for(lambda: said(telegram, 1001) == ["Hello you"] * 2)
        assert harness.prompts() == ["compare", "and then this"]
        assert [name for _, name, _ in harness.gateway.uploads] == ["0.pdf", "1.pdf", "2.pdf"]


async def test_the_general_topic_is_one_conversation(
    telegram: TelegramServer, tmp_path: Path
) -> None:
    telegram.add_forum(GROUP)
    topic = telegram.add_topic(GROUP, "Travel")
    async with serving(telegram, tmp_path) as harness:
        telegram.mention(GROUP, "one")
        await telegram.wait_for(lambda: len(said(telegram, GROUP)) == 1)
        telegram.mention(GROUP, "two")
        await telegram.wait_for(lambda: len(said(telegram, GROUP)) == 2)
        first, second = telegram.answers(GROUP)
        telegram.say(GROUP, "three", reply_to=first.message_id)
        await telegram.wait_for(lambda: len(said(telegram, GROUP)) == 3)
        telegram.mention(GROUP, "elsewhere", thread=topic)
        await telegram.wait_for(lambda: len(said(telegram, GROUP)) == 4)
        runs = [run.thread_id for run in harness.server.runs]
        prompts = harness.prompts()
    assert (first.thread, second.thread) == (None, None)
    assert runs[:3] == [runs[0]] * 3
    assert runs[3] != runs[0]
    assert prompts == ["one", "two", "three\n\n> You: Hello you", "elsewhere"]


async def test_a_conversation_goes_on_in_the_supergroup(
    telegram: TelegramServer, tmp_path: Path
) -> None:
    async with serving(telegram, tmp_path) as harness:
        gate = anyio.Event()
        harness.server.scripts += [Script(words=("Before.",)), Script(words=("After.",), gate=gate)]
        telegram.mention(-4001, "one")
        await telegram.wait_for(lambda: said(telegram, -4001) == ["Before."])
        (before,) = telegram.answers(-4001)
        telegram.say(-4001, "two", reply_to=before.message_id)
        await harness.wait_for_runs(2)
        telegram.migrate(-4001, GROUP)
        await telegram.wait_for(lambda: telegram.backlog == 0)
        gate.set()
        await telegram.wait_for(lambda: said(telegram, GROUP) == ["After."])
        (after,) = telegram.answers(GROUP)
        telegram.say(GROUP, "three", reply_to=after.message_id)
        await harness.wait_for_runs(3)
        assert [run.thread_id for run in harness.server.runs] == [
            harness.server.runs[0].thread_id
        ] * 3
        telegram.mention(GROUP, "something else")
        await harness.wait_for_runs(4)
        scopes = {run.body["context"]["memory_scope"] for run in harness.server.runs}
        assert scopes == {f"room:telegram:{telegram.bot_id}:-4001"}
        assert harness.server.runs[3].thread_id != harness.server.runs[0].thread_id
        await telegram.wait_for(lambda: len(said(telegram, GROUP)) == 3)


async def test_a_first_message_just_before_the_move_is_answered_in_its_conversation(
    telegram: TelegramServer, tmp_path: Path
) -> None:
    telegram.mention(-4001, "one")
    telegram.migrate(-4001, GROUP)
    async with serving(telegram, tmp_path) as harness:
        await telegram.wait_for(lambda: said(telegram, GROUP) == ["Hello you"])
        (answer,) = telegram.answers(GROUP)
        telegram.say(GROUP, "two", reply_to=answer.message_id)
        await telegram.wait_for(lambda: len(said(telegram, GROUP)) == 2)
        assert len({run.thread_id for run in harness.server.runs}) == 1


async def test_a_private_answer_is_drafted_and_sent_once(
    telegram: TelegramServer, tmp_path: Path
) -> None:
    words = ("The ", "answer ", "is ", "**42**.")
    async with serving(telegram, tmp_path, streaming=True) as harness:
        gate = anyio.Event()
        harness.server.scripts.append(Script(words=words, gate=gate))
        telegram.dm("what is it?")
        await telegram.wait_for(lambda: telegram.drafts)
        gate.set()
        await telegram.wait_for(lambda: said(telegram, 1001) == ["The answer is 42."])
        await telegram.wait_for(lambda: telegram.backlog == 0)
    assert telegram.log[-1][0] == "message"
    assert len(telegram.answers(1001)) == 1


async def test_a_draft_is_stopped(telegram: TelegramServer, tmp_path: Path) -> None:
    async with serving(telegram, tmp_path, streaming=True) as harness:
        harness.server.scripts.append(Script(words=("Half ", "an ", "answer"), hang_after=2))
        telegram.dm("think")
        await telegram.wait_for(lambda: any("Half" in draft.text for draft in telegram.drafts))
        telegram.stop_draft()
        await eventually(harness.server.runs[0].canceled.is_set)
        telegram.dm("again")
        await telegram.wait_for(lambda: "Hello you" in said(telegram, 1001))


async def test_a_group_sees_the_answer_grow_in_one_message(
    telegram: TelegramServer, tmp_path: Path
) -> None:
    async with serving(telegram, tmp_path, streaming=True) as harness:
        harness.server.scripts.append(Script(words=("One ", "two ", "three"), drop_after=2))
        telegram.mention(GROUP, "count")
        await telegram.wait_for(lambda: said(telegram, GROUP) == ["One two three"])
        await telegram.wait_for(lambda: telegram.labels(GROUP) == [])
    (answer,) = telegram.answers(GROUP)
    assert answer.reply_to == 1
    assert telegram.drafts == []
