"""Whole turns of two nodes while a snapshot is open, as during a dump or a long query.

People write while it is open: `PARLEY_BENCH_SNAPSHOT_S` seconds. The bar asks for 600.
"""

import os
import statistics

import anyio
import psycopg

from tests.lab.benchmarks.figures import Figure
from tests.lab.benchmarks.turns import Platform

SECONDS = float(os.environ.get("PARLEY_BENCH_SNAPSHOT_S", "20"))
RATE = 20
"""Messages per second while it is open, a third of what both nodes can answer."""

FIRST, PEOPLE = 4_000, 200
"""People who write. Each waits for the answer to the previous message."""

BURST = 400
"""Total messages, sent as fast as they are answered."""

BURSTS = 3


async def measure(platform: Platform, url: str) -> list[Figure]:
    """Measure and return the figures."""
    await _burst(platform)
    before = await _bursts(platform)
    with psycopg.connect(url) as snapshot:
        snapshot.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
        snapshot.execute("SELECT count(*) FROM inbox")
        turns = await _talk(platform)
        held = await _bursts(platform)
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("VACUUM")  # PostgreSQL does this by itself later
    after = await _bursts(platform)
    name = f"nodes: snapshot held for {SECONDS:.0f} s and {turns} turns"
    return [
        Figure(f"{name}, turns before", before, "/s"),
        Figure(f"{name}, turns at its end", held, "/s"),
        Figure(f"{name}, turns after it", after, "/s"),
        Figure(f"{name}, at its end to after it", held / after, "x", ">= 0.9"),
    ]


async def _talk(platform: Platform) -> int:
    """Send messages at a steady rate. Return their number."""
    messages = round(SECONDS * RATE)
    began = anyio.current_time()
    free = [*range(PEOPLE)]
    async with anyio.create_task_group() as tasks:
        for number in range(messages):
            await anyio.sleep_until(began + number / RATE)
            tasks.start_soon(_ask, platform, free, number)
    return messages


async def _ask(platform: Platform, free: list[int], number: int) -> None:
    person = free.pop(0)
    await platform.ask(FIRST + person, f"hello {number}")
    free.append(person)


async def _bursts(platform: Platform) -> float:
    return statistics.median([await _burst(platform) for _ in range(BURSTS)])


async def _burst(platform: Platform) -> float:
    """Send messages as fast as they are answered. Return the answers per second."""
    began, numbers = anyio.current_time(), iter(range(BURST))

    async def talk(person: int) -> None:
        for number in numbers:
            await platform.ask(FIRST + person, f"hello {number}")

    async with anyio.create_task_group() as tasks:
        for person in range(PEOPLE):
            tasks.start_soon(talk, person)
    return BURST / (anyio.current_time() - began)
