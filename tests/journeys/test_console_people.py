"""People, rooms and usage in the console: in a real browser, with the real service and platforms."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from gateway.playground.telegram.chats import user_json
from tests.browser import BrowserPage, needs_chromium, open_browser
from tests.eventually import eventually
from tests.fakes.model import FakeModelServer
from tests.journeys.console_views import sign_in_as_admin
from tests.journeys.service import Service, serving, with_model
from tests.people.platforms import PlatformServers
from tests.people.slack import SlackDirectUser
from tests.people.telegram import TelegramPrivateUser, TelegramTopicUser

pytestmark = needs_chromium

HOSTILE = '<img src=x onerror="document.title = 1">'
ANN = 7001
FIELD = "document.querySelector('dialog select, dialog textarea')"


@asynccontextmanager
async def console(folder: Path) -> AsyncIterator[tuple[BrowserPage, Service, PlatformServers]]:
    """Run the service with a price and a limit; Ann and a group on Telegram, and a colleague on Slack have written."""
    async with PlatformServers() as platforms, FakeModelServer() as model:
        config = with_model(model.base_url)
        entry = config["models"][0]
        config["models"] = [
            {**entry, "price": {"input": 1000.0, "output": 2000.0}},
            {**entry, "name": "other"},
        ]
        config["usage"] = {"limits": {"person": {"tokens_per_day": 1_000_000}}}
        channels = {name: platforms.channels[name] for name in ("telegram", "slack")}
        session = {"context": {"is_plan_mode": True}}
        config["channels"] = {**channels, "telegram": {**channels["telegram"], "session": session}}
        async with serving(folder, config, *channels) as service:
            ann = TelegramPrivateUser(platforms.telegram, user=ANN)
            name = user_json(ANN, name=HOSTILE)
            platforms.telegram.dm("hello", user=ANN, extra={"from": name})
            await ann.wait_for_message("You said: hello")
            for person in (TelegramTopicUser(platforms.telegram), SlackDirectUser(platforms.slack)):
                await person.send("hello")
                await person.wait_for_message("You said: hello")
            async with open_browser(folder) as page:
                await page.open(service.url)
                await sign_in_as_admin(page, service)
                yield page, service, platforms


async def test_an_administrator_looks_after_a_person_and_a_room(tmp_path: Path) -> None:
    async with console(tmp_path) as (page, _, platforms):
        await _people_are_found_by_name(page)
        await _what_is_remembered_is_corrected_and_forgotten(page)
        await _a_model_is_chosen_as_by_the_command(page, platforms)
        await _a_room_has_its_own_page(page)
        assert await page.evaluate("document.title") == "People – Parley"
        assert page.errors == []


async def _people_are_found_by_name(page: BrowserPage) -> None:
    await page.click("People", "nav")
    await page.wait_for_text(HOSTILE, "main table")
    await page.evaluate("document.querySelector('main input[type=search]').focus()")
    await page.type("ONERROR")
    rows = "[...document.querySelectorAll('main tbody')].map(one => one.children.length).join()"
    await eventually(lambda: page.evaluate(f"{rows} === '1,0,0,0'"))
    await page.click(HOSTILE, "main table")
    await page.wait_for_text("Nothing found.", "main")
    assert HOSTILE in await page.text("main h2")


async def _what_is_remembered_is_corrected_and_forgotten(page: BrowserPage) -> None:
    await page.click("Add a fact", "main")
    await page.evaluate(f"{FIELD}.focus()")
    await page.type(f"likes tea {HOSTILE}")
    await page.click("Save", "dialog")
    await page.wait_for_text(f"likes tea {HOSTILE}", "main table")
    await page.click("Edit", "main table")
    await page.evaluate(f"{FIELD}.value = 'likes coffee'")
    await page.click("Save", "dialog")
    await page.wait_for_text("likes coffee", "main table")
    await page.click("Forget", "main table")
    await page.wait_for_text("Nothing found.", "main")
    await page.click("Undo", "#notice")
    await page.wait_for_text("likes coffee", "main table")
    await page.click("Forget everything", "main")
    await page.wait_for_text("This cannot be undone.", "dialog")
    await page.click("Forget everything", "dialog")
    await page.wait_for_text("Nothing found.", "main")


async def _a_model_is_chosen_as_by_the_command(
    page: BrowserPage, platforms: PlatformServers
) -> None:
    row = "[...document.querySelectorAll('main tr')].find(one => one.innerText.startsWith({!r}))"
    model = row.format("model")
    shown = await page.evaluate(f"{row.format('context.is_plan_mode')}.innerText")
    assert "config.yaml:" in shown  # its file and line
    assert "/ 1,000,000" in await page.text("main")  # the limit
    await page.evaluate(f"{model}.querySelector('button').click()")
    await eventually(lambda: page.evaluate(f"!!{FIELD}"))
    await page.evaluate(f"{FIELD}.value = 'other'")
    await page.click("Save", "dialog")
    await eventually(lambda: page.evaluate(f"{model}?.innerText.includes('Command')"))
    ann = TelegramPrivateUser(platforms.telegram, user=ANN)
    await ann.send("/model")
    await ann.wait_for_message("Current model: other")
    await page.click("Undo", "#notice")
    await eventually(lambda: page.evaluate(f"{model}?.innerText.includes('Default')"))
    await ann.send("/model")
    await ann.wait_for_message("Current model: default (fake)")


async def _a_room_has_its_own_page(page: BrowserPage) -> None:
    await page.click("People", "nav")
    await page.wait_for_text("People answered", "main")
    room = "document.querySelector('main a[href^=\"#room/\"]')"
    await eventually(lambda: page.evaluate(f"!!{room}"))
    await page.evaluate(f"{room}.click()")
    await page.wait_for_text("group_policy", "main")
    await eventually(
        lambda: page.evaluate("!!document.querySelector('main a[href^=\"#person/telegram\"]')")
    )
    assert "timezone" not in await page.text("main table:last-of-type")


async def test_usage_shows_costs_with_names_and_exports_them(tmp_path: Path) -> None:
    async with console(tmp_path) as (page, _, _platforms):
        await page.click("Usage", "nav")
        # Usage is written a second after the calls: show the view anew until it has the name.
        named = (
            f"[...document.querySelectorAll('main a')].some(one => one.innerText === {HOSTILE!r})"
        )
        again = "document.querySelector('main[aria-busy]') || dispatchEvent(new HashChangeEvent('hashchange'))"
        await eventually(lambda: page.evaluate(f"{named} || (({again}), false)"))
        shown = await page.text("main")
        assert all(one in shown for one in ("fake", "lead_agent", "telegram", "slack"))
        assert "$0.00" not in await page.text("main tbody")
        bars = "document.querySelectorAll('main .chart rect.accent').length"
        assert await page.evaluate(bars) == 2  # One day, in the charts of costs and of tokens.
        csv = "fetch([...document.querySelectorAll('main a')].find(one => one.download).href).then(one => one.text())"
        table = await page.evaluate(csv)
        assert table.startswith("day,model,agent,channel,room,person,calls,")
        assert "telegram:" in table
        await page.evaluate("location.hash = 'usage?since=2020-01-01&until=2020-01-31'")
        await page.wait_for_text("Person: –", "main")
        await page.evaluate("location.hash = 'usage?channel=slack'")
        await eventually(
            lambda: page.text("main"), lambda shown: "lead_agent" in shown and HOSTILE not in shown
        )
        await page.resize(390, 800)
        assert await page.evaluate("document.documentElement.scrollWidth") == 390
        assert await page.evaluate("document.title") == "Usage – Parley"
        assert page.errors == []
