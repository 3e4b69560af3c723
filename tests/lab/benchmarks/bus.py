"""The bus with a real journal: how fast and how evenly messages become runs, and whether people wait for others."""

import gc
import shutil
import statistics
import time
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from uuid import UUID

import anyio
import httpx
from langchain_core.messages import AIMessage
from langchain_core.runnables import RunnableConfig
from langgraph.graph import START, MessagesState, StateGraph
from langgraph_sdk.client import LangGraphClient
from starlette.types import ASGIApp

from bus.config import BusConfig, ChannelPolicy, RateLimit
from bus.context import AgentServer
from bus.messages import InboundMessage, ReplyTarget, Sender
from bus.platform import Adapter
from bus.runs.port import Runs
from bus.runs.remote import RemoteRuns
from bus.runs.remote_files import RemoteFiles
from bus.runs.requests import RUN_OPTIONS, STREAM_MODES
from bus.service import Bus, run_bus
from gateway.app import Application
from gateway.embedded_runs import EmbeddedRuns
from gateway.runtime.execution import Graph
from gateway.runtime.runs import RunManager
from store.checkpoints import open_checkpointer
from store.config import StoreConfig
from store.conversations import ConversationKey
from store.database import Database, Transaction
from store.node_calls import open_node_calls
from store.work_group import WORK_GROUP
from tests.asgi import StreamingASGITransport
from tests.eventually import eventually
from tests.fakes.platform import FakePlatform
from tests.gateway.langgraph_server import build_app, services_for
from tests.lab.benchmarks.figures import Figure, paired, percentile, rounds
from tests.lab.benchmarks.instant_runs import InstantRuns, never
from tests.lab.benchmarks.service_loop import run_as_service

MESSAGES = 1_000
CHATS = 200
TALKERS = 100
PACED_S = 4
RATE = 200
MAPPED = 1_000_000
_MAPPED_AT_ONCE = 10_000
HANGING = 50
COMMANDS = 40
ROUNDS = rounds(5)
PACED_ROUNDS = rounds(2)
SQLITE = StoreConfig()

_MAP = """
INSERT INTO conversation (channel, workspace, chat, thread_id, created_at, updated_at)
VALUES ('fake', 'w', :chat, :thread_id, :at, :at)
"""

