"""Every view of the console in a real browser: accessible, on a phone, in both languages, with hostile people.

The test finds views as a person does: through the navigation, then through links.
"""

import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import pytest

from gateway.playground.telegram.chats import user_json
from tests.browser import BrowserPage, needs_chromium, open_browser
from tests.fakes.model import FakeModelServer, ModelReply
from tests.journeys.console_views import show_view, sign_in_as_admin, until_shown
from tests.journeys.service import Service, serving, with_model
from tests.people.feishu import FeishuPrivateUser
from tests.people.platforms import PlatformServers
from tests.people.slack import SlackDirectUser
from tests.people.telegram import TelegramPrivateUser, TelegramTopicUser

AXE = Path(__file__).parents[1] / "gateway" / "js" / "node_modules" / "axe-core" / "axe.min.js"

pytestmark = needs_chromium
needs_axe = pytest.mark.skipif(not AXE.exists(), reason="needs `make peers-js` (npm)")

CANARIES = (
    '<img src=x onerror="canary()">',
    "<script>canary()</script>",
    "[click](javascript:canary())",
    '![x](x" onerror="canary())',
    "<svg/onload=canary()>",
    "<a href='data:text/html,<script>parent.canary()</script>'>x</a>",
    "</textarea><iframe srcdoc='<script>parent.canary()</script>'>",
    "{{constructor.constructor('canary()')()}} ${canary()} `canary()`",
    "'-canary()-'\"-canary()-\"",
    "\u202egnp.exe\u202c \u2066\u200b" + "W" * 3000,
    "<style>*{display:none}</style> javascript:canary() #/../../console?<b>",
    "__proto__ constructor toString",
)
HOSTILE_TEXT = "\n\n".join(CANARIES)
HOSTILE_NAME = f"{CANARIES[0]} \u202eeve"

_PLANT = "window.canaries = 0; window.canary = () => { window.canaries += 1; }"
_VIEWS = "import('./views.mjs').then(({ VIEWS }) => VIEWS.map((one) => one.name))"
_LINKS = (
    "[...document.querySelectorAll('main a[href^=\"#\"]')].map((one) => one.getAttribute('href'))"
)
_KEYS = "import('./texts/en.mjs').then(({ texts }) => Object.keys(texts))"
_OUT_OF_REACH = """[...document.querySelectorAll('a, button, input, select, textarea, summary')].filter((one) => {
  const at = one.getBoundingClientRect();
  const overflow = (place) => getComputedStyle(place).overflowX;
  const scrolls = (place) => place && (/auto|scroll/.test(overflow(place)) || scrolls(place.parentElement));
  return at.width > 0 && !one.closest('.skip') && (at.left < 0 || at.right > innerWidth) && !scrolls(one.parentElement);
}).map((one) => one.outerHTML.slice(0, 200))"""
_COVERED_LINKS = """[...document.querySelectorAll('nav a')].filter((one) => {
  one.scrollIntoView({ block: 'nearest' });
  const at = one.getBoundingClientRect();
  return !one.contains(document.elementFromPoint(at.x + at.width / 2, at.y + at.height / 2));
}).map((one) => one.innerText)"""
_AXE_RUN = """axe.run(document, { resultTypes: ['violations'] }).then(({ violations }) => violations.map((one) =>
  [one.id, one.help, one.nodes.slice(0, 3).map((node) => node.html.slice(0, 200) + ' ' + node.failureSummary)]))"""


@asynccontextmanager
async def watched_service(folder: Path) -> AsyncIterator[tuple[BrowserPage, Service]]:
    """Run the service on three platforms with hostile people, and sign in to its console."""
    async with PlatformServers() as platforms, FakeModelServer() as model:
        _name_people(platforms)
        config = {**with_model(model.base_url), "channels": platforms.channels}
        async with serving(folder, config, *platforms.channels) as service:
            await _write_hostile_messages(platforms, model)
            async with open_browser(folder) as page:
                await page.open(service.url)
                await page.evaluate(_PLANT)
                await sign_in_as_admin(page, service)
                yield page, service


