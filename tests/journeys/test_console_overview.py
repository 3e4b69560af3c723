"""The console's overview in a real browser: problems, how to fix them, waiting work, and how much the service does."""

from pathlib import Path

from tests.browser import BrowserPage, needs_chromium, open_browser
from tests.eventually import eventually
from tests.fakes.model import FakeModelServer, ModelReply
from tests.journeys.console_views import sign_in
from tests.journeys.service import serving, with_model
from tests.people.platforms import PlatformServers
from tests.people.slack import SlackDirectUser
from tests.people.telegram import TelegramPrivateUser

pytestmark = needs_chromium

HOSTILE = "<img src=x onerror=document.title=1>\u202e" + "x" * 10_000


async def test_an_operator_sees_what_is_wrong_and_where_to_look(tmp_path: Path) -> None:
    async with PlatformServers() as platforms, FakeModelServer() as model:
        telegram = {k: v for k, v in platforms.channels["telegram"].items() if k != "dm_policy"}
        channels = {
            "telegram": telegram,
            "slack": platforms.channels["slack"],
            "old": {**telegram, "platform": "telegram", "bot_token": "1:revoked"},
            "older": {**telegram, "platform": "telegram", "bot_token": "2:revoked"},
        }
        config = {**with_model(model.base_url), "channels": channels, HOSTILE: 1}
        async with (
            serving(tmp_path, config, "telegram", "slack") as service,
            open_browser(tmp_path) as page,
        ):
            await page.open(service.url)
            await sign_in(page, (service.home / "admin_token").read_text().strip())
            await page.wait_for_text("Look again", "main")
            page.errors.clear()  # Before the sign-in, a request was refused.
            await _broken_channels_are_problems_with_a_fix(page)
            await _failures_and_people_who_wait_are_links(page, platforms, model)
            await _figures_follow_what_happens(page)
            await _it_fits_on_a_phone_and_nothing_ran(page)
            assert page.errors == []


async def _broken_channels_are_problems_with_a_fix(page: BrowserPage) -> None:
    await page.wait_for_text("2 problems", "#ready")  # although two channels work
    shown = await page.wait_for_text("old", ".findings")
    assert "@BotFather" in shown
    assert "→" in shown
    first = await page.evaluate("document.querySelector('.finding').dataset.severity")
    assert first == "problem"
    await page.click("Look again", ".findings")
    await page.wait_for_text("bot_token", ".findings")


async def _failures_and_people_who_wait_are_links(
    page: BrowserPage, platforms: PlatformServers, model: FakeModelServer
) -> None:
    model.reply(ModelReply(status=400))
    person = SlackDirectUser(platforms.slack)
    await person.send("this fails")
    await person.wait_for_message("rejected the request")
    await person.send("this works")
    await person.wait_for_message("You said: this works")
    platforms.slack.fail("chat.postMessage", error="channel_not_found")
    await person.send("this does not arrive")
    stranger = TelegramPrivateUser(platforms.telegram, user=7001)
    await stranger.send("let me in")
    await stranger.wait_for_message("code")

    def number(href: str) -> str:
        return f"document.querySelector('main a.number[href=\"{href}\"] strong')?.innerText"

    for href in ("#messages?state=failed", "#deliveries?state=failed", "#people"):
        await eventually(lambda href=href: page.evaluate(f"{number(href)} === '1'"))  # type: ignore[misc]
    red = "[...document.querySelectorAll('main a.number.bad')].map(one => one.hash).join(' ')"
    assert await page.evaluate(red) == "#messages?state=failed #deliveries?state=failed"
    await _open(page, "#messages?state=failed")
    await page.wait_for_text("this fails", "main tbody")
    assert "this works" not in await page.text("main tbody")
    await page.click("Overview", "nav")
    await _open(page, "#deliveries?state=failed")
    await page.wait_for_text("Slack does not know this channel", "main")
    await page.click("Overview", "nav")


async def _open(page: BrowserPage, href: str) -> None:
    link = f"document.querySelector('main a.number[href=\"{href}\"]')"
    await eventually(lambda: page.evaluate(f"!!{link}"))
    await page.evaluate(f"{link}.click()")


async def _figures_follow_what_happens(page: BrowserPage) -> None:
    shown = await page.wait_for_text("answered 2", '[data-figure="messages"]')
    assert "failed 1" in shown
    for name in ("sign", "answer"):
        await page.wait_for_text(" s", f'[data-figure="{name}"]')
    await page.evaluate("document.querySelector('select[name=span]').value = 'hour'")
    await page.evaluate(
        "document.querySelector('select[name=span]').dispatchEvent(new Event('change'))"
    )
    await eventually(lambda: page.evaluate("location.hash === '#overview?span=hour'"))
    columns = "document.querySelectorAll('[data-figure=messages] svg g').length"
    await eventually(lambda: page.evaluate(f"{columns} === 30"))
    title = (
        "[...document.querySelectorAll('[data-figure=messages] title')].map(one => one.textContent)"
    )
    titles = await page.evaluate(title)
    assert any("answered: " in one and "failed: " in one for one in titles)


async def _it_fits_on_a_phone_and_nothing_ran(page: BrowserPage) -> None:
    assert "onerror" in await page.text(".findings")  # The misspelled key, as text.
    await page.resize(390, 800)
    assert await page.evaluate("document.documentElement.scrollWidth") == 390
    assert await page.evaluate("document.title") == "Overview – Parley"
