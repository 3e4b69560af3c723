"""A conversation as a timeline in the console: an operator finds why a message got no answer, and repeats it."""

from pathlib import Path

from tests.browser import BrowserPage, needs_chromium
from tests.eventually import eventually
from tests.fakes.model import FakeModelServer, ModelReply, ToolCall
from tests.journeys.console_views import sign_in
from tests.journeys.service import Service
from tests.journeys.test_console import HOSTILE, console
from tests.people.platforms import PlatformServers
from tests.people.slack import SlackDirectUser
from tests.people.telegram import TelegramPrivateUser

pytestmark = needs_chromium

NAME = "Ann <b>"
_NEWEST = "document.querySelector('main tbody tr')"
TIMELINE = "main table[aria-label='Conversation']"


async def test_an_operator_finds_why_a_message_got_no_answer_and_repeats_it(tmp_path: Path) -> None:
    """Check the three reasons with one service and one browser, because they take seconds to start."""
    async with console(tmp_path) as (page, service, platforms, model):
        await sign_in(page, (service.home / "admin_token").read_text().strip())
        await page.wait_for_text("connected", '[data-channel="slack"]')
        platforms.slack.person("U1ANN", name="ann", profile={"display_name": NAME})
        page.errors.clear()  # This is the refused request before the sign-in.
        await _a_failed_model_is_named_and_the_message_is_answered_again(page, model, platforms)
        await _a_running_answer_is_stopped_and_begun_with_other_words(page, model, platforms)
        await _a_stranger_was_refused(page, platforms)
        await _filters_complete_names(page)
        await _tools_files_and_secrets_are_shown_safely(page, model, platforms)
        await _a_conversation_is_forked_exported_and_forgotten(page, service)
        await _everything_fits_on_a_phone(page)
        assert page.errors == []
        await _a_token_that_may_only_read_has_no_buttons(page, service)


async def _a_failed_model_is_named_and_the_message_is_answered_again(
    page: BrowserPage, model: FakeModelServer, platforms: PlatformServers
) -> None:
    person = SlackDirectUser(platforms.slack)
    answer, model.answer = model.answer, lambda _: ModelReply(status=500)
    await person.send("why no answer?")
    await person.wait_for_message("server")
    model.answer = answer
    # Three clicks: the messages, the message, its explanation.
    await page.click("Messages", "nav")
    await page.wait_for_text("OpenAIAPIError: HTTP 500", "main table")
    await _open_row(page, "why no answer?")
    await page.wait_for_text("OpenAIAPIError: HTTP 500", TIMELINE)
    await _open_explanation(page)
    shown = await page.wait_for_text("Waited", f"{TIMELINE} details")
    assert "private chat" in shown
    await page.click("Answer again", TIMELINE)
    await page.click("Answer again", "dialog")
    await person.wait_for_message("You said: why no answer?")
    await page.point_at("nav")
    await page.wait_for_text("You said: why no answer?", f"{TIMELINE} article.ai")


async def _a_running_answer_is_stopped_and_begun_with_other_words(
    page: BrowserPage, model: FakeModelServer, platforms: PlatformServers
) -> None:
    person = SlackDirectUser(platforms.slack)
    answer, model.answer = model.answer, lambda _: ModelReply(text="one two", hang_after=1)
    await person.send("count slowly")
    await page.wait_for_text("count slowly", f"{TIMELINE} article.human")
    await page.click("Stop", TIMELINE)
    await person.wait_for_message("An administrator stopped this answer.")
    model.answer = answer
    await page.point_at("nav")
    await eventually(lambda: page.evaluate(f"!!{_NEWEST}.querySelector('[data-state=stopped]')"))
    await page.evaluate(f"{_NEWEST}.querySelector('.who button').click()")
    await page.wait_for_text("Answer again", "dialog")
    await page.evaluate("document.querySelector('dialog textarea').select()")
    await page.type("count quickly")
    await page.click("Answer again", "dialog")
    await person.wait_for_message("You said: count quickly")
    await page.wait_for_text("You said: count quickly", f"{TIMELINE} article.ai")


async def _open_row(page: BrowserPage, text: str) -> None:
    row = f"[...document.querySelectorAll('main tr.opens')].find(one => one.innerText.includes({text!r}))"
    await eventually(lambda: page.evaluate(f"!!{row}"))
    await page.evaluate(f"{row}.click()")


async def _open_explanation(page: BrowserPage) -> None:
    """Click on "Why" of the newest message."""
    await page.evaluate("document.querySelector('main details:not([open]) summary').click()")


