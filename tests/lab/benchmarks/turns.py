"""Whole turns, from the platform's event to the answer on the platform: `parley serve` compared with a hand-written
bot.

Each runs in its own process with the same platform and model servers, in alternating rounds. Only the process's own CPU
time counts, so other processes hardly affect it.

On Telegram, Parley respects the documented limit of 30 calls a second. The hand-written bot and the simulated server
ignore it, so there Parley's rate is compared with this limit.
"""

import os
import statistics
import sys
import time
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import anyio
import psutil
from typing_extensions import override

from bots.telegram.capabilities import CALLS_PER_S
from gateway.playground.slack.server import FakeSlack
from gateway.playground.telegram.server import TelegramServer
from tests.fakes.model import FakeModelServer, ModelReply, ModelRequest, ToolCall
from tests.journeys.service import ROOT, Service, with_model
from tests.lab.benchmarks.figures import Figure, paired, percentile, rounds

ROUNDS = rounds(5)
CHATS = 50
MESSAGES = 4
"""Messages in each chat. Each follows the answer to the previous one."""

IDLE_CHATS = 20
CROWD = 95
"""Together with the person who checks that the bot answers, fewer than Slack's 100 user lookups a minute."""
ANSWER_WITHIN_S = 120.0
CONNECT_WITHIN_S = 30.0
WORDS = " ".join(f"word{number}" for number in range(20))
TODOS = {"todos": [{"id": "todo-1", "title": "Answer", "status": "in_progress"}]}


class Platform(ABC):
    """A platform server with people who write in private chats, and the number of answers that each got.

    Attributes:
        name: The platform.
        calls_per_s: The limit that Parley respects over all chats; None = more than a service reaches.
    """

    name = ""
    calls_per_s: int | None = None

    def __init__(self) -> None:
        self.answered: Counter[int] = Counter()
        self._read = 0
        self._waiting: dict[int, anyio.Event] = {}

    @abstractmethod
    def write(self, person: int, text: str) -> None:
        """Send a person's message to the bot."""

    @abstractmethod
    async def count(self) -> None:
        """Count answers as they arrive, until canceled."""

    @abstractmethod
    def reference(self) -> dict[str, str]:
        """Return the environment of the hand-written bot."""

    @abstractmethod
    def channel(self) -> dict[str, Any]:
        """Return the configuration of the channel."""

    async def ask(self, person: int, text: str) -> float:
        """Send a message, and return the seconds until the answer."""
        waiting = self._waiting[person] = anyio.Event()
        began = time.perf_counter()
        self.write(person, text)
        with anyio.fail_after(ANSWER_WITHIN_S):
            await waiting.wait()
        return time.perf_counter() - began

    def _answer(self, person: int) -> None:
        self.answered[person] += 1
        if waiting := self._waiting.pop(person, None):
            waiting.set()


class Telegram(Platform):
    name = "telegram"
    calls_per_s = CALLS_PER_S

    def __init__(self, server: TelegramServer) -> None:
        super().__init__()
        self._server = server

    @override
    def write(self, person: int, text: str) -> None:
        self._server.dm(text, user=5000 + person)

    @override
    async def count(self) -> None:
        while True:
            new, self._read = self._server.log[self._read :], len(self._server.log)
            for kind, chat, _ in new:
                if kind == "message":
                    self._answer(chat - 5000)
            await self._server.wait_for(lambda: len(self._server.log) > self._read, 3600)

    @override
    def reference(self) -> dict[str, str]:
        return {"TELEGRAM_URL": self._server.base_url, "TELEGRAM_TOKEN": self._server.token}

    @override
    def channel(self) -> dict[str, Any]:
        return self._server.settings


