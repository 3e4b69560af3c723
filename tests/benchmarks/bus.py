"""The bus: how fast and how evenly messages become runs, on a real journal; and whether anybody waits for others."""

import time
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

import anyio
import httpx
from langchain_core.messages import AIMessage
from langchain_core.runnables import RunnableConfig
from langgraph.graph import START, MessagesState, StateGraph
from langgraph_sdk.client import LangGraphClient
from starlette.types import ASGIApp

from bus.config import BusConfig, ChannelPolicy, RateLimit
from bus.messages import InboundMessage, ReplyTarget, Sender
from bus.platform import Adapter
from bus.service import Bus, run_bus
from gateway.runtime.runs import RunManager
from gateway.runtime.worker import Graph
from gateway.serving import gc_tuning
from gateway.transport import StreamingASGITransport
from store.checkpoints import open_checkpointer
from store.config import StoreConfig
from store.conversations import ConversationKey
from store.database import Database, Transaction
from tests.benchmarks.figures import Figure, percentile
from tests.benchmarks.instant_runs import InstantRuns, never
from tests.fakes.platform import FakePlatform
from tests.gateway.langgraph_server import build_app, services_for

MESSAGES = 1_000
CHATS = 200
TALKERS = 100
PACED_S = 4
RATE = 200
MAPPED = 100_000
HANGING = 50
COMMANDS = 40
ROUNDS = 2

_MAP = """
INSERT INTO conversation (channel, workspace, chat, thread_id, created_at, updated_at)
VALUES ('fake', 'w', :chat, :thread_id, :at, :at)
"""

