"""Growing replies: the cost of folding a stream, and how soon its last token appears on the card."""

import time
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

import anyio
import anyio.lowlevel
import httpx
import psutil
from langgraph_sdk.client import LangGraphClient
from typing_extensions import override

from bus.config import BusConfig, ChannelPolicy, RateLimit
from bus.context import AgentServer
from bus.locales.en import ENGLISH
from bus.messages import InboundMessage, ReplyTarget, Sender
from bus.runs.remote import RemoteRuns
from bus.runs.remote_files import RemoteFiles
from bus.runs.replies import ReplyFold
from bus.runs.stream import MessageChunk, StateSnapshot
from bus.service import run_bus
from gateway.playground.feishu.server import FakeFeishu
from store.config import StoreConfig
from store.conversations import ConversationKey
from store.database import Database
from store.node_calls import open_node_calls
from tests.asgi import StreamingASGITransport
from tests.eventually import eventually
from tests.fakes.model import FakeModelServer, ModelReply
from tests.fakes.platform import CardPlatform
from tests.journeys.service import Service, with_model
from tests.lab.benchmarks.figures import Figure
from tests.lab.benchmarks.instant_runs import InstantRuns

TOKENS = 20_000
SHORT, LONG = 100_000, 400_000
CHUNK = "word"
CHUNKS_A_PATCH = 250
"""Tokens of a fast model's answer: 1,000 a second, four patches."""
ROUNDS = 3
PATCH_S = 0.25
CARD = 28_000
CARDS = 12

FOLD_PEERS = "DeerFlow 30.7 x (139 ms, 4,265 ms)"


def run() -> list[Figure]:
    """Measure and return the figures."""
    return [*_fold(), *anyio.run(_turns), *anyio.run(_at_once), *anyio.run(_last_tokens)]


def _fold() -> list[Figure]:
    """Fold as a turn does: the text is joined when a patch is due."""
    short, long = (min(_folded(size) for _ in range(5 * ROUNDS)) for size in (SHORT, LONG))
    return [
        Figure("fold: CPU, 400,000 / 100,000 characters", long / short, "x", "<= 4.4", FOLD_PEERS),
        Figure("fold: 400,000 characters in chunks of 4", long * 1000, "ms"),
    ]


