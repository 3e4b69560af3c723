"""Open consoles: the cost of three pages for the real `parley serve` at 50 messages a second, and how fast a page
opens.

The pages are in real browsers and follow changes: the overview, the messages and the deliveries. The messages are
commands of people on two bots. The CPU time that pages need is far below the noise of a loaded service. So the
benchmark counts their requests under load, and measures the cost of one request without load. It does the same for
their streams. Needs Chromium.
"""

import re
import statistics
import time
from collections import Counter
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from itertools import count, cycle
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import anyio
import httpx
import psutil

from gateway.figures import FRESH_S
from gateway.playground.telegram.server import TelegramServer
from tests.browser import BrowserPage, open_browser
from tests.fakes.model import FakeModelServer
from tests.journeys.service import Service, serving, with_model
from tests.lab.benchmarks.figures import Figure, rounds

VIEWS = ("overview", "messages", "deliveries")
RATE = 50
"""Messages a second."""

SECONDS = 20.0
"""How long requests are counted, and the service's CPU time is measured, each time, seconds."""

SETTLE_S = 10.0
"""Warm-up, seconds. After it, pages send requests as rarely as under constant changes (kit/live.mjs)."""

PEOPLE = 2_000
"""People on each bot, enough that none exceeds a person's limits."""

ROUNDS = rounds(3)
OPENED = 10
"""How often the benchmark opens a page."""

REQUESTS = 40
"""Number of requests of one kind whose CPU time is measured."""

QUIET_S, QUIET_WITHIN_S = 0.03, 60.0
"""CPU time per second of an idle service, and how long to wait for it, seconds."""

READERS = 60
"""Number of open streams whose CPU time is measured."""

_REQUEST = re.compile(
    r'parley_http_requests_total\{method="GET",route="(?P<route>/api/[^"]*)",status="200"\} (?P<count>\S+)'
)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Scene:
    service: Service
    bots: tuple[TelegramServer, TelegramServer]
    pages: tuple[BrowserPage, ...]


def run() -> list[Figure]:
    """Measure and return the figures."""
    return anyio.run(_measure)


async def _measure() -> list[Figure]:
    async with _scene() as scene:
        opened = [await _open(scene.pages[0], scene, "overview") for _ in range(OPENED)]
        loads = [await _load(scene) for _ in range(ROUNDS)]
        for page in scene.pages:
            await page.open("about:blank")
        await _until_quiet(scene)
        costs = {route: await _cost_s(scene, route) for route in loads[0].requests}
        streams = max(0.0, await _streams_percent(scene))
    asked = statistics.median(
        100 * sum(rate * costs.get(route, 0.0) for route, rate in load.requests.items())
        for load in loads
    )
    alone = statistics.median(load.percent for load in loads) - asked - streams
    pages, rate = f"{len(VIEWS)} open pages", f"{RATE} messages/s"
    requests = statistics.median(sum(load.requests.values()) for load in loads)
    return [
        Figure(f"console: CPU of the service at {rate}", alone, "%"),
        Figure(f"console: requests of {pages}", requests, "/s"),
        Figure(f"console: CPU of {pages} at {rate}", asked + streams, "%", "< 1"),
        Figure(f"console: CPU with and without {pages}, ratio", 1 + (asked + streams) / alone, "x"),
        Figure("console: first view of a page, median", statistics.median(opened), "s", "< 1"),
        Figure("console: first view of a page, slowest", max(opened), "s"),
    ]


@asynccontextmanager
async def _scene() -> AsyncIterator[_Scene]:
    with TemporaryDirectory() as name:
        folder = Path(name)
        async with AsyncExitStack() as stack:
            bots = (
                await stack.enter_async_context(TelegramServer("111:one")),
                await stack.enter_async_context(TelegramServer("222:two")),
            )
            model = await stack.enter_async_context(FakeModelServer())
            channels = {f"bot{number}": _channel(bot) for number, bot in enumerate(bots)}
            config = {**with_model(model.base_url), "channels": channels}
            service = await stack.enter_async_context(
                serving(folder, config, *channels, fork=False)
            )
            token = (service.home / "admin_token").read_text().strip()
            pages = []
            for view in VIEWS:
                (folder / view).mkdir()
                page = await stack.enter_async_context(open_browser(folder / view))
                await page.open(f"{service.url}/console/")
                await page.wait_for_text("Sign in")
                await page.type(token)
                await page.press_enter()
                await page.wait_for_text("Overview", "main")
                pages.append(page)
            yield _Scene(service=service, bots=bots, pages=tuple(pages))


