"""The time from `parley serve` to the first 200 of /health and to the first answer, and the service's idle memory."""

import statistics
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import anyio
import psutil

from gateway.playground.telegram.server import TelegramServer
from tests.fakes.model import FakeModelServer
from tests.journeys.service import ROOT, Service, with_model
from tests.lab.benchmarks.figures import Figure, rounds
from tests.lab.benchmarks.turns import Telegram
from tests.people.platforms import PlatformServers

ROUNDS = rounds(5)
SETTLE_S = 2.0
"""Time for imports in the background after the channels are connected, seconds."""

PEERS_START = "DeerFlow 8.0 s, aegra 4.3 s, langgraph dev 0.85 s"
PEERS_MEMORY = "DeerFlow 225 MB, aegra 158 MB, langgraph dev 128 MB"


def run() -> list[Figure]:
    """Measure and return the figures."""
    return [*_help(), *anyio.run(_services), *anyio.run(_answers)]


def _help() -> list[Figure]:
    times = []
    for _ in range(ROUNDS):
        began = time.perf_counter()
        program = [sys.executable, "-P", "-m", "gateway", "--help"]
        subprocess.run(program, check=True, stdout=subprocess.DEVNULL, cwd=ROOT)
        times.append(time.perf_counter() - began)
    return _figures("start: parley --help", times, "< 0.2")


async def _services() -> list[Figure]:
    alone = [await _started({}) for _ in range(ROUNDS)]
    async with PlatformServers() as platforms:
        names = tuple(platforms.channels)
        whole = [await _started(platforms.channels, *names) for _ in range(ROUNDS)]
    figures: list[Figure] = []
    for what, starts, bars in (
        ("no channel", alone, ("< 2.5", "< 135")),
        ("all three", whole, ("< 3.0", "< 165")),
    ):
        healthy, serving, connected, memory = zip(*starts, strict=True)
        figures += _figures(f"start, {what}: healthy", healthy, bars[0], PEERS_START)
        figures += _figures(f"start, {what}: requests answered", serving)
        if what == "all three":
            figures += _figures(f"start, {what}: every channel connected", connected)
        figures.append(
            Figure(f"start, {what}: idle memory", min(memory) / 1e6, "MB", bars[1], PEERS_MEMORY)
        )
    return figures


async def _started(channels: Mapping[str, Any], *names: str) -> tuple[float, float, float, int]:
    """Return the seconds until the service is healthy, answers requests and is connected, and its idle resident bytes.
    The folder is empty.
    """
    with TemporaryDirectory() as folder:
        service = Service(Path(folder), {"channels": dict(channels)})
        began = time.perf_counter()
        await service.launch()
        await service.until_alive()
        healthy = time.perf_counter() - began
        try:
            await service.until_healthy()
            serving = time.perf_counter() - began
            await service.until_connected(*names)
            connected = time.perf_counter() - began
            await anyio.sleep(SETTLE_S)
            return healthy, serving, connected, _memory()
        finally:
            await service.stop()


async def _answers() -> list[Figure]:
    async with FakeModelServer() as model, TelegramServer() as server:
        telegram = Telegram(server)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(telegram.count)
            pairs = [await _answered(telegram, model, number) for number in range(ROUNDS)]
            tasks.cancel_scope.cancel()
    cold, killed = zip(*pairs, strict=True)
    return [
        *_figures("start: first answer of a cold service", cold, "< 3.5"),
        *_figures("start: answer after kill -9", killed, "<= 4"),
    ]


async def _answered(telegram: Telegram, model: FakeModelServer, number: int) -> tuple[float, float]:
    """Return the seconds from the start to an answer: with an empty folder, and after a kill during an answer."""
    with TemporaryDirectory() as folder:
        config = {**with_model(model.base_url), "channels": {"telegram": telegram.channel()}}
        service = Service(Path(folder), config)
        cold = await _ask(telegram, service, 2 * number)
        asked = len(model.requests)
        telegram.write(2 * number, "again")
        await model.until(lambda server: len(server.requests) > asked)
        await service.kill()
        killed = await _ask(telegram, service, 2 * number + 1)
        await service.stop()
        return cold, killed


async def _ask(telegram: Telegram, service: Service, person: int) -> float:
    """Send a message, start the service, and return the seconds until the answer."""
    began = time.perf_counter()
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(service.launch)
        await telegram.ask(person, "hello")
    return time.perf_counter() - began


def _figures(what: str, times: Sequence[float], bar: str = "", peers: str = "") -> list[Figure]:
    return [
        Figure(f"{what}, best of {ROUNDS}", min(times), "s", bar, peers),
        Figure(f"{what}, median", statistics.median(times), "s"),
    ]


def _memory() -> int:
    """Return the resident bytes of the one service that this process runs."""
    children = psutil.Process().children(recursive=True)
    return sum(child.memory_info().rss for child in children)