def _folded(size: int) -> float:
    fold = ReplyFold("h", max_shown=size)
    chunk = MessageChunk(message_id="a", kind="ai", text=CHUNK, whole=False)
    began = time.process_time()
    for number in range(size // len(CHUNK)):
        if fold.add(chunk) and number % CHUNKS_A_PATCH == 0:
            fold.shown_text()
    shown = len(fold.shown_text())
    spent = time.process_time() - began
    fold.add(StateSnapshot({"messages": [{"type": "human", "id": "h"}]}))
    if shown != size or len(fold.reply(ENGLISH).markdown) != size:
        raise RuntimeError("the fold lost something")
    return spent


async def _turns() -> list[Figure]:
    """Run whole turns with a card, from the wire to the last patch."""
    short = min([await _turn(SHORT) for _ in range(ROUNDS)])
    long = min([await _turn(LONG) for _ in range(ROUNDS)])
    return [
        Figure("fold: CPU of the whole turn, 400,000 / 100,000", long / short, "x", "<= 4.4"),
        Figure("fold: CPU of the whole turn, 400,000 characters", long, "s"),
    ]


async def _at_once() -> list[Figure]:
    """Send a long answer of the model at once. Measure the real service's CPU time per token, up to the card."""
    answer = "word " * TOKENS
    async with (
        FakeModelServer(answer=lambda _: ModelReply(text=answer)) as model,
        FakeFeishu() as feishu,
    ):
        with TemporaryDirectory() as folder:
            channels = {"max_answer_chars": 200_000, "feishu": feishu.settings}
            config = {**with_model(model.base_url), "channels": channels}
            service = Service(Path(folder), config)
            await service.start()
            try:
                await service.until_connected("feishu")
                spent = [await _card(feishu, service, number) for number in range(ROUNDS + 1)]
            finally:
                await service.stop()
    return [Figure("fold: CPU of a token of an answer of 20,000", min(spent[1:]), "us", "<= 60")]


async def _card(feishu: FakeFeishu, service: Service, number: int) -> float:
    """Return the CPU microseconds per token, including worker processes."""
    before = _cpu(service.pid)
    await feishu.dm("hello", user=f"ou_{number}")
    chat = f"oc_dm_ou_{number}"
    await eventually(
        lambda: sum(message.text.count("word") for message in feishu.answers(chat)) >= TOKENS,
        within_s=60,
    )
    return (_cpu(service.pid) - before) / TOKENS * 1e6


def _cpu(pid: int) -> float:
    service = psutil.Process(pid)
    processes = [service, *service.children(recursive=True)]
    return sum(sum(process.cpu_times()[:4]) for process in processes)


async def _turn(size: int) -> float:
    async def said(text: str) -> AsyncIterator[str]:
        for number in range(size // len(CHUNK)):
            yield CHUNK
            if number % 50 == 0:
                await anyio.lowlevel.checkpoint()

    platform = _Roomy(patch_interval_s=PATCH_S)
    runs = InstantRuns(said=said)
    began = time.process_time()
    await _talk(platform, runs, 1, size)
    return time.process_time() - began


async def _talk(platform: CardPlatform, runs: InstantRuns, cards: int, size: int) -> None:
    """Send one message in each of this many chats, and wait until the answers are complete."""
    with TemporaryDirectory() as folder:
        transport = StreamingASGITransport(runs)
        async with (
            Database.open(StoreConfig(), Path(folder)) as database,
            httpx.AsyncClient(transport=transport, base_url="http://b/api", timeout=300) as client,
            open_node_calls(database) as calls,
            run_bus(
                config=BusConfig(
                    drain_s=0.1,
                    max_concurrent_runs=cards,
                    max_answer_chars=LONG,
                    rate_limit=RateLimit(messages=0),
                ),
                policies={platform.name: ChannelPolicy(dm_policy="open")},
                adapters={platform.name: platform},
                calls=calls,
                server=AgentServer(
                    runs=RemoteRuns(LangGraphClient(client)),
                    files=RemoteFiles(client),
                    gateway=client,
                ),
            ) as bus,
        ):
            for number in range(cards):
                await bus.intake.receive(_said(f"m{number}", chat=f"c{number}"))
            with anyio.fail_after(300):
                while (
                    sum(len(shown.text) for shown in platform.shown if shown.final) < cards * size
                ):
                    await platform.changed.wait()


async def _last_tokens() -> list[Figure]:
    """Send a last word without ending the run, and measure when the word appears on the card."""
    spoken: dict[str, float] = {}

    async def said(text: str) -> AsyncIterator[str]:
        number = int(text.removeprefix("m"))
        for _ in range(40 + number):
            yield "a word "
            await anyio.sleep(0.017)
        spoken[text] = time.perf_counter()
        yield f"last{text}."
        await anyio.sleep(4 * PATCH_S)

    platform = _WatchedPlatform(patch_interval_s=PATCH_S)
    await _talk(platform, InstantRuns(said=said), CARDS, 40 * len("a word "))
    waits = [(platform.seen[text] - at) / PATCH_S for text, at in spoken.items()]
    if len(waits) != CARDS:
        raise RuntimeError("a run is missing")
    return [
        Figure(
            "last token on the card, mean of 12", sum(waits) / len(waits), "intervals", "", _LAGS
        ),
        Figure("last token on the card, slowest of 12", max(waits), "intervals", "<= 1"),
    ]


_LAGS = "DeerFlow: 9.2 s late at 200 tok/s, 16.5 s at 80 tok/s and 0.3 s a patch"


class _Roomy(CardPlatform):
    """A platform with cards as large as Feishu's."""

    @override
    def split(self, markdown: str) -> Sequence[str]:
        pieces = [markdown[i : i + CARD] for i in range(0, len(markdown), CARD)]
        return pieces or [""]


class _WatchedPlatform(CardPlatform):
    """Records when a chat's last word was shown."""

    def __init__(self, *, patch_interval_s: float) -> None:
        super().__init__(patch_interval_s=patch_interval_s)
        self.seen: dict[str, float] = {}

    @override
    def _tell(self) -> None:
        now = time.perf_counter()
        for shown in self.shown:
            before, last, text = shown.text.rpartition("last")
            if last and before:
                self.seen.setdefault(text.rstrip("."), now)
        super()._tell()


def _said(text: str, *, chat: str) -> InboundMessage:
    return InboundMessage(
        event_id=text,
        message_id=text,
        key=ConversationKey(channel="cards", workspace="w", chat=chat),
        reply_target=ReplyTarget(chat=chat, reply_to=text),
        sender=Sender(user_id="u", name="u"),
        text=text,
        is_private=True,
        is_addressed=True,
    )
