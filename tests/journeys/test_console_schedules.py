"""The console's schedules and past broadcasts in a real browser with the real service, with hostile words."""

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from tests.browser import BrowserPage, needs_chromium, open_browser
from tests.eventually import eventually
from tests.fakes.model import FakeModelServer
from tests.journeys.console_views import sign_in_as_admin
from tests.journeys.service import Service, serving, with_model
from tests.journeys.test_console_agents import HOSTILE, click_in_row, fill, until_saved
from tests.people.platforms import PlatformServers
from tests.people.slack import SlackDirectUser

pytestmark = needs_chromium

PROMPT = f"Tell the news {HOSTILE} {'W' * 2000}"


@asynccontextmanager
async def console(
    folder: Path,
) -> AsyncIterator[tuple[BrowserPage, Service, SlackDirectUser]]:
    """Run the service on Slack, where a person has written, and sign in to its console."""
    async with PlatformServers() as platforms, FakeModelServer() as model:
        config = {**with_model(model.base_url), "channels": {"slack": platforms.channels["slack"]}}
        async with serving(folder, config, "slack") as service, open_browser(folder) as page:
            person = SlackDirectUser(platforms.slack)
            await person.send("hello")
            await person.wait_for_message("You said: hello")
            await page.open(service.url)
            await sign_in_as_admin(page, service)
            yield page, service, person


async def schedules(service: Service) -> list[dict[str, Any]]:
    async with service.client() as client:
        return list((await client.get("/api/schedules")).json()["schedules"])


async def test_an_administrator_looks_after_schedules_and_broadcasts(tmp_path: Path) -> None:
    async with console(tmp_path) as (page, service, person):
        await _a_schedule_is_created_for_a_chat(page, service)
        await _it_runs_now_and_shows_run_and_delivery(page, person)
        await _pausing_changing_and_deleting_are_undone(page, service)
        await _schedules_of_another_chat_are_left_out(page, service)
        await _past_broadcasts_show_their_deliveries(page, service, person)
        await _a_broadcast_of_files_is_sent(page, person)
        assert await page.evaluate("document.title") == "Broadcast – Parley"
        # On a loaded machine, the service may say that it is not ready.
        assert [one for one in page.errors if "health/ready" not in one] == []


async def _a_schedule_is_created_for_a_chat(page: BrowserPage, service: Service) -> None:
    await page.click("Schedules", "nav")
    await page.wait_for_text("Nothing found.", "main")
    await page.click("New schedule", "main")
    await fill(page, prompt=PROMPT, expression="never", timezone="Asia/Tokyo")
    await page.click("Save", "dialog")
    await eventually(lambda: page.text("dialog .error"))
    page.errors.clear()  # the refused request
    await fill(page, expression="0 9 * * *")
    await page.click("Save", "dialog")
    await until_saved(page)
    await page.wait_for_text("Asia/Tokyo", "main table")
    await page.wait_for_text("9:00", "main table")  # Its own zone, not the browser's.
    assert HOSTILE in await page.text("main table")
    [made] = await schedules(service)
    assert (made["prompt"], made["timezone"]) == (PROMPT, "Asia/Tokyo")


async def _it_runs_now_and_shows_run_and_delivery(
    page: BrowserPage, person: SlackDirectUser
) -> None:
    await click_in_row(page, "Tell the news", "Run now")
    await person.wait_for_message("Tell the news")
    await page.point_at("nav")  # A row stays while the pointer is on it.
    await page.wait_for_text("answered", "main table")
    await page.wait_for_text("delivered", "main table")
    await click_in_row(page, "Tell the news", "Runs")
    await page.wait_for_text("answered", "dialog")
    await page.click("✕", "dialog")


async def _pausing_changing_and_deleting_are_undone(page: BrowserPage, service: Service) -> None:
    async def is_enabled() -> bool:
        return bool((await schedules(service))[0]["enabled"])

    async def expression() -> str:
        return str((await schedules(service))[0]["expression"])

    async def count() -> int:
        return len(await schedules(service))

    await click_in_row(page, "Tell the news", "Pause")
    await page.wait_for_text("paused", "main table")
    assert not await is_enabled()
    await page.click("Undo", "#notice")
    await eventually(is_enabled)
    await click_in_row(page, "Tell the news", "Edit")
    await fill(page, expression="0 10 * * *")
    await page.click("Save", "dialog")
    await until_saved(page)
    await eventually(expression, lambda shown: shown == "0 10 * * *")
    await page.click("Undo", "#notice")
    await eventually(expression, lambda shown: shown == "0 9 * * *")
    await click_in_row(page, "Tell the news", "Delete")
    await eventually(count, lambda shown: shown == 0)
    await page.click("Undo", "#notice")
    await eventually(count, lambda shown: shown == 1)
    assert await expression() == "0 9 * * *"


async def _schedules_of_another_chat_are_left_out(page: BrowserPage, service: Service) -> None:
    [made] = await schedules(service)
    await page.evaluate("location.hash = 'schedules?chat=C0OTHER'")
    await page.wait_for_text("Nothing found.", "main")
    await page.evaluate(f"location.hash = 'schedules?chat=' + {json.dumps(made['chat'])}")
    await page.wait_for_text("Tell the news", "main table")


async def _past_broadcasts_show_their_deliveries(
    page: BrowserPage, service: Service, person: SlackDirectUser
) -> None:
    async with service.client() as client:
        sent = {"text": f"Down tonight {HOSTILE}", "key": "tonight"}
        await client.post("/api/channels/broadcast", json=sent)
    await person.wait_for_message("Down tonight")
    await page.click("Broadcast", "nav")
    await page.wait_for_text("Down tonight <img src=x onerror", "main table")
    await page.wait_for_text("delivered 1", "main table")


async def _a_broadcast_of_files_is_sent(page: BrowserPage, person: SlackDirectUser) -> None:
    await page.click("Count chats", "main")
    await page.wait_for_text("Write the message first.", "main form")
    await page.evaluate(
        f"""(() => {{
          const given = new DataTransfer(), field = document.querySelector('main input[type=file]');
          for (const one of ['map.png', {json.dumps(HOSTILE)}]) given.items.add(new File(['1,2'], one));
          field.files = given.files;
          field.dispatchEvent(new Event('input', {{ bubbles: true }}));
        }})()"""
    )
    await page.click("Count chats", "main")
    await page.click("Send to 1 chat", "main")
    await page.wait_for_text("It is sent to 1 chat.", "#notice")
    await eventually(lambda: len([one for one in person.shown() if one.file]) == 2)
    await page.wait_for_text("[map.png]", "main table")
    await page.wait_for_text("delivered 2", "main table")
