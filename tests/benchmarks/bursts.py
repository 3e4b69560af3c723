"""Bursts: what others wait for while something arrives at once, in the real `parley serve`.

Each burst reports, for people of another channel: how long a command takes to be answered, how long their messages
take to show a first sign (typing, or the answer), and the service's peak memory. Times are between this process's
platform servers and back, so on a busy machine they tell of the machine.
"""

import re
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import anyio
import orjson
import psutil

from tests.benchmarks.figures import Figure, percentile
from tests.fakes.model import FakeModelServer, ModelReply, ModelRequest, ToolCall
from tests.fakes.telegram import TelegramServer
from tests.journeys.service import Service, with_model

EVENTS = 10_000
SENDERS = 2_000
STREAMS = 100
STREAM_TOKENS = 500
TABLE_ROW = "| " + "x" * 44 + " | y |\n"
TABLE_ROWS = 400_000 // len(TABLE_ROW)
PEOPLE = 40
"""People of the other channel: each of them runs a command, and writes a message."""

INTERVAL_S = 0.1
ANSWER_S = 3.0
"""How long the model takes for people of the other channel: they see a sign first."""

WITHIN_S = 120.0

MAX_MORE_MB = 128
"""What a burst may take: as much as the events of all active runs may (`gateway.runtime.settings`)."""


@dataclass(kw_only=True)
class Watch:
    """What people of the other channel waited for, seconds; and the service's memory in MB."""

    commands: list[float] = field(default_factory=list)
    signs: list[float] = field(default_factory=list)
    before_mb: float = 0.0
    peak_mb: float = 0.0


def run() -> list[Figure]:
    """Measure and return the figures."""
    return anyio.run(_measure)


async def _measure() -> list[Figure]:
    return [
        *_figures("nothing else", await quiet()),
        *_figures("10,000 events", await platform_events()),
        *_figures("an answer of 100,000 tokens", await answers(1, tokens=100_000)),
        *_figures("50 answers of 5,000 tokens", await answers(50, tokens=5_000)),
        *_figures("100 streams that nobody reads", await unread_streams()),
        *_figures("a table of 400,000 characters", await large_table()),
        *_figures("a tool result of 50 MB", await large_tool_result()),
    ]


def _figures(what: str, watch: Watch) -> list[Figure]:
    commands, signs = (percentile(times, 0.99) * 1000 for times in (watch.commands, watch.signs))
    return [
        Figure(f"burst, {what}: a command of others, p99", commands, "ms", "< 50"),
        Figure(f"burst, {what}: first sign for others, p99", signs, "ms", "< 200"),
        Figure(f"burst, {what}: memory before", watch.before_mb, "MB"),
        Figure(
            f"burst, {what}: memory at its peak, more than before",
            watch.peak_mb - watch.before_mb,
            "MB",
            f"< {MAX_MORE_MB}",
        ),
    ]


async def quiet() -> Watch:
    """Measure without a burst, as a reference."""
    async with _two_bots() as (_, other, service):
        return await _watch(other, service)


async def platform_events() -> Watch:
    """Measure while 10,000 messages of 2,000 people arrive at another bot of the same service."""
    async with _two_bots() as (busy, other, service):
        for number in range(EVENTS):
            busy.dm(f"hello {number // SENDERS}", user=100_000 + number % SENDERS)
        return await _watch(other, service)


async def answers(count: int, *, tokens: int) -> Watch:
    """Measure while the model sends so many answers, each without a pause, to people of another bot."""
    async with _two_bots() as (busy, other, service):
        for person in range(count):
            busy.dm(f"say {tokens} words", user=100_000 + person)
        return await _watch(other, service)


async def large_table() -> Watch:
    """Measure while the model answers somebody at another bot with a Markdown table."""
    async with _two_bots() as (busy, other, service):
        busy.dm("draw a table", user=100_000)
        return await _watch(other, service)


async def large_tool_result() -> Watch:
    """Measure while a tool returns 50 MB to the agent of somebody at another bot."""
    async with _two_bots() as (busy, other, service):
        busy.dm("fetch everything", user=100_000)
        return await _watch(other, service)


