"""From `parley serve` to the first 200 of /health, and what the idle service keeps in memory."""

import statistics
import time
from collections.abc import Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import anyio
import psutil

from tests.benchmarks.figures import Figure, rounds
from tests.journeys.chat_users import PlatformServers
from tests.journeys.service import Service

ROUNDS = rounds(4)
SETTLE_S = 2.0
"""After the channels are connected, for what is imported in the background."""

PEERS_START = "DeerFlow 8.0 s, aegra 4.3 s, langgraph dev 0.85 s"
PEERS_MEMORY = "DeerFlow 225 MB, aegra 158 MB, langgraph dev 128 MB"


def run() -> list[Figure]:
    """Measure and return the figures."""
    return anyio.run(_measure)


async def _measure() -> list[Figure]:
    alone = [await _started({}) for _ in range(ROUNDS)]
    async with PlatformServers() as platforms:
        names = tuple(platforms.channels)
        whole = [await _started(platforms.channels, *names) for _ in range(ROUNDS)]
    figures: list[Figure] = []
    for what, starts, bars in (
        ("no channel", alone, ("< 1.5", "< 120")),
        ("all three", whole, ("< 3", "< 180")),
    ):
        healthy = [one[0] for one in starts]
        connected = min(one[1] for one in starts)
        memory = min(one[2] for one in starts) / 1e6
        figures += [
            Figure(f"start, {what}: healthy, best of 4", min(healthy), "s", bars[0], PEERS_START),
            Figure(f"start, {what}: healthy, median", statistics.median(healthy), "s"),
            Figure(f"start, {what}: every channel connected, best of 4", connected, "s"),
            Figure(f"start, {what}: idle memory (RSS)", memory, "MB", bars[1], PEERS_MEMORY),
        ]
    return [figure for figure in figures if "no channel: every" not in figure.what]


async def _started(channels: Mapping[str, Any], *names: str) -> tuple[float, float, int]:
    """Return seconds to healthy, seconds to connected, and resident bytes when idle, from an empty folder."""
    with TemporaryDirectory() as folder:
        service = Service(Path(folder), {"channels": dict(channels)})
        began = time.perf_counter()
        await service.start()
        healthy = time.perf_counter() - began
        try:
            await service.until_connected(*names)
            connected = time.perf_counter() - began
            await anyio.sleep(SETTLE_S)
            return healthy, connected, _memory()
        finally:
            await service.stop()


def _memory() -> int:
    """Return the resident bytes of the one service that this process runs."""
    children = psutil.Process().children(recursive=True)
    return sum(child.memory_info().rss for child in children)