def _channel(bot: TelegramServer) -> Mapping[str, Any]:
    return {
        "platform": "telegram",
        "enabled": True,
        "bot_token": bot.token,
        "base_url": bot.base_url,
        "base_file_url": bot.base_file_url,
        "dm_policy": "open",
    }


@dataclass(frozen=True, slots=True, kw_only=True)
class _Load:
    """Requests of pages while people wrote (per second, by route), and the service's CPU time, percent."""

    requests: Mapping[str, float]
    percent: float


async def _open(page: BrowserPage, scene: _Scene, view: str) -> float:
    """Open a page. Return the seconds until its view is shown."""
    await page.open("about:blank")
    await page.open(f"{scene.service.url}/console/?{time.monotonic_ns()}#{view}")
    is_there = "document.querySelector('main > *') && !document.querySelector('main[aria-busy]')"
    while True:
        shown: float = await page.evaluate(f"{is_there} ? performance.now() : 0")
        if shown:
            return shown / 1000
        await anyio.sleep(0.01)


_people = cycle(range(1, PEOPLE))
_sent = count()


async def _load(scene: _Scene) -> _Load:
    for page, view in zip(scene.pages, VIEWS, strict=True):
        await _open(page, scene, view)
    await _write(scene, SETTLE_S)
    asked, busy, began = await _requests(scene), _busy_s(scene), time.monotonic()
    await _write(scene, SECONDS)
    took, busy = time.monotonic() - began, _busy_s(scene) - busy
    more = await _requests(scene) - asked
    return _Load(
        requests={route: number / took for route, number in more.items()},
        percent=100 * busy / took,
    )


def _busy_s(scene: _Scene) -> float:
    """Return the service's CPU time so far, seconds."""
    times = psutil.Process(scene.service.pid).cpu_times()
    return times.user + times.system


async def _requests(scene: _Scene) -> Counter[str]:
    """Return the number of requests so far by route."""
    async with scene.service.client() as client:
        text = (await client.get("/metrics")).text
    return Counter(
        {found["route"]: int(float(found["count"])) for found in _REQUEST.finditer(text)}
    )


async def _cost_s(scene: _Scene, route: str) -> float:
    """Return the CPU time of a request, seconds. No response is cached from the previous request."""
    is_shared = route == "/api/figures"
    number, wait_s = (REQUESTS // 4, FRESH_S * 1.05) if is_shared else (REQUESTS, 0.0)
    async with scene.service.client() as client:
        await client.get(f"{route}?limit=50")
        idle = _busy_s(scene)
        await anyio.sleep(number * wait_s)
        before = _busy_s(scene)
        for _ in range(number):
            (await client.get(f"{route}?limit=50")).raise_for_status()
            await anyio.sleep(wait_s)
    return max(0.0, _busy_s(scene) - before - (before - idle)) / number


async def _until_quiet(scene: _Scene) -> None:
    """Wait until the answers are sent."""
    with anyio.move_on_after(QUIET_WITHIN_S):
        while True:
            before = _busy_s(scene)
            await anyio.sleep(1)
            if _busy_s(scene) - before < QUIET_S:
                return


async def _streams_percent(scene: _Scene) -> float:
    """Return the CPU time of one stream per page, each with two events a second, percent."""
    alone = await _busy_percent(scene)
    limits = httpx.Limits(max_connections=READERS + 1)
    token = (scene.service.home / "admin_token").read_text().strip()
    headers = {"Authorization": f"Bearer {token}"}
    async with (
        httpx.AsyncClient(base_url=scene.service.url, headers=headers, limits=limits) as client,
        anyio.create_task_group() as tasks,
    ):
        for _ in range(READERS):
            tasks.start_soon(_read, client)
        await anyio.sleep(2)
        followed = await _busy_percent(scene)
        tasks.cancel_scope.cancel()
    return (followed - alone) * len(VIEWS) / READERS


async def _read(client: httpx.AsyncClient) -> None:
    async with client.stream("GET", "/api/events", timeout=None) as response:
        async for _ in response.aiter_bytes():
            pass


async def _busy_percent(scene: _Scene) -> float:
    """Return the service's CPU time while a person writes four times a second, percent."""
    before, began = _busy_s(scene), time.monotonic()
    await _write(scene, SECONDS / 2, rate=4)
    return 100 * (_busy_s(scene) - before) / (time.monotonic() - began)


async def _write(scene: _Scene, seconds: float, rate: int = RATE) -> None:
    """Let people write `rate` commands a second."""
    began, sent = time.monotonic(), 0
    while sent < seconds * rate:
        due = int((time.monotonic() - began) * rate)
        for _ in range(due - sent):
            scene.bots[next(_sent) % 2].dm("/help", user=next(_people))
        sent = max(sent, due)
        await anyio.sleep(0.01)