async def unread_streams() -> Watch:
    """Measure while clients of the API start runs and read nothing of their streams."""
    async with _two_bots() as (_, other, service), service.client() as client:
        body = orjson.dumps(
            {
                "assistant_id": "lead_agent",
                "input": {"messages": [{"role": "user", "content": f"say {STREAM_TOKENS} words"}]},
                "stream_mode": ["messages-tuple", "values"],
            }
        )
        head = (
            f"POST /api/runs/stream HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: {len(body)}\r\n"
            f"Authorization: {client.headers['authorization']}\r\n\r\n"
        )
        async with AsyncExitStack() as stack:
            for _ in range(STREAMS):
                connection = await anyio.connect_tcp("127.0.0.1", service.port)
                await stack.enter_async_context(connection)
                await connection.send(head.encode() + body)
            return await _watch(other, service)


async def _watch(other: TelegramServer, service: Service) -> Watch:
    watch = Watch(before_mb=_memory_mb(service))
    async with anyio.create_task_group() as tasks:
        for person in range(PEOPLE):
            tasks.start_soon(_command, other, 5000 + person, watch)
            tasks.start_soon(_sign, other, 6000 + person, watch)
            for _ in range(5):
                await anyio.sleep(INTERVAL_S / 5)
                watch.peak_mb = max(watch.peak_mb, _memory_mb(service))
    return watch


async def _command(other: TelegramServer, person: int, watch: Watch) -> None:
    began = time.perf_counter()
    other.dm("/help", user=person)
    await _wait(other, person)
    watch.commands.append(time.perf_counter() - began)


async def _sign(other: TelegramServer, person: int, watch: Watch) -> None:
    began = time.perf_counter()
    other.dm("a question", user=person)
    await _wait(other, person)
    watch.signs.append(time.perf_counter() - began)


async def _wait(other: TelegramServer, person: int) -> None:
    """Wait until the bot showed anything in somebody's private chat."""
    await other.wait_for(lambda: any(chat == person for _, chat, _ in other.log), WITHIN_S)


def _memory_mb(service: Service) -> float:
    return float(psutil.Process(service.pid).memory_info().rss) / 1e6


def _reply(request: ModelRequest) -> ModelReply:
    said = request.last_user_text
    if "fetch everything" in said and request.messages[-1]["role"] != "tool":
        return ModelReply(calls=(ToolCall("fetch_everything", {}),))
    if found := re.search(r"say (\d+) words", said):
        return ModelReply(text="word " * int(found[1]), token_delay_s=0.0)
    if "draw a table" in said:
        return ModelReply(text="| a | b |\n|---|---|\n" + TABLE_ROW * TABLE_ROWS, token_delay_s=0.0)
    return ModelReply(text="Hello.", first_token_delay_s=ANSWER_S if "question" in said else 0.0)


@asynccontextmanager
async def _two_bots() -> AsyncIterator[tuple[TelegramServer, TelegramServer, Service]]:
    """Run the service with two bots; both have answered somebody."""
    async with (
        FakeModelServer(answer=_reply) as model,
        TelegramServer(token="111:busy") as busy,
        TelegramServer(token="222:other") as other,
    ):
        with TemporaryDirectory() as folder:
            channels = {"telegram-busy": _channel(busy), "telegram-other": _channel(other)}
            tools = [
                {
                    "name": "fetch_everything",
                    "group": "web",
                    "use": "tests.benchmarks.large_result:fetch_everything",
                }
            ]
            config = {**with_model(model.base_url), "channels": channels, "tools": tools}
            service = Service(Path(folder), config)
            await service.start()
            try:
                await service.until_connected(*channels)
                for bot in (busy, other):
                    bot.dm("are you there", user=999)
                    await _wait(bot, 999)
                yield busy, other, service
            finally:
                await service.kill()


def _channel(server: TelegramServer) -> dict[str, Any]:
    return {
        "platform": "telegram",
        "enabled": True,
        "base_url": server.base_url,
        "base_file_url": server.base_file_url,
        "bot_token": server.token,
        "dm_policy": "open",
    }