async def _a_stranger_was_refused(page: BrowserPage, platforms: PlatformServers) -> None:
    stranger = TelegramPrivateUser(platforms.telegram, user=7101)
    await stranger.send("may I come in?")
    await stranger.wait_for_message("code")
    await page.click("Messages", "nav")
    shown = await page.wait_for_text("The person has to be approved.", "main table")
    assert "may I come in?" in shown


async def _filters_complete_names(page: BrowserPage) -> None:
    """Choose a person, then a place, by name. The address contains their IDs."""
    offered = f"{NAME} · slack"

    async def choose(name: str, value: str) -> None:
        field = f"document.querySelector('main input[name={name}]')"
        options = f"[...{field}.list.options].map(one => one.value)"
        await eventually(lambda: page.evaluate(options), lambda found: offered in found)
        chosen = f"{field}.value = {offered!r}; {field}.dispatchEvent(new Event('input'))"
        await page.evaluate(chosen)
        await eventually(
            lambda: page.evaluate("location.hash"), lambda found: f"{name}={value}" in found
        )

    await choose("person", "U1ANN")
    await choose("chat", "DU1ANN")
    await eventually(lambda: page.text("main table"), lambda shown: "may I come in?" not in shown)
    assert f"slack · {NAME}" in await page.text("main table")


async def _tools_files_and_secrets_are_shown_safely(
    page: BrowserPage, model: FakeModelServer, platforms: PlatformServers
) -> None:
    model.reply(
        ModelReply(calls=(ToolCall("ls", {"path": HOSTILE, "api_key": "hush-hush"}),)),
        f"{HOSTILE} [bad](javascript:alert(1)) token=abcdefghij",
    )
    person = SlackDirectUser(platforms.slack)
    await person.send("secret\u202e " + "x" * 10_000)
    await person.wait_for_message("bad")
    await page.click("Messages", "nav")
    await _open_row(page, "secret")
    await page.wait_for_text("token=•••", f"{TIMELINE} article.ai")
    await _open_explanation(page)
    shown = await page.wait_for_text("Last sent", f"{TIMELINE} details")
    assert "ls" in shown
    assert await page.evaluate(f"document.querySelectorAll({TIMELINE + ' img'!r}).length") == 0
    await page.click("Event", TIMELINE)
    await page.wait_for_text("event_id", "dialog")
    await page.click("✕", "dialog")
    await page.click("Next prompt", TIMELINE)
    await page.wait_for_text("conversation", "dialog")
    assert "hush-hush" not in await page.evaluate("document.body.textContent")
    await page.click("✕", "dialog")
    assert await page.evaluate("document.title") == "Conversations – Parley"


async def _a_conversation_is_forked_exported_and_forgotten(
    page: BrowserPage, service: Service
) -> None:
    for label in ("Markdown", "JSON"):
        find = f"[...document.querySelectorAll('main a[download]')].find((one) => one.innerText === '{label}')"
        text = await page.evaluate(f"fetch({find}.href).then((one) => one.text())")
        assert "why no answer?" in text
    await page.click("Forget", "main .head")
    await page.wait_for_text("for good", "dialog")
    await page.click("Forget", "dialog .buttons")
    await page.wait_for_text("The memory is deleted.", "#notice")
    audit = service.home / "audit.log"
    await eventually(audit.read_text, lambda text: "DELETE /api/memory" in text)
    back = await page.evaluate("location.hash")
    await page.click("Fork in the chat", "main .head")
    await page.wait_for_text("You said: why no answer?", "main .log")
    await page.evaluate(f"location.hash = {back!r}")
    await page.wait_for_text("why no answer?", TIMELINE)


async def _everything_fits_on_a_phone(page: BrowserPage) -> None:
    await page.resize(390, 800)
    await _open_explanation(page)
    await page.wait_for_text("delivered", f"{TIMELINE} details")
    assert await page.evaluate("document.documentElement.scrollWidth") == 390
    await page.resize(1280, 900)


async def _a_token_that_may_only_read_has_no_buttons(page: BrowserPage, service: Service) -> None:
    back = await page.evaluate("location.hash")
    async with service.client() as client:
        made = await client.post("/api/tokens", json={"name": "reader", "scope": "read"})
    await page.click("Sign out")
    await sign_in(page, made.json()["token"])
    await page.evaluate(f"location.hash = {back!r}")
    await page.wait_for_text("why no answer?", TIMELINE)
    shown = await page.text("main")
    assert "Answer again" not in shown
    assert "Forget" not in shown