DEERFLOW = (
    "DeerFlow, nothing durable: 105-139/s for new topics, 16/s at 10,000 mapped, 3/s at 50,000"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class _RunningBus:
    bus: Bus
    platform: FakePlatform


def run() -> list[Figure]:
    """Measure and return the figures."""
    return anyio.run(_measure)


async def _measure() -> list[Figure]:
    gc_tuning.freeze_and_enable_gc()  # as the service does
    return [*await _rates(), *await _latencies(), *await _commands()]


async def _rates() -> list[Figure]:
    known = [await _starts(0, known=MESSAGES) for _ in range(ROUNDS)]
    known_full = [await _starts(MAPPED, known=MESSAGES) for _ in range(ROUNDS)]
    new = [await _starts(0, known=0) for _ in range(ROUNDS)]
    new_full = [await _starts(MAPPED, known=0) for _ in range(ROUNDS)]
    turns = [await _turns() for _ in range(ROUNDS)]
    growth, growth_new = _cpu(known_full) / _cpu(known), _cpu(new_full) / _cpu(new)
    return [
        Figure("bus: inbound to run start, durable", _rate(known), "msg/s", "> 1000", DEERFLOW),
        Figure("bus: ... 100,000 conversations mapped", _rate(known_full), "msg/s", "> 1000"),
        Figure("bus: ... every message a new conversation", _rate(new), "msg/s"),
        Figure("bus: CPU of a message up to its run's start", _cpu(known) * 1000, "ms"),
        Figure("bus: CPU, 100,000 conversations mapped / none", growth, "x", "<= 1.2"),
        Figure("bus: ... every message a new conversation", growth_new, "x", "<= 1.2"),
        Figure("bus: whole turns, answer delivered, durable", _rate(turns), "turns/s"),
        Figure("bus: CPU of a whole turn", _cpu(turns) * 1000, "ms"),
    ]


async def _latencies() -> list[Figure]:
    paced = [await _paced(0) for _ in range(ROUNDS)]
    full = [await _paced(MAPPED) for _ in range(ROUNDS)]
    slow, embedded = await _paced_embedded(RATE // 4), await _paced_embedded(RATE)
    p50, p99 = (min(percentile(p, share) for p in paced) * 1000 for share in (0.5, 0.99))
    p99_full = min(percentile(p, 0.99) for p in full) * 1000
    p99_slow, p99_embedded = percentile(slow, 0.99) * 1000, percentile(embedded, 0.99) * 1000
    return [
        Figure("bus: inbound to run start at 200/s, p50", p50, "ms"),
        Figure("bus: inbound to run start at 200/s, p99", p99, "ms", "< 20"),
        Figure("bus: ... 100,000 conversations mapped, p99", p99_full, "ms", "< 20"),
        Figure("bus and runtime: to a graph's first step at 50/s, p99", p99_slow, "ms"),
        Figure("bus and runtime: to a graph's first step at 200/s, p99", p99_embedded, "ms"),
    ]


async def _commands() -> list[Figure]:
    median, slowest = await _commands_beside_hanging_runs()
    return [
        Figure("head of line: a command, 50 conversations hang, p50", median * 1000, "ms"),
        Figure("head of line: the slowest of 40", slowest * 1000, "ms", "< 50"),
    ]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Round:
    """Messages per second, and CPU seconds of one."""

    rate: float
    cpu_s: float


def _rate(rounds: list[_Round]) -> float:
    """Return the best: what else runs on the machine only makes a round worse."""
    return max(one.rate for one in rounds)


def _cpu(rounds: list[_Round]) -> float:
    return min(one.cpu_s for one in rounds)


async def _starts(mapped: int, *, known: int) -> _Round:
    """Measure from the first receive to the last run's start; the runs themselves wait."""
    runs = InstantRuns(said=never)
    async with _running_bus(runs, mapped=mapped, known=known) as harness:
        cpu, began = time.process_time(), time.perf_counter()
        async with anyio.create_task_group() as tasks:
            for talker in range(TALKERS):
                tasks.start_soon(_talk, harness.bus, range(talker, MESSAGES, TALKERS), MESSAGES)
            await runs.until(MESSAGES)
        took = max(runs.started.values()) - began
        return _Round(rate=MESSAGES / took, cpu_s=(time.process_time() - cpu) / MESSAGES)


async def _turns() -> _Round:
    """Measure from the first receive to the last answer."""
    async with _running_bus(InstantRuns(), known=CHATS) as harness:
        cpu, began = time.process_time(), time.perf_counter()
        async with anyio.create_task_group() as tasks:
            for talker in range(TALKERS):
                tasks.start_soon(_talk, harness.bus, range(talker, MESSAGES, TALKERS), CHATS)
            await harness.platform.until(MESSAGES, within_s=60)
        took = time.perf_counter() - began
        return _Round(rate=MESSAGES / took, cpu_s=(time.process_time() - cpu) / MESSAGES)


async def _talk(bus: Bus, numbers: range, chats: int) -> None:
    for number in numbers:
        await bus.intake.receive(_inbound_message(f"m{number}", chat=f"c{number % chats}"))


async def _say_all(bus: Bus, texts: list[str]) -> None:
    for text in texts:
        await bus.intake.receive(_inbound_message(text, chat=text))


async def _paced(mapped: int) -> list[float]:
    """Return the seconds from receive to run start of messages that come at a steady rate."""
    runs = InstantRuns()
    async with _running_bus(runs, mapped=mapped, known=CHATS) as harness:
        sent = await _at_rate(harness.bus)
        await runs.until(len(sent))
        await harness.platform.until(len(sent), within_s=30)
    return [runs.started[text] - at for text, at in sent.items()][RATE:]


async def _paced_embedded(rate: int) -> list[float]:
    """Return the seconds from receive to the first step of a real graph behind the runs API."""
    started: dict[str, float] = {}
    async with _runtime(started) as app, _running_bus(app) as harness:
        await _say_all(harness.bus, [f"warm {n}" for n in range(50)])
        await harness.platform.until(50, within_s=30)
        sent = await _at_rate(harness.bus, rate=rate)
        await harness.platform.until(50 + len(sent), within_s=90)
    return [started[text] - at for text, at in sent.items()][rate:]


async def _at_rate(bus: Bus, rate: int = RATE) -> dict[str, float]:
    sent: dict[str, float] = {}
    async with anyio.create_task_group() as tasks:
        began = time.perf_counter()
        for number in range(rate * PACED_S):
            due = began + number / rate
            await anyio.sleep(max(0.0, due - time.perf_counter()))
            text = f"p{number}"
            sent[text] = time.perf_counter()
            tasks.start_soon(bus.intake.receive, _inbound_message(text, chat=f"c{number % CHATS}"))
    return sent


async def _commands_beside_hanging_runs() -> tuple[float, float]:
    """Return the median and the longest seconds from a command to its answer, in busy conversations."""
    times: list[float] = []
    runs = InstantRuns(said=never)
    async with _running_bus(runs, max_runs=16) as harness:
        for number in range(HANGING):
            await harness.bus.intake.receive(_inbound_message(f"hang {number}", chat=f"c{number}"))
        await runs.until(16)
        for number in range(COMMANDS):
            began = time.perf_counter()
            await harness.bus.intake.receive(
                _inbound_message("/help", chat=f"c{number}", event=f"h{number}")
            )
            await harness.platform.until(number + 1, within_s=30)
            times.append(time.perf_counter() - began)
    return percentile(times, 0.5), max(times)


@asynccontextmanager
async def _running_bus(
    runs: ASGIApp, *, mapped: int = 0, known: int = 0, max_runs: int = MESSAGES
) -> AsyncIterator[_RunningBus]:
    """Run a bus between a platform in memory and a runs API in this process."""
    platform = FakePlatform()
    adapters: dict[str, Adapter] = {platform.name: platform}
    with TemporaryDirectory() as folder:
        async with (
            Database.open(StoreConfig(), Path(folder)) as database,
            httpx.AsyncClient(
                transport=StreamingASGITransport(runs), base_url="http://bench/api", timeout=300
            ) as client,
        ):
            await database.transaction(_mapper("old", mapped))
            await database.transaction(_mapper("c", known))
            async with run_bus(
                config=BusConfig(
                    drain_s=0.1, max_concurrent_runs=max_runs, rate_limit=RateLimit(messages=0)
                ),
                policies={platform.name: ChannelPolicy(dm_policy="open")},
                adapters=adapters,
                database=database,
                langgraph=LangGraphClient(client),
                gateway=client,
            ) as bus:
                yield _RunningBus(bus=bus, platform=platform)


@asynccontextmanager
async def _runtime(started: dict[str, float]) -> AsyncIterator[ASGIApp]:
    """Run the embedded runtime with a graph of one node that notes when it was reached."""

    async def note(state: MessagesState) -> MessagesState:
        started[str(state["messages"][-1].content)] = time.perf_counter()
        return {"messages": [AIMessage("ok")]}

    builder = StateGraph(MessagesState)
    builder.add_node("note", note)
    builder.add_edge(START, "note")
    graph = builder.compile()

    async def source(_config: RunnableConfig) -> Graph:
        return graph

    with TemporaryDirectory() as folder:
        home = Path(folder)
        async with (
            Database.open(StoreConfig(), home) as database,
            open_checkpointer(home) as checkpointer,
            RunManager(database, {"lead_agent": source}, checkpointer) as runs,
            AsyncExitStack() as stack,
        ):
            yield build_app(await services_for(stack, home, database, runs))


def _mapper(prefix: str, count: int) -> Callable[[Transaction], None]:
    """Return work that maps so many conversations."""

    def work(tx: Transaction) -> None:
        for number in range(count):
            # In use until just now: a conversation that nobody used for long is pruned.
            at = time.time() + number * 1e-6
            tx.run(_MAP, {"chat": f"{prefix}{number}", "thread_id": f"t{number}", "at": at})

    return work


def _inbound_message(text: str, *, chat: str, event: str = "") -> InboundMessage:
    event = event or text
    return InboundMessage(
        event_id=event,
        message_id=event,
        key=ConversationKey(channel="fake", workspace="w", chat=chat),
        reply_target=ReplyTarget(chat=chat, reply_to=event),
        sender=Sender(user_id=f"u of {chat}", name="u"),
        text=text,
        is_private=True,
        is_addressed=True,
    )
