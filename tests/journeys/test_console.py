"""The console in a real browser with the real service: what an administrator sees and can do."""

import re
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from tests.browser import BrowserPage, needs_chromium, open_browser
from tests.eventually import eventually
from tests.fakes.model import FakeModelServer, ModelReply
from tests.journeys.console_views import sign_in
from tests.journeys.service import Service, serving, with_model
from tests.people.platforms import PlatformServers
from tests.people.slack import SlackDirectUser
from tests.people.telegram import TelegramPrivateUser

pytestmark = needs_chromium

HOSTILE = '<img src=x onerror="document.title = 1"><script>document.title = 2</script>'
LONG_WORD = "x" * 200
_IS_TOO_WIDE = """(() => {
  const table = document.querySelector('main .scroll');
  return table.scrollWidth > table.clientWidth;
})()"""


@asynccontextmanager
async def console(
    folder: Path,
    *,
    has_broken_channel: bool = False,
    telegram: Mapping[str, Any] | None = None,
) -> AsyncIterator[tuple[BrowserPage, Service, PlatformServers, FakeModelServer]]:
    """Run the service on Slack and Telegram, where strangers need approval, and open its address in a browser.

    `telegram`: further settings of that channel.
    """
    async with PlatformServers() as platforms, FakeModelServer() as model:
        careful = {k: v for k, v in platforms.channels["telegram"].items() if k != "dm_policy"}
        careful |= telegram or {}
        channels = {"telegram": careful, "slack": platforms.channels["slack"]}
        broken = {"old": {**careful, "platform": "telegram", "bot_token": "1:revoked"}}
        config = {
            **with_model(model.base_url),
            "channels": {**channels, **(broken if has_broken_channel else {})},
        }
        async with serving(folder, config, *channels) as service, open_browser(folder) as page:
            await page.open(service.url)
            yield page, service, platforms, model


async def test_an_administrator_signs_in_and_looks_after_the_service(tmp_path: Path) -> None:
    """Check all actions of an administrator with one service and one browser, because they take seconds to start."""
    async with console(tmp_path) as (page, service, platforms, model):
        await _a_wrong_token_is_refused_and_the_right_one_shows_the_channels(page, service)
        page.errors.clear()  # These are the refused requests.
        await _a_stranger_is_approved_and_then_answered(page, platforms)
        await _messages_and_threads_are_shown_as_text(page, platforms)
        await _two_quick_clicks_approve_one_person(page, platforms)
        await _a_failed_turn_is_shown_as_failed(page, model, platforms)
        await _a_failed_delivery_is_sent_again(page, platforms)
        await _a_broadcast_is_counted_and_then_sent(page, platforms)
        assert page.errors == []
        await _it_says_when_the_service_is_gone_and_finds_it_again(page, service)
        await _a_token_that_may_only_read_changes_nothing(page, service)


async def _a_wrong_token_is_refused_and_the_right_one_shows_the_channels(
    page: BrowserPage, service: Service
) -> None:
    await sign_in(page, "wrong")
    await page.wait_for_text("The admin token is wrong.")
    await sign_in(page, (service.home / "admin_token").read_text().strip())
    await page.wait_for_text("connected", '[data-channel="slack"]')
    assert "connected" in await page.text('[data-channel="telegram"]')
    await page.wait_for_text("ready", "#ready")


async def _a_stranger_is_approved_and_then_answered(
    page: BrowserPage, platforms: PlatformServers
) -> None:
    stranger = TelegramPrivateUser(platforms.telegram, user=7001)
    await stranger.send("let me in")
    await stranger.wait_for_message("code")
    await page.click("People", "nav")
    await page.click("Approve")
    await page.wait_for_text("is approved.", "#notice")
    await stranger.send("now?")
    await stranger.wait_for_message("You said: now?")
    await page.click("Revoke")
    await page.wait_for_text("no longer has access.", "#notice")


async def _messages_and_threads_are_shown_as_text(
    page: BrowserPage, platforms: PlatformServers
) -> None:
    person = SlackDirectUser(platforms.slack)
    await person.send(LONG_WORD)
    await person.wait_for_message(f"You said: {LONG_WORD}")
    await person.send(HOSTILE)
    await person.wait_for_message(f"You said: {HOSTILE[:4]}")
    await page.click("Messages", "nav")
    await page.wait_for_text(HOSTILE, "main table")
    await page.wait_for_text(LONG_WORD, "main table")
    assert await page.evaluate(_IS_TOO_WIDE) is False
    await page.click("Deliveries", "nav")
    await page.wait_for_text(f"You said: {HOSTILE}")
    assert await page.evaluate(_IS_TOO_WIDE) is False
    await page.click("Conversations", "nav")
    await page.wait_for_text("Waiting", "main thead")
    await page.click(await page.text("main td a"), "main")
    await page.wait_for_text(HOSTILE, "main article.human")
    await page.wait_for_text(f"You said: {HOSTILE}", "main article.ai")
    assert await page.evaluate("document.title") == "Conversations – Parley"


