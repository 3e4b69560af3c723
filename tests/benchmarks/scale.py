"""Several nodes on one PostgreSQL database: what a turn costs, and what people notice when a node ends.

One node on SQLite and `NODES` nodes on PostgreSQL run as real processes, one after the other, against the same platform
and model servers. CPU is what the processes have used, PostgreSQL's apart. The variable `PARLEY_BENCH_REPLACEMENTS`
says how often all nodes are replaced while people talk; the bar asks for 100.
"""

import os
import signal
import sys
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import anyio
import psutil
import psycopg

from tests.benchmarks.figures import Figure, paired, percentile, rounds
from tests.benchmarks.turns import WORDS, Telegram
from tests.fakes.model import FakeModelServer, ModelReply, ModelRequest
from tests.fakes.postgres import PostgresServer, postgres_server
from tests.fakes.telegram import TelegramServer
from tests.journeys.service import Service, with_model

NODES = 2
ROUNDS = rounds(3)
REPLACEMENTS = int(os.environ.get("PARLEY_BENCH_REPLACEMENTS", "3"))
PEOPLE = 50
MESSAGES = 4
"""Of each person, one after the answer to the other."""

TALKERS = 20
"""People who talk while nodes are replaced."""

SLOW = "slowly"
"""A message with this word is answered in two seconds."""


class Cluster:
    """Nodes with the same configuration, each with a folder of its own.

    Args:
        folder: Where their folders are made.
        config: Their configuration.

    Attributes:
        nodes: Those that were not stopped, oldest first.
    """

    def __init__(self, folder: Path, config: Mapping[str, Any]) -> None:
        self.nodes: list[Service] = []
        self._folder = folder
        self._config = config
        self._started = 0

    async def add(self) -> None:
        """Start a node, and wait until it is connected."""
        self._started += 1
        folder = anyio.Path(self._folder / f"node {self._started}")
        await folder.mkdir()
        node = Service(Path(folder), self._config)
        self.nodes.append(node)
        await node.start()
        await node.until_connected("telegram")

    async def replace(self) -> None:
        """Start a node, then stop the oldest. Raises ValueError: that one did not end well."""
        await self.add()
        if code := await self.nodes.pop(0).stop():
            raise ValueError(f"a node that was stopped ended with code {code}")

    async def close(self) -> None:
        """Kill all nodes."""
        for node in self.nodes:
            if node.running:
                await node.kill()

    def cpu_s(self) -> float:
        """Return the CPU seconds that the present nodes have used."""
        return sum(_cpu_s(psutil.Process(node.pid)) for node in self.nodes)


def run() -> list[Figure]:
    """Measure and return the figures; none without PostgreSQL. Raises TimeoutError: an answer was lost."""
    with postgres_server() as server:
        if server is None or not server.control:
            print("scale: left out, PostgreSQL is not installed", file=sys.stderr)
            return []
        return anyio.run(_measure, server)


async def _measure(server: PostgresServer) -> list[Figure]:
    figures: list[Figure] = []
    async with (
        FakeModelServer(answer=_reply) as model,
        TelegramServer() as telegram,
        anyio.create_task_group() as tasks,
    ):
        platform = Telegram(telegram)
        tasks.start_soon(platform.count)
        figures += await _costs(platform, model, server)
        with server.database() as url:
            async with _cluster(platform, model, url) as cluster:
                figures += await _ends(platform, model, cluster)
                figures += await _replacements(platform, telegram, cluster)
        tasks.cancel_scope.cancel()
    return figures


def _reply(request: ModelRequest) -> ModelReply:
    delay_s = 0.1 if SLOW in request.last_user_text else None
    return ModelReply(text=WORDS, token_delay_s=delay_s)


@asynccontextmanager
async def _cluster(
    platform: Telegram, model: FakeModelServer, url: str | None
) -> AsyncIterator[Cluster]:
    """Run `NODES` nodes on a database of PostgreSQL; None = one on SQLite."""
    config = {**with_model(model.base_url), "channels": {platform.name: platform.channel()}}
    if url is not None:
        config["database"] = {"url": url}
    with TemporaryDirectory() as folder:
        cluster = Cluster(Path(folder), config)
        try:
            for _ in range(1 if url is None else NODES):
                await cluster.add()
            await platform.ask(999, "are you there")
            yield cluster
        finally:
            with anyio.CancelScope(shield=True):
                await cluster.close()


