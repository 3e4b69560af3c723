"""Bursts: how long other people wait for the real `parley serve` while much arrives at once.

Each burst reports, for people on another channel: the time until a command is answered, the time until a message shows
a first sign (typing, or the answer), and the service's peak memory. Times are measured at this process's platform
server. The burst and the model come from another process (`burst_servers.py`). With each command, the same command goes
to a bot that does nothing else (`hand_written_help.py`). Its time is the machine's share.
"""

import os
import sys
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import anyio
import orjson
import psutil
from anyio.abc import Process
from anyio.streams.buffered import BufferedByteReceiveStream

from gateway.playground.telegram.server import TelegramServer
from tests.journeys.service import ROOT, Service, with_model
from tests.lab.benchmarks import burst_servers
from tests.lab.benchmarks.figures import Figure, percentile

CROWD = 400
"""People who each write one message at once."""

SENDERS = 2_000
MESSAGES = 5
"""Messages of each of 2,000 people: 10,000 events in all."""

STREAMS = 100
STREAM_TOKENS = 500
PEOPLE = 40
"""People on the other channel. Each runs a command and writes a message."""

NOTHING = "nothing else"
INTERVAL_S = 0.1
WITHIN_S = 120.0
MAX_LINE = 10_000

MAX_MORE_MB = 128
"""The memory that a burst may use: the limit for the events of all active runs
(`gateway.runtime.runs.RuntimeSettings`).
"""


@dataclass(kw_only=True)
class Watch:
    """How long people on the other channel waited, seconds, and the service's memory, MB. `reference`: how long the
    reference bot took.
    """

    commands: list[float] = field(default_factory=list)
    reference: list[float] = field(default_factory=list)
    signs: list[float] = field(default_factory=list)
    before_mb: float = 0.0
    peak_mb: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Scene:
    """The running service with two bots, and the reference bot.

    Attributes:
        crowd: Takes the lines that `burst_servers.py` reads.
        told: The lines that it prints.
        other: The platform server of the bot without a burst.
        by_hand: The platform server of the reference bot.
        service: The service.
    """

    crowd: Process
    told: BufferedByteReceiveStream
    other: TelegramServer
    by_hand: TelegramServer
    service: Service

    async def write(
        self, text: str, *, people: int = 1, messages: int = 1, wait: bool = False
    ) -> None:
        """Send messages of many people to the busy bot at once. `wait`: wait until it has shown something."""
        assert self.crowd.stdin is not None
        burst = {"text": text, "people": people, "messages": messages, "wait": wait}
        await self.crowd.stdin.send(orjson.dumps(burst) + b"\n")
        if wait:
            await self.told.receive_until(b"\n", MAX_LINE)


def run() -> list[Figure]:
    """Measure the bursts that PARLEY_BENCH_BURSTS names, or all, and return the figures."""
    return anyio.run(_measure)


async def _measure() -> list[Figure]:
    chosen = os.environ.get("PARLEY_BENCH_BURSTS", "")
    figures: list[Figure] = []
    for what, burst in _BURSTS.items():
        if chosen in what:
            async with _two_bots() as scene, burst(scene):
                figures += _figures(what, await _watch(scene))
    return figures


def _figures(what: str, watch: Watch) -> list[Figure]:
    def milliseconds(times: list[float], share: float) -> float:
        return percentile(times, share) * 1000

    name, is_quiet = f"burst, {what}", what == NOTHING
    return [
        Figure(
            f"{name}: a command of others, p50",
            milliseconds(watch.commands, 0.5),
            "ms",
            "",
            f"bot by hand {milliseconds(watch.reference, 0.5):.1f} ms",
        ),
        Figure(
            f"{name}: a command of others, p99",
            milliseconds(watch.commands, 0.99),
            "ms",
            "< 50" if is_quiet else "< 300",
            f"bot by hand {milliseconds(watch.reference, 0.99):.1f} ms",
        ),
        Figure(
            f"{name}: first sign for others, p99",
            milliseconds(watch.signs, 0.99),
            "ms",
            "< 200" if is_quiet else "< 1000",
        ),
        Figure(f"{name}: memory before", watch.before_mb, "MB"),
        Figure(
            f"{name}: memory at its peak, more than before",
            watch.peak_mb - watch.before_mb,
            "MB",
            f"< {MAX_MORE_MB}",
        ),
    ]


@asynccontextmanager
async def quiet(_scene: Scene) -> AsyncIterator[None]:
    """No burst, for comparison."""
    yield


@asynccontextmanager
async def messages_at_once(scene: Scene) -> AsyncIterator[None]:
    """400 people write to another bot of the same service at once."""
    await scene.write("hello", people=CROWD)
    yield


@asynccontextmanager
async def platform_events(scene: Scene) -> AsyncIterator[None]:
    """10,000 messages of 2,000 people arrive at another bot of the same service."""
    await scene.write("hello", people=SENDERS, messages=MESSAGES)
    yield


@asynccontextmanager
async def long_answer(scene: Scene) -> AsyncIterator[None]:
    """The model sends a long answer without a pause to a person at another bot."""
    await scene.write("say 100000 words")
    yield


@asynccontextmanager
async def many_answers(scene: Scene) -> AsyncIterator[None]:
    """The model sends many answers, each without a pause, to people at another bot."""
    await scene.write("say 5000 words", people=50)
    yield


