"""Several nodes on one PostgreSQL database: the cost of a turn, and what people notice when a node ends.

One node on SQLite and `NODES` nodes on PostgreSQL run as real processes, one after another, against the same platform
and model servers. CPU time is that of the processes; PostgreSQL's is listed separately. The variable
`PARLEY_BENCH_REPLACEMENTS` sets how often all nodes are replaced while people talk; the bar requires 100.
`PARLEY_BENCH_SNAPSHOT_S` sets how long a snapshot is held open; the bar requires 600.
"""

import os
import signal
import sys
import time
from collections import defaultdict

import anyio
import psycopg

from gateway.playground.telegram.server import TelegramServer
from tests.fakes.model import FakeModelServer, ModelReply, ModelRequest
from tests.fakes.postgres import PostgresServer, postgres_server
from tests.lab.benchmarks import scale_bus, scale_runs, scale_snapshot
from tests.lab.benchmarks.figures import Figure, paired, percentile, rounds
from tests.lab.benchmarks.scale_cluster import NODES, Cluster, running_cluster, server_cpu_s
from tests.lab.benchmarks.turns import WORDS, Telegram

ROUNDS = rounds(3)
REPLACEMENTS = int(os.environ.get("PARLEY_BENCH_REPLACEMENTS", "3"))
PEOPLE = 50
MESSAGES = 4
"""Messages of each person, who waits for each answer before writing again."""

TALKERS = 20
"""People who talk while nodes are replaced."""

THINKING_S = 1.0
"""How long people think about an answer, seconds, because starting nodes need the two CPUs, too."""

CALM_S = 10.0
"""How long people talk before the first node is replaced, seconds."""

SLOW = "slowly"
"""A message with this word is answered in two seconds."""


class SlowModel(FakeModelServer):
    """Answers with twenty words.

    Attributes:
        asked_at: When it was called for each message (`time.perf_counter`).
    """

    def __init__(self) -> None:
        super().__init__(answer=self._reply)
        self.asked_at: defaultdict[str, list[float]] = defaultdict(list)

    def _reply(self, request: ModelRequest) -> ModelReply:
        self.asked_at[request.last_user_text].append(time.perf_counter())
        delay_s = 0.1 if SLOW in request.last_user_text else None
        return ModelReply(text=WORDS, token_delay_s=delay_s)


def run() -> list[Figure]:
    """Measure and return the figures; none without PostgreSQL. Raises TimeoutError if an answer is lost."""
    with postgres_server() as server:
        if server is None or not server.control:
            print("scale: left out, PostgreSQL is not installed", file=sys.stderr)
            return []
        return [
            *scale_bus.measure(server),
            *scale_runs.measure(server),
            *anyio.run(_measure, server),
        ]


async def _measure(server: PostgresServer) -> list[Figure]:
    figures: list[Figure] = []
    async with (
        SlowModel() as model,
        TelegramServer() as telegram,
        anyio.create_task_group() as tasks,
    ):
        platform = Telegram(telegram)
        tasks.start_soon(platform.count)
        figures += await _costs(platform, model, server)
        with server.database() as url:
            async with running_cluster(platform, model, url) as cluster:
                figures += await scale_snapshot.measure(platform, url)
                figures += await _ends(platform, model, cluster)
                figures += await _replacements(platform, telegram, cluster)
        tasks.cancel_scope.cancel()
    return figures


async def _costs(platform: Telegram, model: SlowModel, server: PostgresServer) -> list[Figure]:
    """Compare whole turns of both engines, and turns with and without an open snapshot."""
    engines: list[tuple[float, float]] = []
    snapshots: list[tuple[float, float]] = []
    rates: list[tuple[float, float]] = []
    servers: list[float] = []
    for _ in range(ROUNDS):
        async with running_cluster(platform, model, None) as cluster:
            sqlite_ms, sqlite_rate = await _load(platform, cluster)
        with server.database() as url:
            async with running_cluster(platform, model, url) as cluster:
                before = server_cpu_s(server)
                own_ms, own_rate = await _load(platform, cluster)
                servers.append((server_cpu_s(server) - before) * 1000 / (PEOPLE * MESSAGES))
                # Different people, because the threads of the first ones have grown.
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
    """Send messages as fast as they are answered. Return the CPU milliseconds of a turn, and the answers per second."""
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