async def _costs(
    platform: Telegram, model: FakeModelServer, server: PostgresServer
) -> list[Figure]:
    """Compare whole turns of both engines, and those beside a snapshot that is held open with the others."""
    engines: list[tuple[float, float]] = []
    snapshots: list[tuple[float, float]] = []
    rates: list[tuple[float, float]] = []
    servers: list[float] = []
    for _ in range(ROUNDS):
        async with _cluster(platform, model, None) as cluster:
            sqlite_ms, sqlite_rate = await _load(platform, cluster)
        with server.database() as url:
            async with _cluster(platform, model, url) as cluster:
                before = _server_cpu_s(server)
                own_ms, own_rate = await _load(platform, cluster)
                servers.append((_server_cpu_s(server) - before) * 1000 / (PEOPLE * MESSAGES))
                # Other people: the threads of the first ones have grown.
                with psycopg.connect(url) as snapshot:
                    snapshot.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
                    snapshot.execute("SELECT count(*) FROM inbox")
                    held_ms, _ = await _load(platform, cluster, first=PEOPLE)
        engines.append((sqlite_ms, own_ms))
        rates.append((sqlite_rate, own_rate))
        snapshots.append((own_ms, held_ms))
    sides = ("one node, SQLite", f"{NODES} nodes, PostgreSQL")
    held = ("without", "with a snapshot")
    return [
        *paired("nodes: CPU of a turn", "ms", "<= 1.5", engines, sides=sides),
        Figure("nodes: CPU of a turn in PostgreSQL", percentile(servers, 0.5), "ms"),
        *paired("nodes: answers at saturation", "/s", "", rates, sides=sides),
        *paired("nodes: snapshot held open, CPU of a turn", "ms", "<= 1.1", snapshots, sides=held),
    ]


async def _load(platform: Telegram, cluster: Cluster, first: int = 0) -> tuple[float, float]:
    """Let people write as fast as they are answered; return CPU milliseconds of a turn, and answers per second."""
    before, began = cluster.cpu_s(), time.perf_counter()
    async with anyio.create_task_group() as tasks:
        for person in range(first, first + PEOPLE):
            tasks.start_soon(_talk, platform, person, MESSAGES)
    turns = PEOPLE * MESSAGES
    took_s = time.perf_counter() - began
    return (cluster.cpu_s() - before) * 1000 / turns, turns / took_s


async def _talk(platform: Telegram, person: int, messages: int) -> None:
    for number in range(messages):
        await platform.ask(person, f"hello {number}")


async def _ends(platform: Telegram, model: FakeModelServer, cluster: Cluster) -> list[Figure]:
    """Measure how much later the slowest answer comes if a node ends while everybody waits for one."""
    usual = await _slowest(platform, model)
    figures: list[Figure] = []
    for what, how in (("kill -9", signal.SIGKILL), ("SIGSTOP", signal.SIGSTOP)):
        slowest = await _slowest(platform, model, cluster, how)
        # A part of what the dead node had asked the model is asked again: up to two seconds of this are not its end.
        figures.append(
            Figure(f"nodes: {what}, the slowest answer is later by", slowest - usual, "s")
        )
        gone = cluster.nodes.pop(0)
        if gone.running:
            await gone.kill()
        await cluster.add()
    return figures


async def _slowest(
    platform: Telegram,
    model: FakeModelServer,
    cluster: Cluster | None = None,
    how: signal.Signals = signal.SIGKILL,
) -> float:
    """Return the seconds of the slowest answer; the oldest node ends while the model speaks to everybody."""
    waits: list[float] = []

    async def ask(person: int) -> None:
        waits.append(await platform.ask(person, f"{SLOW} please"))

    before = len(model.requests)
    async with anyio.create_task_group() as tasks:
        for person in range(TALKERS):
            tasks.start_soon(ask, person)
        if cluster is not None:
            await model.until(lambda m: len(m.requests) >= before + TALKERS, within_s=60)
            cluster.nodes[0].send(how)
    return max(waits)


async def _replacements(
    platform: Telegram, telegram: TelegramServer, cluster: Cluster
) -> list[Figure]:
    """Replace all nodes `REPLACEMENTS` times while people talk."""
    people = range(2_000, 2_000 + TALKERS)
    waits: list[float] = []
    is_over = anyio.Event()

    async def talk(person: int) -> None:
        while not is_over.is_set():
            waits.append(await platform.ask(person, "hello"))

    before = sum(platform.answered[person] for person in people)
    async with anyio.create_task_group() as tasks:
        for person in people:
            tasks.start_soon(talk, person)
        for _ in range(REPLACEMENTS * NODES):
            await cluster.replace()
        is_over.set()
    await anyio.sleep(2)  # what would be doubled comes now
    answers = sum(platform.answered[person] for person in people) - before
    texts = [message.text for person in people for message in telegram.answers(5000 + person)]
    name = f"nodes: all replaced {REPLACEMENTS} times"
    return [
        Figure(f"{name}, turns", len(waits), ""),
        Figure(f"{name}, doubled answers", answers - len(waits), "", "<= 0"),
        Figure(f"{name}, aborted answers", sum(text != WORDS for text in texts), "", "<= 0"),
        Figure(f"{name}, an answer takes, p50", percentile(waits, 0.5), "s"),
        Figure(f"{name}, an answer takes, p99", percentile(waits, 0.99), "s"),
    ]


def _server_cpu_s(server: PostgresServer) -> float:
    """Return the CPU seconds of PostgreSQL's processes, those that have ended too."""
    data = Path(server.control[server.control.index("-D") + 1])
    main = psutil.Process(int((data / "postmaster.pid").read_text().split("\n", 1)[0]))
    ended = main.cpu_times()
    children = sum(_cpu_s(child) for child in main.children())
    return _cpu_s(main) + ended.children_user + ended.children_system + children


def _cpu_s(process: psutil.Process) -> float:
    used = process.cpu_times()
    return used.user + used.system
