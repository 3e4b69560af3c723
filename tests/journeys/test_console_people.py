"""People, rooms and usage in the console: in a real browser, with the real service and platforms."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from gateway.playground.telegram.chats import user_json
from tests.browser import BrowserPage, needs_chromium, open_browser
from tests.eventually import eventually
from tests.fakes.model import FakeModelServer, ModelReply, ModelRequest, ToolCall
from tests.journeys.console_views import sign_in_as_admin
from tests.journeys.service import Service, serving, with_model
from tests.people.platforms import PlatformServers
from tests.people.slack import SlackDirectUser
from tests.people.telegram import TelegramPrivateUser, TelegramTopicUser

pytestmark = needs_chromium

HOSTILE = '<img src=x onerror="document.title = 1">'
ANN = 7001
FIELD = "document.querySelector('dialog select, dialog textarea')"


def answer(request: ModelRequest) -> ModelReply:
    """If told to, call a tool that a guardrail denies. Otherwise, repeat the message."""
    said = request.last_user_text
    if "bash" in said and request.messages[-1]["role"] != "tool":
        return ModelReply(calls=(ToolCall("bash", {"command": "ls"}),))
    return ModelReply(text=f"You said: {said}")


@asynccontextmanager
async def console(folder: Path) -> AsyncIterator[tuple[BrowserPage, Service, PlatformServers]]:
    """Run the service with a price and a limit. Ann and a group on Telegram, and a colleague on Slack have written."""
    async with PlatformServers() as platforms, FakeModelServer(answer=answer) as model:
        config = with_model(model.base_url)
        entry = config["models"][0]
        config["models"] = [
            {**entry, "price": {"input": 1000.0, "output": 2000.0}},
            {**entry, "name": "other"},
        ]
        config["usage"] = {"limits": {"person": {"tokens_per_day": 1_000_000}}}
        denied = {"use": "allowlist", "config": {"denied_tools": ["bash"]}}
        config["guardrails"] = {"enabled": True, "provider": denied}
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
    async with console(tmp_path) as (page, service, platforms):
        await _people_are_found_by_name(page)
        await _what_is_remembered_is_corrected_and_forgotten(page)
        await _a_model_is_chosen_as_by_the_command(page, platforms)
        await _it_follows_changes_and_rows_under_the_pointer_stay(page, service, platforms)
        await _a_room_has_its_own_page(page)
        await _decisions_of_guardrails_name_people(page, platforms)
        assert page.errors == []


async def _people_are_found_by_name(page: BrowserPage) -> None:
    await page.click("People", "nav")
    await page.wait_for_text(HOSTILE, "main table")
    await page.evaluate("document.querySelector('main input[type=search]').focus()")
    await page.type("ONERROR")
    rows = "[...document.querySelectorAll('main tbody')].map(one => one.children.length).join()"
    await eventually(lambda: page.evaluate(f"{rows} === '1,0,0,0'"))
    await page.click(HOSTILE, "main table")
    await page.wait_for_text("Add a fact", "main")
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
    await page.point_at("nav")  # A row stays while the pointer is on it.
    await page.wait_for_text("Nothing found.", "main section")
    await page.click("Undo", "#notice")
    await page.wait_for_text("likes coffee", "main table")
    await page.click("Forget everything", "main")
    await page.wait_for_text("This cannot be undone.", "dialog")
    await page.click("Forget everything", "dialog")
    await page.wait_for_text("Nothing found.", "main section")


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


async def _it_follows_changes_and_rows_under_the_pointer_stay(
    page: BrowserPage, service: Service, platforms: PlatformServers
) -> None:
    row = "[...document.querySelectorAll('main tr')].find(one => one.innerText.startsWith('language'))"
    await page.evaluate(f"{row}.id = 'pointed'")
    await page.point_at("#pointed")
    top = await page.evaluate(f"{row}.getBoundingClientRect().top")
    ann = TelegramPrivateUser(platforms.telegram, user=ANN)
    await ann.send("/language zh")
    await eventually(lambda: page.evaluate(f"{row}.innerText.includes('zh')"))
    scope = await page.evaluate(
        f"fetch('../api/people/telegram/{ANN}').then(one => one.json()).then(one => one.memory_scope)"
    )
    async with service.client() as client:
        fact = {"content": "plays chess"}
        (
            await client.post("/api/memory/facts", params={"scope": scope}, json=fact)
        ).raise_for_status()
    await page.wait_for_text("1 new", "main")
    assert "plays chess" not in await page.text("main")
    assert await page.evaluate(f"{row}.getBoundingClientRect().top") == top
    await page.point_at("nav")
    await page.wait_for_text("plays chess", "main table")


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


async def _decisions_of_guardrails_name_people(
    page: BrowserPage, platforms: PlatformServers
) -> None:
    assert await page.evaluate("document.title") == "People – Parley"
    await page.click("Tools", "nav")
    await page.wait_for_text("Decisions of guardrails", "main")
    ann = TelegramPrivateUser(platforms.telegram, user=ANN)
    await ann.send("use bash")
    await ann.wait_for_message("You said: use bash")
    person = f"main a[href='#person/telegram%2F{ANN}']"
    await page.wait_for_text(f"User{ANN}", person)
    assert await page.evaluate(f'document.querySelector("{person} span").title') == str(ANN)
    group = TelegramTopicUser(platforms.telegram)
    await group.send("use bash")
    await group.wait_for_message("You said: use bash")
    room = await eventually(lambda: page.text("main a[href^='#room/']"))
    assert not room.lstrip("-").isdigit()


async def test_usage_shows_costs_with_names_and_exports_them(tmp_path: Path) -> None:
    async with console(tmp_path) as (page, _, platforms):
        await page.click("Usage", "nav")
        named = (
            f"[...document.querySelectorAll('main a')].some(one => one.innerText === {HOSTILE!r})"
        )
        await eventually(lambda: page.evaluate(named))
        shown = await page.text("main")
        assert all(one in shown for one in ("fake", "lead_agent", "telegram", "slack"))
        assert "$0.00" not in await page.text("main tbody")
        await _usage_follows_changes_and_rows_under_the_pointer_stay(page, platforms)
        bars = "document.querySelectorAll('main .chart rect.accent').length"
        assert await page.evaluate(bars) == 2  # One day in each chart, of costs and of tokens.
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


async def _usage_follows_changes_and_rows_under_the_pointer_stay(
    page: BrowserPage, platforms: PlatformServers
) -> None:
    rows = "[...document.querySelectorAll('main .table')].at(-1).querySelectorAll('tbody tr')"
    await page.evaluate(f"{rows}[0].id = 'pointed'")
    await page.point_at("#pointed")
    top = await page.evaluate("document.getElementById('pointed').getBoundingClientRect().top")
    count = await page.evaluate(f"{rows}.length")
    calls = "document.querySelector('main tbody td.number').innerText"
    before = int(await page.evaluate(calls))
    bo = TelegramPrivateUser(platforms.telegram, user=ANN + 1)
    await bo.send("hello")
    await bo.wait_for_message("You said: hello")
    await eventually(lambda: page.evaluate(f"Number({calls}) > {before}"))
    await page.wait_for_text("1 new", "main")
    assert await page.evaluate(f"{rows}.length") == count
    assert (
        await page.evaluate("document.getElementById('pointed').getBoundingClientRect().top") == top
    )
    await page.point_at("nav")
    await eventually(lambda: page.evaluate(f"{rows}.length === {count + 1}"))
