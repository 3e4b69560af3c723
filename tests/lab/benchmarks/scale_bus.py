"""The bus of nodes on PostgreSQL: messages per second, and the delay from one node to another."""

import gc
import statistics
import time
from functools import partial

import psycopg

from store.config import StoreConfig
from tests.fakes.postgres import PostgresServer
from tests.lab.benchmarks.bus import (
    CHATS,
    MAPPED,
    paced,
    running_bus,
    starts,
)
from tests.lab.benchmarks.bus import MESSAGES as BUS_MESSAGES
from tests.lab.benchmarks.figures import Figure, paired, percentile, rounds
from tests.lab.benchmarks.instant_runs import InstantRuns
from tests.lab.benchmarks.scale_cluster import server_cpu_s
from tests.lab.benchmarks.scale_node import receiving_node
from tests.lab.benchmarks.service_loop import run_as_service

ROUNDS = rounds(3)

_MAP = """
INSERT INTO conversation (channel, workspace, chat, thread_id, created_at, updated_at)
SELECT 'fake', 'w', 'old' || n, lpad(to_hex(n + 10000), 32, '0')::uuid::text, %(at)s, %(at)s
FROM generate_series(0, %(last)s::int) AS n
"""


def measure(server: PostgresServer) -> list[Figure]:
    """Measure and return the figures."""
    return run_as_service(partial(_measure, server))


async def _measure(server: PostgresServer) -> list[Figure]:
    gc.freeze()  # as the service does
    return [*await _buses(server), *await _wakeups(server)]


async def _buses(server: PostgresServer) -> list[Figure]:
    """Measure one node's bus on both engines, and with `MAPPED` conversations in PostgreSQL."""
    engines: list[tuple[float, float]] = []
    mapped: list[tuple[float, float]] = []
    rates: list[tuple[float, float]] = []
    servers: list[float] = []
    waits: list[float] = []
    for _ in range(ROUNDS):
        sqlite = await starts(None, known=BUS_MESSAGES)
        with server.database() as url:
            before = server_cpu_s(server)
            empty = await starts(None, known=BUS_MESSAGES, store=StoreConfig(url=url))
            servers.append((server_cpu_s(server) - before) * 1000 / BUS_MESSAGES)
        with server.database() as url:
            _map_conversations(url)
            full = await starts(None, known=BUS_MESSAGES, store=StoreConfig(url=url))
        with server.database() as url:
            waits.append(percentile(await paced(None, store=StoreConfig(url=url)), 0.99))
        engines.append((sqlite.cpu_ms, empty.cpu_ms))
        mapped.append((empty.cpu_ms, full.cpu_ms))
        rates.append((sqlite.rate, empty.rate))
    sides = ("SQLite", "PostgreSQL")
    return [
        *paired("nodes: inbound to run start", "msg/s", "", rates, sides=sides),
        Figure(
            "nodes: inbound to run start, bar",
            statistics.median(own for _, own in rates),
            "msg/s",
            ">= 400",
        ),
        Figure("nodes: CPU up to a run's start in PostgreSQL", statistics.median(servers), "ms"),
        Figure("nodes: inbound to run start at 200/s, p99", min(waits) * 1000, "ms", "< 15"),
        *paired("nodes: CPU up to a run's start", "ms", "", engines, sides=sides),
        *paired(
            "nodes: the same, 1,000,000 conversations mapped",
            "ms",
            "<= 1.1",
            mapped,
            sides=("none", "1,000,000"),
        ),
    ]


def _map_conversations(url: str) -> None:
    with psycopg.connect(url) as connection:
        connection.execute(_MAP, {"last": MAPPED - 1, "at": time.time()})
        connection.commit()
        connection.autocommit = True
        connection.execute("VACUUM ANALYZE conversation")  # PostgreSQL does this by itself later


async def _wakeups(server: PostgresServer) -> list[Figure]:
    """Receive all messages at a node in another process, and measure the runs that this node starts."""
    with server.database() as url:
        runs = InstantRuns()
        async with receiving_node(url) as other, running_bus(runs, store=StoreConfig(url=url)):
            received = await other.receive()
    if {*received.started, *runs.started} != {*received.sent}:
        raise RuntimeError("runs of some messages have not started")
    # A chat's first message determines its owner.
    waits = [
        (at - received.sent[text]) * 1000
        for text, at in runs.started.items()
        if int(text.removeprefix("p")) >= CHATS
    ]
    name = "nodes: accepted at one, run started at another, 200/s"
    return [
        Figure(f"{name}, p50", percentile(waits, 0.5), "ms"),
        Figure(f"{name}, p99", percentile(waits, 0.99), "ms", "< 15"),
    ]