class Slack(Platform):
    name = "slack"

    def __init__(self, server: FakeSlack) -> None:
        super().__init__()
        self._server = server

    @override
    def write(self, person: int, text: str) -> None:
        self._server.dm(text, user=f"U{person}BENCH")

    @override
    async def count(self) -> None:
        posted = self._server.workspace.posted
        while True:
            new, self._read = posted[self._read :], len(posted)
            for message in new:
                if message.bot_id:
                    self._answer(int(message.channel.removeprefix("DU").removesuffix("BENCH")))
            await self._server.wait_for(lambda: len(posted) > self._read, timeout_s=3600)

    @override
    def reference(self) -> dict[str, str]:
        return {
            "SLACK_URL": self._server.base_url,
            "SLACK_BOT_TOKEN": self._server.bot_token,
            "SLACK_APP_TOKEN": self._server.app_token,
        }

    @override
    def channel(self) -> dict[str, Any]:
        return {
            "enabled": True,
            "base_url": self._server.base_url,
            "bot_token": self._server.bot_token,
            "app_token": self._server.app_token,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Round:
    """The results of one bot in one round. Times in seconds."""

    cpu: float
    rate: float
    idle: float
    crowd: float
    cpu_with_tool: float


def run() -> list[Figure]:
    """Measure and return the figures."""
    return anyio.run(_measure)


async def _measure() -> list[Figure]:
    figures: list[Figure] = []
    async with FakeModelServer(answer=_reply) as model, TelegramServer() as telegram:
        figures += await _compare(Telegram(telegram), model)
    async with FakeModelServer(answer=_reply) as model, FakeSlack() as slack:
        figures += await _compare(Slack(slack), model)
    return figures


def _reply(request: ModelRequest) -> ModelReply:
    """Answer with 20 words at once, after a tool call if the message asks for one."""
    last = request.messages[-1]
    if last["role"] == "user" and "use a tool" in request.last_user_text:
        return ModelReply(calls=(ToolCall("write_todos", TODOS),))
    return ModelReply(text=WORDS)


async def _compare(platform: Platform, model: FakeModelServer) -> list[Figure]:
    by_hand: list[Round] = []
    ours: list[Round] = []
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(platform.count)
        for _ in range(ROUNDS):
            async with _by_hand(platform, model) as process:
                by_hand.append(await _round(platform, process))
            async with _parley(platform, model) as process:
                ours.append(await _round(platform, process))
        tasks.cancel_scope.cancel()
    late = statistics.median(b.idle - a.idle for a, b in zip(by_hand, ours, strict=True)) * 1000
    return [
        *_figures(platform, "CPU of an answer", "ms", "<= 0.85", by_hand, ours, "cpu"),
        *_figures(platform, "CPU with a tool", "ms", "<= 1.1", by_hand, ours, "cpu_with_tool"),
        *_throughput(platform, by_hand, ours),
        *_figures(platform, "one at a time, p50", "ms", "", by_hand, ours, "idle"),
        Figure(f"turn, {platform.name}: one at a time, p50, later by", late, "ms", "<= 5"),
    ]


def _throughput(platform: Platform, by_hand: list[Round], ours: list[Round]) -> list[Figure]:
    """Compare the rate at saturation and the answers to a crowd with the other bot, or with the platform's limit."""
    crowd = f"{CROWD} at once, p99"
    if (limit := platform.calls_per_s) is None:
        return [
            *_figures(platform, "at saturation", "/s", ">= 1.15", by_hand, ours, "rate"),
            *_figures(platform, crowd, "ms", "<= 1.1", by_hand, ours, "crowd"),
        ]
    name = f"turn, {platform.name}"
    limits = ("the limit", "Parley")
    rates = [(float(limit), one.rate) for one in ours]
    waits = [(CROWD / limit * 1000, one.crowd * 1000) for one in ours]
    return [
        *paired(f"{name}: at saturation", "/s", ">= 0.9", rates, sides=limits),
        *paired(f"{name}: {crowd}", "ms", "<= 1.1", waits, sides=limits),
    ]


def _figures(
    platform: Platform,
    what: str,
    unit: str,
    bar: str,
    by_hand: list[Round],
    ours: list[Round],
    field: str,
) -> list[Figure]:
    scale = 1000 if unit == "ms" else 1
    pairs = [
        (getattr(a, field) * scale, getattr(b, field) * scale)
        for a, b in zip(by_hand, ours, strict=True)
    ]
    name = f"turn, {platform.name}: {what}"
    return paired(name, unit, bar, pairs, sides=("by hand", "Parley"))


async def _round(platform: Platform, process: psutil.Process) -> Round:
    quiet = range(IDLE_CHATS)
    for person in quiet:
        await platform.ask(person, "warm up")
    # A chat accepts one message of a bot per second, so each of these waits in its own chat.
    idle = [await platform.ask(person, "idle") for person in quiet]
    before, began = _cpu(process), time.perf_counter()
    await _load(platform, CHATS, MESSAGES, "hello")
    wall, cpu = time.perf_counter() - began, _cpu(process) - before
    crowd = await _load(platform, CROWD, 1, "hello all")
    before = _cpu(process)
    await _load(platform, CHATS, 1, "use a tool")
    return Round(
        cpu=cpu / (CHATS * MESSAGES),
        rate=CHATS * MESSAGES / wall,
        idle=percentile(idle, 0.5),
        crowd=percentile(crowd, 0.99),
        cpu_with_tool=(_cpu(process) - before) / CHATS,
    )


async def _load(platform: Platform, chats: int, messages: int, text: str) -> list[float]:
    times: list[float] = []

    async def talk(person: int) -> None:
        times.extend([await platform.ask(person, f"{text} {number}") for number in range(messages)])

    async with anyio.create_task_group() as people:
        for person in range(chats):
            people.start_soon(talk, person)
    return times


def _cpu(process: psutil.Process) -> float:
    used = process.cpu_times()
    return used.user + used.system


@asynccontextmanager
async def _by_hand(platform: Platform, model: FakeModelServer) -> AsyncIterator[psutil.Process]:
    with TemporaryDirectory() as folder:
        environment = {
            "PATH": os.environ["PATH"],
            "PYTHONPATH": str(ROOT),
            "PYTHONSAFEPATH": "1",
            "MODEL_URL": model.base_url,
            **platform.reference(),
        }
        program = [
            sys.executable,
            "-m",
            f"tests.lab.benchmarks.hand_written_{platform.name}",
            folder,
        ]
        process = await anyio.open_process(
            program, stdin=None, stdout=None, stderr=None, env=environment, cwd=folder
        )
        try:
            with anyio.fail_after(CONNECT_WITHIN_S):
                await platform.ask(999, "are you there")
            yield psutil.Process(process.pid)
        finally:
            process.kill()
            with anyio.CancelScope(shield=True):
                await process.wait()


@asynccontextmanager
async def _parley(platform: Platform, model: FakeModelServer) -> AsyncIterator[psutil.Process]:
    with TemporaryDirectory() as folder:
        channels = {platform.name: platform.channel()}
        service = Service(Path(folder), {**with_model(model.base_url), "channels": channels})
        await service.start()
        try:
            await service.until_connected(platform.name)
            await platform.ask(999, "are you there")
            yield psutil.Process(service.pid)
        finally:
            await service.stop()
