"""Answers too long for a chat: people get the beginning as messages and the whole as a file. Endless answers end."""

from pathlib import Path

import anyio
import anyio.lowlevel
import httpx
from langgraph_sdk.client import LangGraphClient

from bus.config import BusConfig
from bus.locales.en import ENGLISH
from bus.runs.remote import RemoteRuns
from bus.runs.replies import ReplyFold
from tests.bus.harness import running_bus
from tests.eventually import eventually
from tests.fakes.langgraph import Script
from tests.fakes.platform import CardPlatform, FakePlatform

CAP = 1000
LIMITED = BusConfig(max_answer_chars=CAP, drain_s=0.2)
PARAGRAPH = "Words and words and words. " * 3 + "\n\n"


def length(platform: FakePlatform) -> int:
    return sum(len(text) for text in platform.texts)


async def test_a_very_long_answer_is_sent_as_its_beginning_and_a_file(tmp_path: Path) -> None:
    async with running_bus(tmp_path, config=LIMITED) as harness:
        answer = PARAGRAPH * 40
        harness.server.scripts.append(Script(words=(answer,)))
        await harness.send("write a book")
        await eventually(lambda: harness.platform.files)
        shown = "".join(harness.platform.texts)
        assert shown.endswith(ENGLISH.answer_in_file)
        assert answer.startswith(shown.removesuffix(f"\n\n{ENGLISH.answer_in_file}"))
        assert CAP - 100 < len(shown) < CAP + 100
        assert harness.platform.files == [("answer.md", answer.strip().encode())]
        await harness.send("next")
        await eventually(lambda: harness.platform.texts[-1] == "Hello you")


async def test_an_answer_within_the_limit_has_no_file(tmp_path: Path) -> None:
    async with running_bus(tmp_path, config=LIMITED) as harness:
        harness.server.scripts.append(Script(words=("x" * CAP,)))
        await harness.send("hi")
        await eventually(lambda: length(harness.platform) == CAP)
        await harness.send("next")
        await eventually(lambda: harness.platform.texts[-1] == "Hello you")
        assert harness.platform.files == []


async def test_an_endless_answer_is_ended_and_grows_no_further_than_the_limit(
    tmp_path: Path,
) -> None:
    platform = CardPlatform("fake")
    async with running_bus(tmp_path, config=LIMITED, platform=platform) as harness:
        words = (PARAGRAPH,) * (11 * CAP // len(PARAGRAPH))
        harness.server.scripts.append(Script(words=words, hang_after=len(words) - 1))
        await harness.send("never stop")
        await eventually(lambda: platform.files)
        assert harness.server.runs[0].status == "interrupted"
        assert "".join(platform.texts).endswith(ENGLISH.answer_endless)
        assert length(platform) < CAP + 200
        assert len(platform.files[0][1]) > 10 * CAP
        assert len({message for message, _, _ in platform.frames}) <= 2
        await harness.send("next")
        await eventually(lambda: platform.texts[-1] == "Hello you")


async def test_nothing_of_an_answer_comes_after_stopped(tmp_path: Path) -> None:
    platform = CardPlatform("fake", patch_interval_s=0.005)
    async with running_bus(tmp_path, platform=platform) as harness:
        words = (PARAGRAPH,) * 60
        harness.server.scripts.append(Script(words=words, hang_after=len(words) - 1))
        await harness.send("write")
        await eventually(lambda: len(platform.shown) > 3)
        await harness.send("/stop")
        await eventually(lambda: ENGLISH.stop_done in platform.texts)
        assert all(shown.final for shown in platform.shown)
        stopped, texts = list(platform.frames), list(platform.texts)
        assert texts[-1] == ENGLISH.stop_done
        assert texts[-2].endswith(ENGLISH.stopped)
        await harness.send("next", event="next")  # uses the same connection as anything late
        await eventually(lambda: platform.texts[-1] == "Hello you")
        assert platform.texts == [*texts, "Hello you"]
        of_the_stopped = {message for message, _, _ in stopped}
        assert [frame for frame in platform.frames if frame[0] in of_the_stopped] == stopped


async def test_others_work_while_an_answer_arrives_all_at_once() -> None:
    """The parts of a stream arrive before they are read: reading them must not block the event loop."""
    turns = 0

    async def work() -> None:
        nonlocal turns
        while True:
            turns += 1
            await anyio.lowlevel.checkpoint()

    sent = b'event: messages\ndata: [{"type": "AIMessageChunk", "id": "a", "content": "x"}]\n\n'
    whole = httpx.Response(
        200, content=sent * 50_000, headers={"Content-Type": "text/event-stream"}
    )
    async with (
        httpx.AsyncClient(
            transport=httpx.MockTransport(lambda _request: whole), base_url="http://server"
        ) as client,
        anyio.create_task_group() as tasks,
    ):
        tasks.start_soon(work)
        fold = ReplyFold("h")
        async for event in RemoteRuns(LangGraphClient(client)).events("thread", "run"):
            fold.add(event.part)
        tasks.cancel_scope.cancel()
    assert len(fold.text) == 50_000
    assert turns > 10
