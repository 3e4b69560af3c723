"""Turns through the real langgraph-sdk, with servers that disconnect, refuse, forget, and lack features."""

from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import anyio
import httpx
import pytest
from langgraph_sdk import get_client
from typing_extensions import override

from bus.config import DEFAULT_SESSION
from bus.conversation.control import QueuedMessage
from bus.conversation.open_questions import OpenQuestions
from bus.conversation.run_slots import RunSlots
from bus.conversation.steps import TurnSteps
from bus.conversation.turn import MAX_STARTS, Turn
from bus.locales.en import ENGLISH
from bus.messages import InboundMessage, ReplyTarget, Sender, decode_inbound, encode_inbound
from bus.outbound.rows import UNUSED_TEXT
from bus.outbound.worker import DeliveryWorker
from bus.retry import PATIENCE_S
from bus.runs.port import StreamedPart
from bus.runs.remote import RemoteRuns
from bus.runs.remote_files import RemoteFiles
from bus.runs.requests import AgentRunRequest
from bus.runs.uploads import FileUploader
from bus.voice.config import VoiceConfig
from bus.voice.speech_reader import SpeechReader
from bus.voice.stats import SpeechStats
from store.config import StoreConfig
from store.conversations import ConversationKey, ConversationStore
from store.database import Database
from store.inbox import InboxRow, InboxStore, NewInboxRow
from store.message_history import MessageHistoryStore
from store.outbox import OutboxStore
from tests.bus.harness import inbound_message
from tests.eventually import eventually
from tests.fakes.langgraph import FakeLangGraph, Script
from tests.fakes.migrated import place_database
from tests.fakes.platform import CardPlatform, FakePlatform


@dataclass
class TurnHarness:
    """The part of the bus that turns need, on a real journal."""

    platform: FakePlatform
    inbox: InboxStore
    conversations: ConversationStore
    steps: TurnSteps
    runs: RemoteRuns
    delivery: DeliveryWorker
    server: FakeLangGraph
    database: Database

    async def accept(
        self, text: str, event_id: str = "e1", chat: str = "c"
    ) -> tuple[InboxRow, InboundMessage]:
        key = ConversationKey(channel=self.platform.name, workspace="w", chat=chat)
        inbound = InboundMessage(
            event_id=event_id,
            message_id=event_id,
            key=key,
            reply_target=ReplyTarget(chat="c", reply_to=event_id),
            sender=Sender(user_id="u"),
            text=text,
            is_private=True,
            is_addressed=True,
        )
        new = NewInboxRow(
            key=key,
            event_id=event_id,
            message_id=event_id,
            kind="chat",
            body=encode_inbound(inbound),
            received_at=1.0,
        )
        row = await self.inbox.accept(new, cap=20)
        assert isinstance(row, InboxRow)
        return row, inbound

    def turn(self, row: InboxRow, inbound: InboundMessage) -> Turn:
        message = QueuedMessage(row=row, inbound=inbound, text=inbound.text)
        return Turn(message, self.steps, session=DEFAULT_SESSION)

    async def accept_turn(self, text: str, event_id: str = "e1", chat: str = "c") -> Turn:
        return self.turn(*await self.accept(text, event_id, chat))

    async def answer(self, text: str, event_id: str = "e1", chat: str = "c") -> None:
        turn = await self.accept_turn(text, event_id, chat)
        with anyio.fail_after(20):
            await turn.run()

    async def begin(self, row: InboxRow, inbound: InboundMessage) -> InboxRow:
        """Start a turn whose process dies at once; return its row."""
        begun = await self.steps.begin(self.turn(row, inbound))
        assert begun is not None
        return replace(begun, start=None)

    async def restarted(self) -> Turn:
        """Return the turn in the next process."""
        [row] = await self.inbox.list_unfinished()
        return self.turn(row, decode_inbound(row.body))


class BreakingRuns(RemoteRuns):
    """Runs with a bug that appears when a run has ended."""

    @override
    async def events(
        self, thread_id: str, run_id: str, after: str = ""
    ) -> AsyncGenerator[StreamedPart, None]:
        async with aclosing(super().events(thread_id, run_id, after)) as events:
            async for event in events:
                yield event
        raise RuntimeError("a bug")


