"""A person takes over a conversation in a real browser, writes as the bot, and hands it back."""

from pathlib import Path

from bus.locales.en import ENGLISH
from tests.browser import BrowserPage, needs_chromium
from tests.eventually import eventually
from tests.fakes.model import FakeModelServer
from tests.journeys.console_views import sign_in
from tests.journeys.service import Service
from tests.journeys.test_console import HOSTILE, console
from tests.people.slack import SlackDirectUser

pytestmark = needs_chromium

PANEL = "main section[aria-label='Who answers']"
HOSTILE_TEXT = f"{HOSTILE} [x](javascript:document.title=3) \u202egnp.exe\u202c " + "W" * 10_000
_FITS = "document.documentElement.scrollWidth <= innerWidth"


async def test_an_operator_takes_a_conversation_over(tmp_path: Path) -> None:
    async with console(tmp_path) as (page, service, platforms, model):
        person = SlackDirectUser(platforms.slack)
        await person.send("hi")
        await person.wait_for_message("You said: hi")
        await sign_in(page, (service.home / "admin_token").read_text().strip())
        await page.wait_for_text("connected", '[data-channel="slack"]')
        page.errors.clear()  # The refused request before the sign-in.
        await _open_conversation(page)
        await page.click("Take over", PANEL)
        await page.wait_for_text("answers here, and the agent is silent.", PANEL)
        await person.wait_for_message(ENGLISH.taken_over)
        await _people_and_the_operator_talk(page, person, model)
        await _it_fits_a_phone_and_speaks_chinese(page)
        await _another_page_shows_who_answers(page)
        await _the_agent_is_back(page, person)
        assert page.errors == []
        await _who_may_only_read_sees_no_button(page, service)


async def _open_conversation(page: BrowserPage) -> None:
    await page.click("Conversations", "nav")
    await page.wait_for_text("Waiting", "main thead")
    await page.click(await page.text("main td a"), "main")
    await page.wait_for_text("Take over", PANEL)


async def _people_and_the_operator_talk(
    page: BrowserPage, person: SlackDirectUser, model: FakeModelServer
) -> None:
    calls = len(model.requests)
    await page.evaluate(f"document.querySelector(`{PANEL} textarea`).focus()")
    await page.type("Ann is **he")
    await person.send(HOSTILE_TEXT)
    # The person's message appears, and the operator's draft stays.
    await page.wait_for_text("What the agent will read", PANEL)
    await page.evaluate(f"document.querySelector(`{PANEL} details`).open = true")
    await page.wait_for_text("<script>document.title = 2</script>", PANEL)
    await page.type("re**")
    await page.click("Send as the bot", PANEL)
    await person.wait_for_message("Ann is **here**")
    await eventually(lambda: page.evaluate(f"!document.querySelector(`{PANEL} textarea`).value"))
    await page.wait_for_text("Operator, writing as you: Ann is **here**", PANEL)
    assert len(model.requests) == calls
    assert await page.evaluate("document.title") == "Conversations – Parley"


async def _it_fits_a_phone_and_speaks_chinese(page: BrowserPage) -> None:
    await page.resize(390, 844)
    await eventually(lambda: page.evaluate(_FITS))
    await page.resize(1280, 900)
    keys = "import('./texts/zh.mjs').then((zh) => import('./texts/en.mjs').then((en) => "
    same = "Object.keys(en.texts.takeover).filter((key) => !zh.texts.takeover[key])))"
    assert await page.evaluate(keys + same) == []


async def _another_page_shows_who_answers(page: BrowserPage) -> None:
    await page.click("Messages", "nav")
    await page.wait_for_text("a person answers", "main table")
    await page.click("Conversations", "nav")
    await page.wait_for_text("Waiting", "main thead")
    await page.wait_for_text("a person answers", "main table")
    await page.click(await page.text("main td a"), "main")
    await page.wait_for_text("Hand back", PANEL)


async def _the_agent_is_back(page: BrowserPage, person: SlackDirectUser) -> None:
    await page.click("Hand back", PANEL)
    await page.wait_for_text("The agent answers again.", "#notice")
    await page.click("Undo", "#notice")
    await page.click("Hand back", PANEL)
    await page.wait_for_text("Take over", PANEL)
    await eventually(lambda: person.bot_messages().count(ENGLISH.handed_back) == 2)
    await person.send("and now?")
    await person.wait_for_message("You said: and now?")


async def _who_may_only_read_sees_no_button(page: BrowserPage, service: Service) -> None:
    async with service.client() as client:
        made = await client.post("/api/tokens", json={"name": "reader", "scope": "read"})
    await page.click("Sign out")
    await sign_in(page, str(made.json()["token"]))
    await page.wait_for_text("You said: and now?", "main")  # The same address.
    assert "Take over" not in await page.text("main")