async def _two_quick_clicks_approve_one_person(
    page: BrowserPage, platforms: PlatformServers
) -> None:
    for user in (7003, 7004):
        stranger = TelegramPrivateUser(platforms.telegram, user=user)
        await stranger.send("let me in")
        await stranger.wait_for_message("code")
    await page.click("People", "nav")
    buttons = "[...document.querySelectorAll('main tr:not(.gone) button')].filter(one => one.innerText === 'Approve')"
    await eventually(lambda: page.evaluate(f"{buttons}.length === 2"))
    await page.click_twice("Approve", "main td")
    await page.wait_for_text("is approved.", "#notice")
    # Reload the list, in case the second click had an effect.
    await page.click("Overview", "nav")
    await page.click("People", "nav")
    await eventually(lambda: page.evaluate(f"{buttons}.length > 0"))
    assert await page.evaluate(f"{buttons}.length") == 1


async def _a_failed_turn_is_shown_as_failed(
    page: BrowserPage, model: FakeModelServer, platforms: PlatformServers
) -> None:
    model.reply(ModelReply(status=400))
    person = SlackDirectUser(platforms.slack)
    await person.send("this fails")
    await person.wait_for_message("rejected the request")
    await page.click("Messages", "nav")
    row = "[...document.querySelectorAll('main tr')].find(one => one.innerText.includes('this fails'))"
    await eventually(lambda: page.evaluate(f"!!({row})?.querySelector('.pill.bad')"))
    await page.click("Answer again", "main")
    await page.click("Answer again", "dialog")
    await person.wait_for_message("You said: this fails")


async def _a_failed_delivery_is_sent_again(page: BrowserPage, platforms: PlatformServers) -> None:
    platforms.slack.fail("chat.postMessage", error="channel_not_found")
    person = SlackDirectUser(platforms.slack)
    await person.send("are you there")
    await page.evaluate("location.hash = 'deliveries?state=failed'")
    await page.wait_for_text("Slack does not know this channel")
    await page.click("Send again")
    await person.wait_for_message("You said: are you there")
    await page.point_at("nav")  # A row stays while the pointer is on it.
    await page.wait_for_text("Nothing found.")


async def _a_broadcast_is_counted_and_then_sent(
    page: BrowserPage, platforms: PlatformServers
) -> None:
    await page.click("Broadcast", "nav")
    await page.wait_for_text("Count chats")
    await page.evaluate("document.querySelector('main textarea').focus()")
    await page.type("Down tonight")
    await page.click("Count chats")
    # The person on Telegram was revoked.
    shown = await page.wait_for_text("Send to 1 chat", "main")
    assert re.search(r"telegram\s+0\s+1", shown)
    await page.click("Send to 1 chat")
    await page.wait_for_text("It is sent to 1 chat.", "#notice")
    await SlackDirectUser(platforms.slack).wait_for_message("Down tonight")
    await eventually(lambda: page.evaluate("document.querySelector('main textarea').value === ''"))


async def _it_says_when_the_service_is_gone_and_finds_it_again(
    page: BrowserPage, service: Service
) -> None:
    await page.click("Overview", "nav")
    await page.wait_for_text("connected", '[data-channel="slack"]')
    await service.kill()
    await page.wait_for_text("unreachable", "#ready")
    assert "connected" in await page.text('[data-channel="slack"]')  # The last data stays visible.
    await service.start()
    await page.wait_for_text("ready", "#ready")


async def _a_token_that_may_only_read_changes_nothing(page: BrowserPage, service: Service) -> None:
    async with service.client() as client:
        made = await client.post("/api/tokens", json={"name": "screen", "scope": "read"})
    await page.click("Sign out")
    await sign_in(page, made.json()["token"])
    await page.wait_for_text("connected", '[data-channel="slack"]')
    assert "Sessions" not in await page.text("nav")
    buttons = "[...document.querySelectorAll('main button')].map(one => one.innerText).join()"
    assert await page.evaluate(buttons) == "Look again"
    await page.open(f"{service.url}/console/#people")  # The session's cookie is still there.
    await page.wait_for_text("Waiting for approval")
    await page.wait_for_text("Rooms")