@asynccontextmanager
async def turn_harness(
    home: Path,
    platform: FakePlatform | None = None,
    flavour: str = "langgraph",
    patience_s: float = PATIENCE_S,
    runs_class: type[RemoteRuns] = RemoteRuns,
) -> AsyncIterator[TurnHarness]:
    platform = platform or FakePlatform()
    async with (
        FakeLangGraph(flavour) as server,
        Database.open(StoreConfig(), place_database(home)) as database,
        get_client(url=server.url, api_key=None) as client,
        httpx.AsyncClient(base_url=server.url) as gateway,
        anyio.create_task_group() as tasks,
    ):
        delivery = DeliveryWorker(
            adapters={platform.name: platform},
            outbox=OutboxStore(database),
            files=RemoteFiles(gateway),
        )
        inbox, conversations = InboxStore(database), ConversationStore(database)
        history, runs = MessageHistoryStore(database), runs_class(client)
        speech = SpeechReader(
            VoiceConfig(), None, inbox=inbox, delivery=delivery, stats=SpeechStats()
        )
        steps = TurnSteps(
            inbox=inbox,
            conversations=conversations,
            history=history,
            questions=OpenQuestions(history, delivery),
            runs=runs,
            uploads=FileUploader(RemoteFiles(gateway), speech.of_message),
            delivery=delivery,
            slots=RunSlots(16),
            patience_s=patience_s,
        )
        await tasks.start(delivery.run)
        yield TurnHarness(platform, inbox, conversations, steps, runs, delivery, server, database)
        tasks.cancel_scope.cancel()


@pytest.mark.parametrize("flavour", ["langgraph", "deerflow"])
async def test_a_message_is_answered_and_the_thread_goes_on(tmp_path: Path, flavour: str) -> None:
    async with turn_harness(tmp_path, flavour=flavour) as h:
        await h.answer("one", "e1")
        await h.answer("two", "e2")
        await h.platform.until(2)
        [thread] = h.server.threads.values()
    assert h.platform.texts == ["Hello you", "Hello you"]
    assert [m["content"] for m in thread if m["type"] == "human"] == ["one", "two"]
    assert thread[0]["id"] == "fake:e1"
    assert posts_to(h.server.requests, "/threads") == 1


async def test_the_card_is_there_before_the_first_word_and_ends_as_the_answer(
    tmp_path: Path,
) -> None:
    platform = CardPlatform()
    async with turn_harness(tmp_path, platform) as h, anyio.create_task_group() as tasks:
        h.server.scripts.append(Script(words=("Hel", "lo"), hang_after=1))
        turn = await h.accept_turn("hi")
        tasks.start_soon(turn.run)
        with anyio.fail_after(20):
            while platform.texts != ["Hel"]:
                await platform.changed.wait()
        assert not platform.shown[0].final
        await eventually(lambda: platform.indicators == ["working"])
        turn.control.cancel()
        with anyio.fail_after(20):
            while not platform.shown[0].final:
                await platform.changed.wait()
        assert h.server.runs[0].status == "interrupted"
        await h.answer("again", "e2")
        with anyio.fail_after(20):
            while not (len(platform.shown) > 1 and platform.shown[1].final):
                await platform.changed.wait()
    assert platform.texts == [f"Hel\n\n{ENGLISH.stopped}", "Hello you"]
    assert platform.indicators[:2] == ["working", "done"]


async def test_a_stop_on_a_platform_without_streaming_sends_nothing_more(tmp_path: Path) -> None:
    async with turn_harness(tmp_path) as h, anyio.create_task_group() as tasks:
        h.server.scripts.append(Script(hang_after=2))
        turn = await h.accept_turn("hi")
        tasks.start_soon(turn.run)
        await eventually(lambda: bool(h.server.runs))
        turn.control.cancel()
        await eventually(lambda: h.server.runs[0].status == "interrupted")
    assert h.platform.texts == []


async def test_a_turn_that_breaks_leaves_no_message_that_says_work_goes_on(
    tmp_path: Path,
) -> None:
    platform = CardPlatform()
    async with turn_harness(tmp_path, platform, runs_class=BreakingRuns) as h:
        gate = anyio.Event()
        h.server.scripts.append(Script(words=("x" * 2000,), ends=gate))
        turn = await h.accept_turn("write")
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(turn.run)
            await eventually(lambda: len(platform.shown) == 3)
            gate.set()
        await eventually(lambda: all(shown.final for shown in platform.shown))
    assert platform.texts == [ENGLISH.failed, UNUSED_TEXT, UNUSED_TEXT]
    assert not any("stop" in button.token for shown in platform.shown for button in shown.buttons)


async def test_a_cut_stream_is_joined_again(tmp_path: Path) -> None:
    async with turn_harness(tmp_path) as h:
        h.server.scripts.append(Script(words=tuple("abcdefgh"), drop_after=3))
        await h.answer("hi")
        await h.platform.until(1)
    assert (h.platform.texts, len(h.server.runs)) == (["abcdefgh"], 1)


async def test_a_failed_run_is_reported_and_the_next_message_works(tmp_path: Path) -> None:
    async with turn_harness(tmp_path) as h:
        h.server.scripts.append(
            Script(words=(), error={"error": "AuthError", "message": "sk-secret"})
        )
        await h.answer("hi", "e1")
        await h.answer("again", "e2")
        await h.platform.until(2)
    assert h.platform.texts == [ENGLISH.failed, "Hello you"]