@asynccontextmanager
async def large_table(scene: Scene) -> AsyncIterator[None]:
    """The model answers a person at another bot with a Markdown table."""
    await scene.write("draw a table")
    yield


@asynccontextmanager
async def large_tool_result(scene: Scene) -> AsyncIterator[None]:
    """A tool returns 50 MB to the agent of a person at another bot."""
    await scene.write("fetch everything")
    yield


@asynccontextmanager
async def unread_streams(scene: Scene) -> AsyncIterator[None]:
    """API clients start runs and do not read their streams."""
    body = orjson.dumps(
        {
            "assistant_id": "lead_agent",
            "input": {"messages": [{"role": "user", "content": f"say {STREAM_TOKENS} words"}]},
            "stream_mode": ["messages-tuple", "values"],
        }
    )
    async with scene.service.client() as client, AsyncExitStack() as stack:
        head = (
            f"POST /api/runs/stream HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: {len(body)}\r\n"
            f"Authorization: {client.headers['authorization']}\r\n\r\n"
        )
        for _ in range(STREAMS):
            connection = await anyio.connect_tcp("127.0.0.1", scene.service.port)
            await stack.enter_async_context(connection)
            await connection.send(head.encode() + body)
        yield


_BURSTS = {
    NOTHING: quiet,
    "400 messages at once": messages_at_once,
    "10,000 events": platform_events,
    "an answer of 100,000 tokens": long_answer,
    "50 answers of 5,000 tokens": many_answers,
    "100 streams that nobody reads": unread_streams,
    "a table of 400,000 characters": large_table,
    "a tool result of 50 MB": large_tool_result,
}


async def _watch(scene: Scene) -> Watch:
    watch = Watch(before_mb=_memory_mb(scene.service))
    async with anyio.create_task_group() as tasks:
        for person in range(PEOPLE):
            tasks.start_soon(_ask, scene.other, 5000 + person, "/help", watch.commands)
            tasks.start_soon(_ask, scene.other, 6000 + person, "a question", watch.signs)
            for part in range(5):
                if part == 2:
                    tasks.start_soon(_ask, scene.by_hand, 5000 + person, "/help", watch.reference)
                await anyio.sleep(INTERVAL_S / 5)
                watch.peak_mb = max(watch.peak_mb, _memory_mb(scene.service))
    return watch


async def _ask(server: TelegramServer, person: int, text: str, times: list[float]) -> None:
    """Write to a bot, and record how long it took to show something."""
    began = time.perf_counter()
    server.dm(text, user=person)
    await _wait(server, person)
    times.append(time.perf_counter() - began)


async def _wait(server: TelegramServer, person: int) -> None:
    """Wait until the bot has shown something in a person's private chat."""
    await server.wait_for(lambda: any(chat == person for _, chat, _ in server.log), WITHIN_S)


def _memory_mb(service: Service) -> float:
    return float(psutil.Process(service.pid).memory_info().rss) / 1e6


@asynccontextmanager
async def _two_bots() -> AsyncIterator[Scene]:
    """Run the service with two bots and the reference bot. Each has answered a message."""
    async with (
        TelegramServer(token="222:other") as other,
        TelegramServer(token="333:hand") as by_hand,
        _program("burst_servers") as crowd,
        _program(
            "hand_written_help",
            {"TELEGRAM_URL": by_hand.base_url, "TELEGRAM_TOKEN": by_hand.token},
        ),
    ):
        assert crowd.stdout is not None
        told = BufferedByteReceiveStream(crowd.stdout)
        busy = orjson.loads(await told.receive_until(b"\n", MAX_LINE))
        with TemporaryDirectory() as folder:
            channels = {
                "telegram-busy": _channel({**busy, "bot_token": burst_servers.TOKEN}),
                "telegram-other": _channel(
                    {
                        "base_url": other.base_url,
                        "base_file_url": other.base_file_url,
                        "bot_token": other.token,
                    }
                ),
            }
            tools = [
                {
                    "name": "fetch_everything",
                    "group": "web",
                    "use": "tests.lab.benchmarks.large_result:fetch_everything",
                }
            ]
            config = {**with_model(busy["model_url"]), "channels": channels, "tools": tools}
            service = Service(Path(folder), config)
            await service.start()
            scene = Scene(crowd=crowd, told=told, other=other, by_hand=by_hand, service=service)
            try:
                await service.until_connected(*channels)
                await scene.write("are you there", wait=True)
                for server, text in ((other, "are you there"), (by_hand, "/help")):
                    server.dm(text, user=999)
                    await _wait(server, 999)
                yield scene
            finally:
                await service.kill()


@asynccontextmanager
async def _program(
    module: str, environment: Mapping[str, str] | None = None
) -> AsyncIterator[Process]:
    """Run a module of this package in its own process, and kill it at the end."""
    process = await anyio.open_process(
        [sys.executable, "-m", f"tests.lab.benchmarks.{module}"],
        stderr=None,
        env={**os.environ, "PYTHONPATH": str(ROOT), "PYTHONSAFEPATH": "1", **(environment or {})},
    )
    try:
        yield process
    finally:
        process.kill()
        with anyio.CancelScope(shield=True):
            await process.wait()


def _channel(addresses: Mapping[str, Any]) -> dict[str, Any]:
    keys = ("base_url", "base_file_url", "bot_token")
    return {
        "platform": "telegram",
        "enabled": True,
        "dm_policy": "open",
        **{key: addresses[key] for key in keys},
    }
