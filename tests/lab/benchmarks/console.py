"""Open consoles: what three pages cost the real `parley serve` at 50 messages a second, and how soon a page is there.

The pages are in real browsers and follow what changes: the overview, the messages and the deliveries. The messages are
commands of people on two bots. Only the service's processor time counts. Needs Chromium.
"""

import statistics
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from itertools import count, cycle
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import anyio
import psutil

from gateway.playground.telegram.server import TelegramServer
from tests.browser import BrowserPage, open_browser
from tests.fakes.model import FakeModelServer
from tests.journeys.service import Service, serving, with_model
from tests.lab.benchmarks.figures import Figure, paired, rounds

VIEWS = ("overview", "messages", "deliveries")
RATE = 50
"""Messages a second."""

SECONDS = 20.0
"""How long to measure with and without pages, each time."""

SETTLE_S = 3.0
PEOPLE = 2_000
"""People on each bot, so that none exceeds the limits of a person."""

ROUNDS = rounds(5)
OPENED = 10
"""How often a page is opened."""


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
        await _load(scene, has_pages=True)  # It fills pools and caches.
        pairs = [
            (await _load(scene, has_pages=False), await _load(scene, has_pages=True))
            for _ in range(ROUNDS)
        ]
    name = f"console: CPU at {RATE} messages/s"
    more = statistics.median(own - alone for alone, own in pairs)
    return [
        *paired(name, "%", "", pairs, sides=("no page", f"{len(VIEWS)} pages")),
        Figure(f"console: CPU of {len(VIEWS)} open pages at {RATE} messages/s", more, "%", "< 1"),
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


async def _open(page: BrowserPage, scene: _Scene, view: str) -> float:
    """Open a page; return the seconds until its view is there."""
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


async def _load(scene: _Scene, *, has_pages: bool) -> float:
    """Return the service's share of a processor while people write, percent."""
    for page, view in zip(scene.pages, VIEWS, strict=True):
        if has_pages:
            await _open(page, scene, view)
        else:
            await page.open("about:blank")
    process = psutil.Process(scene.service.pid)
    await _write(scene, SETTLE_S)
    before, began = process.cpu_times(), time.monotonic()
    await _write(scene, SECONDS)
    after, took = process.cpu_times(), time.monotonic() - began
    return 100 * (after.user + after.system - before.user - before.system) / took


async def _write(scene: _Scene, seconds: float) -> None:
    """Let people write `RATE` commands a second."""
    began, sent = time.monotonic(), 0
    while sent < seconds * RATE:
        due = int((time.monotonic() - began) * RATE)
        for _ in range(due - sent):
            scene.bots[next(_sent) % 2].dm("/help", user=next(_people))
        sent = max(sent, due)
        await anyio.sleep(0.01)