@pytest.mark.parametrize("status", [500, 503, 429, 409])
async def test_a_server_that_refuses_for_now_is_asked_again(tmp_path: Path, status: int) -> None:
    async with turn_harness(tmp_path) as h:
        h.server.refusals.append(status)
        await h.answer("hi")
        await h.platform.until(1)
    assert (h.platform.texts, len(h.server.runs)) == (["Hello you"], 1)


async def test_a_422_changes_the_options_of_one_thread(tmp_path: Path) -> None:
    async with turn_harness(tmp_path) as h:
        h.server.refusals.append(422)
        await h.answer("one", "e1")
        await h.answer("two", "e2")
        await h.answer("three", "e3", chat="another")
        await h.platform.until(3)
    plain = [run.body["multitask_strategy"] == "reject" for run in h.server.runs]
    assert plain == [True, True, False]


async def test_a_thread_that_the_server_lost_is_made_again(tmp_path: Path) -> None:
    async with turn_harness(tmp_path) as h:
        await h.answer("hi", "e1")
        h.server.threads.clear()
        await h.answer("still there?", "e2")
        await h.platform.until(2)
    assert h.platform.texts == ["Hello you", "Hello you"]


async def test_a_clarification_is_the_reply(tmp_path: Path) -> None:
    async with turn_harness(tmp_path) as h:
        h.server.scripts.append(Script(words=(), question="❓ Which one?"))
        await h.answer("hi")
        await h.platform.until(1)
    assert h.platform.texts == ["❓ Which one?"]


async def test_after_a_crash_a_run_under_way_is_joined(tmp_path: Path) -> None:
    async with turn_harness(tmp_path) as h:
        turn = await h.accept_turn("hi")
        h.server.scripts.append(Script(words=("slow", "ly"), hang_after=1))
        async with anyio.create_task_group() as dying:
            dying.start_soon(turn.run)
            await eventually(h.inbox.list_unfinished, lambda rows: rows[0].run_id)
            # The turn reads the stream, which would otherwise be left for the next turn. Another process has no such
            # stream.
            await eventually(lambda: not h.runs._opened)
            dying.cancel_scope.cancel()
        turn = await h.restarted()
        run = h.server.runs[0]
        messages = h.server.threads[run.thread_id]
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(turn.run)
            joined = f"/threads/{run.thread_id}/runs/{run.run_id}/stream"
            await eventually(lambda: ("GET", joined) in h.server.requests)
            messages.append({"type": "ai", "id": "x", "content": "slowly"})
            run.events.append(("values", {"messages": list(messages)}))
            run.status = "success"
            run.changed.set()
        await h.platform.until(1)
    assert (h.platform.texts, len(h.server.runs)) == (["slowly"], 1)


async def test_after_a_crash_a_finished_run_is_only_read(tmp_path: Path) -> None:
    async with turn_harness(tmp_path) as h:
        row, inbound = await h.accept("hi")
        await h.begin(row, inbound)
        thread_id = (await h.inbox.list_unfinished())[0].thread_id or ""
        h.server.threads[thread_id] = []
        run_id = await h.runs.start(_request(thread_id))
        async for _ in h.runs.events(thread_id, run_id):
            pass
        await (await h.restarted()).run()
        await h.platform.until(1)
    assert (h.platform.texts, len(h.server.runs)) == (["Hello you"], 1)


async def test_after_a_crash_a_checkpointed_turn_goes_on_without_input(tmp_path: Path) -> None:
    async with turn_harness(tmp_path) as h:
        row, inbound = await h.accept("hi")
        await h.begin(row, inbound)
        thread_id = (await h.inbox.list_unfinished())[0].thread_id or ""
        h.server.threads[thread_id] = [{"type": "human", "id": "fake:e1", "content": "hi"}]
        await (await h.restarted()).run()
        await h.platform.until(1)
    assert h.server.runs[0].body.get("input") is None
    assert h.platform.texts == ["Hello you"]


async def test_a_turn_that_keeps_crashing_is_given_up_visibly(tmp_path: Path) -> None:
    async with turn_harness(tmp_path) as h:
        row, inbound = await h.accept("hi")
        for _ in range(MAX_STARTS):
            row = await h.begin(row, inbound)
        await (await h.restarted()).run()
        await h.platform.until(1)
        assert await h.inbox.list_unfinished() == []
    assert h.platform.texts == [ENGLISH.interrupted_too_often]


def posts_to(requests: list[tuple[str, str]], path: str) -> int:
    return sum(1 for method, seen in requests if method == "POST" and seen == path)


def _request(thread_id: str) -> AgentRunRequest:
    return AgentRunRequest(
        thread_id=thread_id,
        assistant_id="lead_agent",
        message_id="fake:e1",
        inbound=inbound_message("hi", "e1"),
        text="hi",
    )