def _name_people(platforms: PlatformServers) -> None:
    profile = {"display_name": HOSTILE_NAME, "real_name": HOSTILE_NAME}
    for user in ("U1USER", "U2USER"):
        platforms.slack.person(user, name="eve", real_name=HOSTILE_NAME, profile=profile)
    platforms.feishu.allow_names()
    platforms.feishu.state.people["ou_alice"] = HOSTILE_NAME


async def _write_hostile_messages(platforms: PlatformServers, model: FakeModelServer) -> None:
    for person in (
        SlackDirectUser(platforms.slack, user="U1USER"),
        TelegramPrivateUser(platforms.telegram),
        TelegramTopicUser(platforms.telegram, topic=HOSTILE_NAME[:120]),
        FeishuPrivateUser(platforms.feishu),
    ):
        await person.send(HOSTILE_TEXT)
        await person.wait_for_message("You said")
    named = user_json(7001, name=HOSTILE_NAME)
    platforms.telegram.dm(HOSTILE_TEXT, user=7001, extra={"from": named})
    await TelegramPrivateUser(platforms.telegram, user=7001).wait_for_message("You said")
    failing = SlackDirectUser(platforms.slack, user="U2USER")
    model.reply(ModelReply(status=400))
    await failing.send("this fails")
    await failing.wait_for_message("rejected the request")


async def addresses(page: BrowserPage) -> list[str]:
    """Return one address for each view. For views outside the navigation, it is the first one that others link to."""
    names = await page.evaluate(_VIEWS)
    linked = await page.evaluate(
        "[...document.querySelectorAll('nav a')].map((one) => one.dataset.view)"
    )
    found = {name: f"#{name}" for name in linked}
    for address in list(found.values()):
        await show_view(page, address)
        for href in await page.evaluate(_LINKS):
            found.setdefault(re.split("[/?]", href[1:])[0], href)
    assert set(names) <= set(found), "no page links to this view"
    return [found[name] for name in names]


@needs_axe
async def test_every_view_is_accessible_and_safe_in_light_and_dark(tmp_path: Path) -> None:
    async with watched_service(tmp_path) as (page, _):
        axe = await anyio.Path(AXE).read_text("utf-8")
        await page.evaluate(f"{axe}; true")
        found: dict[str, Any] = {}
        for address in await addresses(page):
            for color in ("light", "dark"):
                await page.prefer_color(color)
                await show_view(page, address)
                if findings := await page.evaluate(_AXE_RUN):
                    found[f"{address} {color}"] = findings
        assert found == {}
        assert await page.evaluate("window.canaries") == 0
        assert page.errors == []
        await page.resize(1280, 700)  # lower than the navigation with the footer
        assert await page.evaluate(_COVERED_LINKS) == []


async def test_every_view_fits_on_a_phone_in_both_languages(tmp_path: Path) -> None:
    async with watched_service(tmp_path) as (page, service):
        await page.resize(390, 800)
        keys = "|".join(await page.evaluate(_KEYS))
        found: dict[str, Any] = {}
        for language in ("en", "zh"):
            await page.evaluate(f"localStorage.setItem('parley.language', '{language}')")
            await page.open(f"{service.url}/console/?{language}")
            await page.evaluate(_PLANT)
            await until_shown(page)
            assert ("概览" in await page.text("nav")) == (language == "zh")
            for address in await addresses(page):
                await show_view(page, address)
                width = await page.evaluate("document.documentElement.scrollWidth")
                far = await page.evaluate(_OUT_OF_REACH)
                shown = await page.text()
                missing = re.findall(rf"(?:^|\s)(?:{keys})\.[a-z][a-z_.-]+(?=$|\s)", shown)
                if address.startswith("#configuration"):
                    missing = []  # It shows keys of the configuration.
                if width > 390 or far or missing:
                    found[f"{address} {language}"] = (width, far[:3], missing)
            assert await page.evaluate("window.canaries") == 0
        assert found == {}
        assert page.errors == []