DEERFLOW = (
    "DeerFlow, nothing durable: 105-139/s for new topics, 16/s at 10,000 mapped, 3/s at 50,000"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class RunningBus:
    """A bus and its platform."""

    bus: Bus
    platform: FakePlatform


def run() -> list[Figure]:
    """Measure and return the figures."""
    return run_as_service(_measure)


async def _measure() -> list[Figure]:
    gc.freeze()  # like the service
    with TemporaryDirectory() as full:
        async with Database.open(StoreConfig(), Path(full)) as database:
            for first in range(0, MAPPED, _MAPPED_AT_ONCE):
                await database.transaction(_mapper("old", first, _MAPPED_AT_ONCE))
        measured = [await _round(Path(full)) for _ in range(ROUNDS)]
        return [*_rates(measured), *await _latencies(Path(full)), *await _commands()]


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """Messages per second, and CPU milliseconds per message."""

    rate: float
    cpu_ms: float


@dataclass(frozen=True, slots=True, kw_only=True)
class _Round:
    """Results of messages that were measured one after another.

    Attributes:
        known: A message of a conversation that exists, up to its run's start.
        known_full: The same with `MAPPED` conversations.
        new: A message that begins a conversation.
        new_full: The same with `MAPPED` conversations.
        turn: A message up to the delivered answer.
        embedded: Up to the first step of a graph of the embedded runtime: the SDK's call alone, and a message.
        embedded_turn: Whole turns of the embedded runtime: the SDK's call alone, and a message.
    """

    known: Load
    known_full: Load
    new: Load
    new_full: Load
    turn: Load
    embedded: tuple[Load, Load]
    embedded_turn: tuple[Load, Load]


async def _round(full: Path) -> _Round:
    return _Round(
        known=await starts(None, known=MESSAGES),
        known_full=await starts(full, known=MESSAGES),
        new=await starts(None, known=0),
        new_full=await starts(full, known=0),
        turn=await _turns(),
        embedded=(await _sdk_alone(hangs=True), await _through_bus(hangs=True)),
        embedded_turn=(await _sdk_alone(hangs=False), await _through_bus(hangs=False)),
    )


def _rates(measured: list[_Round]) -> list[Figure]:
    known, full, new, new_full, turns = zip(
        *((one.known, one.known_full, one.new, one.new_full, one.turn) for one in measured),
        strict=True,
    )
    sdk, mapped = ("the SDK's call alone", "Parley"), ("none mapped", "1,000,000 mapped")
    steps = [_cpu(*one.embedded) for one in measured]
    whole = [_cpu(*one.embedded_turn) for one in measured]
    return [
        Figure("bus: inbound to run start, durable", _rate(known), "msg/s", ">= 1000", DEERFLOW),
        Figure("bus: ... 1,000,000 conversations mapped", _rate(full), "msg/s", ">= 1000"),
        Figure("bus: ... every message a new conversation", _rate(new), "msg/s"),
        Figure("bus: whole turns, answer delivered, durable", _rate(turns), "turns/s"),
        *paired("bus: CPU", "ms", "<= 1.1", list(map(_cpu, known, full)), sides=mapped),
        *paired("bus: CPU, new", "ms", "<= 1.1", list(map(_cpu, new, new_full)), sides=mapped),
        *paired("bus and runtime: CPU up to a graph's step", "ms", "<= 1.3", steps, sides=sdk),
        *paired("bus and runtime: CPU of a turn", "ms", "<= 1.8", whole, sides=sdk),
    ]


def _rate(loads: Iterable[Load]) -> float:
    return statistics.median(one.rate for one in loads)


def _cpu(reference: Load, own: Load) -> tuple[float, float]:
    return reference.cpu_ms, own.cpu_ms


async def _latencies(full: Path) -> list[Figure]:
    empty = [await paced(None) for _ in range(PACED_ROUNDS)]
    mapped = [await paced(full) for _ in range(PACED_ROUNDS)]
    saturated = (await _through_bus(hangs=False)).rate
    half, embedded = await _paced_embedded(int(saturated / 2)), await _paced_embedded(RATE)
    p50, p99 = (min(percentile(p, share) for p in empty) * 1000 for share in (0.5, 0.99))
    p99_full = min(percentile(p, 0.99) for p in mapped) * 1000
    p99_half, p99_embedded = (percentile(p.seconds, 0.99) * 1000 for p in (half, embedded))
    return [
        Figure("bus: inbound to run start at 200/s, p50", p50, "ms"),
        Figure("bus: inbound to run start at 200/s, p99", p99, "ms", "< 15"),
        Figure("bus: ... 1,000,000 conversations mapped, p99", p99_full, "ms", "< 15"),
        Figure("bus and runtime: whole turns, as many as it can", saturated, "turns/s"),
        Figure("bus and runtime: to a graph's first step at half that rate, p99", p99_half, "ms"),
        Figure("bus and runtime: to a graph's first step at 200/s, p99", p99_embedded, "ms"),
        Figure("bus and runtime: processor time of a second at 200/s", embedded.load, "s"),
    ]


async def _commands() -> list[Figure]:
    median, slowest = await _commands_beside_hanging_runs()
    return [
        Figure("head of line: a command, 50 conversations hang, p50", median * 1000, "ms"),
        Figure("head of line: the slowest of 40", slowest * 1000, "ms", "< 50"),
    ]


async def starts(full: Path | None, *, known: int, store: StoreConfig = SQLITE) -> Load:
    """Measure from the first receive to the last run's start; the runs themselves wait."""
    runs = InstantRuns(said=never)
    async with running_bus(runs, full=full, known=known, store=store) as harness:
        cpu, began = time.process_time(), time.perf_counter()
        async with anyio.create_task_group() as tasks:
            for talker in range(TALKERS):
                numbers = range(talker, MESSAGES, TALKERS)
                tasks.start_soon(_talk, harness.bus, numbers, MESSAGES)
            await runs.until(MESSAGES)
        return _load(MESSAGES, max(runs.started.values()) - began, cpu)


async def _sdk_alone(*, hangs: bool) -> Load:
    """Start runs of the embedded runtime with the SDK. Measure up to the graph's step if it hangs, else to their
    end.
    """
    started: dict[str, float] = {}
    async with _runtime(started, hangs=hangs) as app, _client(app) as client:
        sdk = LangGraphClient(client)
        await _create_threads(sdk)

        async def talk(numbers: range) -> None:
            for number in numbers:
                await _bare_run(sdk, number)

        cpu, began = time.process_time(), time.perf_counter()
        async with anyio.create_task_group() as tasks:
            talkers = MESSAGES if hangs else TALKERS
            for talker in range(talkers):
                tasks.start_soon(talk, range(talker, MESSAGES, talkers))
            if hangs:
                await eventually(lambda: len(started) >= MESSAGES, within_s=60)
                tasks.cancel_scope.cancel()
        ended = max(started.values()) if hangs else time.perf_counter()
        return _load(MESSAGES, ended - began, cpu)


async def _through_bus(*, hangs: bool) -> Load:
    """Start the same runs with messages. Measure up to the graph's step if it hangs, else to the delivered answer."""
    started: dict[str, float] = {}
    async with (
        _runtime(started, hangs=hangs) as app,
        _client(app) as client,
        running_bus(app, known=MESSAGES) as harness,
    ):
        await _create_threads(LangGraphClient(client))
        cpu, began = time.process_time(), time.perf_counter()
        async with anyio.create_task_group() as tasks:
            for talker in range(TALKERS):
                numbers = range(talker, MESSAGES, TALKERS)
                tasks.start_soon(_talk, harness.bus, numbers, MESSAGES)
            if hangs:
                await eventually(lambda: len(started) >= MESSAGES, within_s=60)
                return _load(MESSAGES, max(started.values()) - began, cpu)
            await harness.platform.until(MESSAGES, within_s=60)
        return _load(MESSAGES, time.perf_counter() - began, cpu)


async def _create_threads(sdk: LangGraphClient) -> None:
    for number in range(MESSAGES):
        await sdk.threads.create(thread_id=str(UUID(int=number)))


async def _bare_run(client: LangGraphClient, number: int) -> None:
    message: Any = {"role": "human", "content": f"m{number}", "id": f"m{number}"}
    parts = client.runs.stream(
        str(UUID(int=number)),
        "lead_agent",
        input={"messages": [message]},
        stream_mode=list[Any](STREAM_MODES),
        metadata={"message_id": f"m{number}"},
        on_disconnect="continue",
        **RUN_OPTIONS,
    )
    async for _part in parts:
        pass


async def _turns() -> Load:
    """Measure from the first receive to the last answer."""
    async with running_bus(InstantRuns(), known=CHATS) as harness:
        cpu, began = time.process_time(), time.perf_counter()
        async with anyio.create_task_group() as tasks:
            for talker in range(TALKERS):
                numbers = range(talker, MESSAGES, TALKERS)
                tasks.start_soon(_talk, harness.bus, numbers, CHATS)
            await harness.platform.until(MESSAGES, within_s=60)
        return _load(MESSAGES, time.perf_counter() - began, cpu)


def _load(messages: int, took_s: float, cpu_before: float) -> Load:
    cpu_ms = (time.process_time() - cpu_before) * 1000 / messages
    return Load(rate=messages / took_s, cpu_ms=cpu_ms)


async def _talk(bus: Bus, numbers: range, chats: int) -> None:
    for number in numbers:
        await bus.intake.receive(inbound_message(f"m{number}", chat=f"c{number % chats}"))


async def _say_all(bus: Bus, texts: list[str]) -> None:
    for text in texts:
        await bus.intake.receive(inbound_message(text, chat=text))


async def paced(full: Path | None, *, store: StoreConfig = SQLITE) -> list[float]:
    """Return the seconds from receive to run start, for messages that arrive at a steady rate."""
    runs = InstantRuns()
    async with running_bus(runs, full=full, known=CHATS, store=store) as harness:
        sent = await at_rate(harness.bus)
        await runs.until(len(sent))
        await harness.platform.until(len(sent), within_s=30)
    return [runs.started[text] - at for text, at in sent.items()][RATE:]


@dataclass(frozen=True, slots=True, kw_only=True)
class _PacedMessages:
    """The results of messages that arrive at a steady rate.

    Attributes:
        seconds: From receive to the first step of a graph, of each message.
        load: CPU seconds of the process in each second until the last answer; 1 = one processor is busy.
    """

    seconds: list[float]
    load: float


async def _paced_embedded(rate: int) -> _PacedMessages:
    """Measure messages that a real graph behind the runs API answers."""
    started: dict[str, float] = {}
    async with _runtime(started) as app, running_bus(app) as harness:
        await _say_all(harness.bus, [f"warm {n}" for n in range(50)])
        await harness.platform.until(50, within_s=30)
        cpu, began = time.process_time(), time.perf_counter()
        sent = await at_rate(harness.bus, rate=rate)
        await harness.platform.until(50 + len(sent), within_s=90)
        load = (time.process_time() - cpu) / (time.perf_counter() - began)
    seconds = [started[text] - at for text, at in sent.items()]
    return _PacedMessages(seconds=seconds[rate:], load=load)


async def at_rate(
    bus: Bus, rate: int = RATE, *, seconds: float = PACED_S, prefix: str = "p"
) -> dict[str, float]:
    """Receive messages at a steady rate. Return when each was received, by its text (`prefix` and its number)."""
    sent: dict[str, float] = {}
    async with anyio.create_task_group() as tasks:
        began = time.perf_counter()
        for number in range(round(rate * seconds)):
            due = began + number / rate
            await anyio.sleep(max(0.0, due - time.perf_counter()))
            text = f"{prefix}{number}"
            message = inbound_message(text, chat=f"c{number % CHATS}")
            sent[text] = time.perf_counter()
            tasks.start_soon(bus.intake.receive, message)
    return sent


async def _commands_beside_hanging_runs() -> tuple[float, float]:
    """Return the median and the longest seconds from a command to its answer, in busy conversations."""
    times: list[float] = []
    runs = InstantRuns(said=never)
    async with running_bus(runs, max_runs=16) as harness:
        for number in range(HANGING):
            await harness.bus.intake.receive(inbound_message(f"hang {number}", chat=f"c{number}"))
        await runs.until(16)
        for number in range(COMMANDS):
            began = time.perf_counter()
            message = inbound_message("/help", chat=f"c{number}", event=f"h{number}")
            await harness.bus.intake.receive(message)
            await harness.platform.until(number + 1, within_s=30)
            times.append(time.perf_counter() - began)
    return percentile(times, 0.5), max(times)


@asynccontextmanager
async def _client(runs: ASGIApp) -> AsyncIterator[httpx.AsyncClient]:
    transport = StreamingASGITransport(runs)
    base_url = "http://bench/api"
    async with httpx.AsyncClient(transport=transport, base_url=base_url, timeout=300) as client:
        yield client


def _runs(client: httpx.AsyncClient, runs: ASGIApp) -> Runs:
    """Return the run port that the service uses, or a remote one for an application that simulates a server."""
    if isinstance(runs, Application):
        return EmbeddedRuns(lambda: runs.state.services)
    return RemoteRuns(LangGraphClient(client))


@asynccontextmanager
async def running_bus(
    runs: ASGIApp,
    *,
    full: Path | None = None,
    known: int = 0,
    max_runs: int = MESSAGES,
    store: StoreConfig = SQLITE,
) -> AsyncIterator[RunningBus]:
    """Run a bus with a platform in memory and a runs API in this process.

    Args:
        runs: The runs API.
        full: A folder whose database is copied; None = an empty database.
        known: Conversations "c0", "c1", ... that are mapped before it starts.
        max_runs: Runs at once.
        store: The database.
    """
    platform = FakePlatform()
    adapters: dict[str, Adapter] = {platform.name: platform}
    with TemporaryDirectory() as folder:
        if full is not None:
            shutil.copytree(full, folder, dirs_exist_ok=True)
        async with (
            Database.open(store, Path(folder)) as database,
            _client(runs) as client,
        ):
            await database.transaction(_mapper("c", 0, known))
            async with (
                open_node_calls(database) as calls,
                run_bus(
                    config=BusConfig(
                        drain_s=0.1, max_concurrent_runs=max_runs, rate_limit=RateLimit(messages=0)
                    ),
                    policies={platform.name: ChannelPolicy(dm_policy="open")},
                    adapters=adapters,
                    calls=calls,
                    server=AgentServer(
                        runs=_runs(client, runs), files=RemoteFiles(client), gateway=client
                    ),
                ) as bus,
            ):
                group = WORK_GROUP.set(platform.name)  # like the service's adapters
                yield RunningBus(bus=bus, platform=platform)
                WORK_GROUP.reset(group)


@asynccontextmanager
async def _runtime(started: dict[str, float], *, hangs: bool = False) -> AsyncIterator[ASGIApp]:
    """Run the embedded runtime with a graph of one step that records when it was reached, and may hang there."""

    async def note(state: MessagesState) -> MessagesState:
        started[str(state["messages"][-1].content)] = time.perf_counter()
        if hangs:
            await anyio.sleep_forever()
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


def _mapper(prefix: str, first: int, count: int) -> Callable[[Transaction], None]:
    """Return work that maps this many conversations."""

    def work(tx: Transaction) -> None:
        for number in range(first, first + count):
            # Used just now, because unused conversations are pruned.
            at = time.time() + number * 1e-6
            tx.run(
                _MAP, {"chat": f"{prefix}{number}", "thread_id": str(UUID(int=number)), "at": at}
            )

    return work


def inbound_message(text: str, *, chat: str, event: str = "") -> InboundMessage:
    """Return a message of a private chat."""
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