async def test_errors_in_the_console_are_shown_and_can_be_dismissed(tmp_path: Path) -> None:
    """Check an administrator's mistakes, then a phone, with one service and one browser."""
    async with console(tmp_path, has_broken_channel=True) as (page, service, platforms, _):
        await _text_that_is_no_token_is_refused(page, service)
        await sign_in(page, (service.home / "admin_token").read_text().strip())
        await page.wait_for_text("failed", '[data-channel="old"]')
        await page.wait_for_text("1 problem", "#ready")
        await page.wait_for_text("disabled", '[data-channel="feishu"]')
        assert "false" not in await page.text('[data-channel="feishu"]')
        await _addresses_that_name_nothing_show_something(page)
        await _changes_appear_and_rows_under_the_pointer_stay(page, platforms)
        await _people_who_wait_stay_under_the_pointer(page, platforms)
        await _everything_fits_on_a_phone(page)
        await _a_draft_ends_with_the_session(page, service)
        await _nothing_is_silent_while_the_service_is_gone(page, service)


async def _text_that_is_no_token_is_refused(page: BrowserPage, service: Service) -> None:
    await sign_in(page, "\u0442\u043e\u043a\u0435\u043d")
    await page.wait_for_text("This is not a token", "form .error")
    await page.open(f"{service.url}/console/?again")
    assert await page.evaluate("sessionStorage.length") == 0


async def _addresses_that_name_nothing_show_something(page: BrowserPage) -> None:
    await page.evaluate("location.hash = 'conversation/%zz'")
    await page.wait_for_text("Invalid thread ID", "main")
    await page.evaluate("location.hash = 'toString'")
    await page.wait_for_text("Look again", "main")


async def _changes_appear_and_rows_under_the_pointer_stay(
    page: BrowserPage, platforms: PlatformServers
) -> None:
    await page.click("Messages", "nav")
    await page.wait_for_text("Nothing found.", "main")
    person = SlackDirectUser(platforms.slack)
    await person.send("first")
    await page.wait_for_text("first", "main tbody")
    await page.point_at("main tbody tr")
    await person.send("second")
    await page.wait_for_text("1 new", "main")
    assert "second" not in await page.text("main tbody")
    await page.click("1 new", "main")
    assert "second" in await page.wait_for_text("first", "main tbody")
    await page.evaluate("document.querySelector('main tbody tr').focus()")
    await page.press("ArrowDown")
    assert "first" in await page.evaluate("document.activeElement.innerText")


async def _people_who_wait_stay_under_the_pointer(
    page: BrowserPage, platforms: PlatformServers
) -> None:
    stranger = TelegramPrivateUser(platforms.telegram, user=7009)
    await stranger.send("let me in")
    await stranger.wait_for_message("code")
    await page.click("People", "nav")
    approve = (
        "[...document.querySelectorAll('main button')].find(one => one.innerText === 'Approve')"
    )
    await eventually(lambda: page.evaluate(f"!!{approve}"))
    await page.evaluate(f"{approve}.id = 'pointed'")
    await page.point_at("#pointed")
    top = await page.evaluate(f"{approve}.getBoundingClientRect().top")
    await SlackDirectUser(platforms.slack, user="U5USER").send("hello")
    await page.wait_for_text("1 new", "main")
    assert "U5USER" not in await page.text("main")
    assert await page.evaluate(f"{approve}.getBoundingClientRect().top") == top
    await page.point_at("nav")
    await page.wait_for_text("U5USER", "main table")


async def _everything_fits_on_a_phone(page: BrowserPage) -> None:
    await page.resize(390, 800)
    assert await page.evaluate("document.querySelector('header').offsetHeight") < 200
    await page.click("Broadcast", "nav")
    await page.wait_for_text("Count chats", "main")
    assert await page.evaluate("document.documentElement.scrollWidth") == 390


async def _a_draft_ends_with_the_session(page: BrowserPage, service: Service) -> None:
    await page.click("Broadcast", "nav")
    await page.wait_for_text("Count chats", "main")
    await page.evaluate("document.querySelector('main textarea').focus()")
    await page.type("Not for the next one")
    await page.click("Sign out")
    await sign_in(page, (service.home / "admin_token").read_text().strip())
    await page.wait_for_text("Count chats", "main")
    assert await page.evaluate("document.querySelector('main textarea').value") == ""


async def _nothing_is_silent_while_the_service_is_gone(page: BrowserPage, service: Service) -> None:
    await service.kill()
    await page.click("Messages", "nav")
    await page.wait_for_text("Parley does not answer.", "main")
    await page.click("Sign out")
    await sign_in(page, "any token")
    await page.wait_for_text("Parley does not answer.", "form .error")