async def _ends(platform: Telegram, model: SlowModel, cluster: Cluster) -> list[Figure]:
    """End a node while everybody waits for an answer, and measure when another node continues its turns. A turn has
    continued once the model is called again, because the dead node's part of the answer is lost.
    """
    usual, _, _ = await _ask_slowly(platform, model, "as usual")
    figures: list[Figure] = []
    for what, how, bar in (("kill -9", signal.SIGKILL, "< 1"), ("SIGSTOP", signal.SIGSTOP, "< 6")):
        slowest, ended_at, asked = await _ask_slowly(platform, model, what, cluster, how)
        again = [at - ended_at for at in asked if at > ended_at]
        figures += [
            Figure(f"nodes: {what}, turns that another node goes on with", len(again), ""),
            Figure(f"nodes: {what}, until it goes on with the first", min(again), "s"),
            Figure(f"nodes: {what}, until it goes on with the last", max(again), "s", bar),
            Figure(f"nodes: {what}, the slowest answer is later by", slowest - usual, "s"),
        ]
        gone = cluster.nodes.pop(0)
        if gone.running:
            await gone.kill()
        await cluster.add()
    return figures


async def _ask_slowly(
    platform: Telegram,
    model: SlowModel,
    text: str,
    cluster: Cluster | None = None,
    how: signal.Signals = signal.SIGKILL,
) -> tuple[float, float, list[float]]:
    """Request slow answers for everybody, and end the oldest node of `cluster` while the model answers.

    Return the seconds of the slowest answer, when the node ended, and when the model was called.
    """
    waits: list[float] = []
    texts = [f"{SLOW} please, {person}, {text}" for person in range(TALKERS)]

    async def ask(person: int) -> None:
        waits.append(await platform.ask(person, texts[person]))

    ended_at = time.perf_counter()
    async with anyio.create_task_group() as tasks:
        for person in range(TALKERS):
            tasks.start_soon(ask, person)
        if cluster is not None:
            await model.until(lambda _: all(one in model.asked_at for one in texts), within_s=60)
            ended_at = time.perf_counter()
            cluster.nodes[0].send(how)
    return max(waits), ended_at, [at for one in texts for at in model.asked_at[one]]


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
            await anyio.sleep(THINKING_S)

    before = sum(platform.answered[person] for person in people)
    async with anyio.create_task_group() as tasks:
        for person in people:
            tasks.start_soon(talk, person)
        await anyio.sleep(CALM_S)
        calm = list(waits)
        for _ in range(REPLACEMENTS * NODES):
            await cluster.replace()
        is_over.set()
    await anyio.sleep(2)  # doubled answers would arrive by now
    answers = sum(platform.answered[person] for person in people) - before
    texts = [message.text for person in people for message in telegram.answers(5000 + person)]
    name = f"nodes: all replaced {REPLACEMENTS} times"
    usual, replaced = percentile(calm, 0.5), waits[len(calm) :]
    return [
        Figure(f"{name}, turns", len(waits), ""),
        Figure(f"{name}, doubled answers", answers - len(waits), "", "<= 0"),
        Figure(f"{name}, aborted answers", sum(text != WORDS for text in texts), "", "<= 0"),
        Figure(f"{name}, before: an answer takes, p50", usual, "s"),
        Figure(f"{name}, before: p99", percentile(calm, 0.99), "s"),
        Figure(f"{name}, meanwhile: an answer takes, p50", percentile(replaced, 0.5), "s"),
        Figure(f"{name}, meanwhile: p99", percentile(replaced, 0.99), "s"),
        Figure(
            f"{name}, pause (p99 less p50 before)", percentile(replaced, 0.99) - usual, "s", "< 1"
        ),
    ]
