"""The pictures of the console: the real page in a real browser, of a service that has just received messages."""

from collections.abc import Mapping
from pathlib import Path
from tempfile import TemporaryDirectory

from tests.browser import BrowserPage, open_browser
from tests.fakes.model import FakeModelServer, ModelReply
from tests.journeys.console_views import show_view, sign_in_as_admin, until_shown
from tests.journeys.service import Service, serving, with_model
from tests.people.feishu import FeishuPrivateUser
from tests.people.platforms import PlatformServers
from tests.people.slack import SlackDirectUser
from tests.people.telegram import TelegramPrivateUser

VIEWS: Mapping[str, tuple[str, str]] = {
    "console.png": ("#messages", "What is on my list today?"),
    "console-overview.png": ("#overview", "Messages"),
    "console-conversation.png": ("", "You said"),
    "console-person.png": ("", "Settings in force"),
    "console-agents.png": ("#agents", "researcher"),
    "console-schedules.png": ("#schedules", "Sum up the news."),
    "console-configuration.png": ("#configuration", "config.yaml"),
    "console-usage.png": ("#usage", "fake"),
}
"""By file: a view's address, and a text in it. "" = the first conversation or person that other views link to."""

_LISTS = {"console-conversation.png": "conversations", "console-person.png": "people"}

PERSON = "U1ADA"
PRICES = {"input": 2.5, "cached_input": 0.25, "output": 10.0}


async def take_console_screenshots(folder: Path) -> None:
    """Write a PNG file for each view in `VIEWS`. Needs chromium."""
    async with PlatformServers() as platforms, FakeModelServer() as model:
        with TemporaryDirectory() as name:
            home = Path(name)
            config = {**with_model(model.base_url), "channels": platforms.channels}
            config["models"][0]["price"] = PRICES
            async with serving(home, config, *platforms.channels) as service:
                await _live_a_day(service, platforms, model)
                async with open_browser(home) as page:
                    await page.open(service.url)
                    await sign_in_as_admin(page, service)
                    for file, (address, text) in VIEWS.items():
                        await _show(page, file, address)
                        await page.wait_for_text(text, "main")
                        await page.screenshot(folder / file)


async def _live_a_day(service: Service, platforms: PlatformServers, model: FakeModelServer) -> None:
    profile = {"display_name": "Ada", "real_name": "Ada Lovelace"}
    platforms.slack.person(PERSON, name="ada", real_name="Ada Lovelace", profile=profile)
    ada = SlackDirectUser(platforms.slack, user=PERSON)
    for user in (TelegramPrivateUser(platforms.telegram), FeishuPrivateUser(platforms.feishu)):
        await user.send("What is on my list today?")
        await user.wait_for_message("You said")
    model.reply(ModelReply(status=400))
    await SlackDirectUser(platforms.slack).send("Which invoices are open?")
    await SlackDirectUser(platforms.slack).wait_for_message("rejected the request")
    for text in ("What is on my list today?", "Write **three** lines for the newsletter, please."):
        await ada.send(text)
        await ada.wait_for_message(f"You said: {text[:10]}")
    async with service.client() as client:
        agent = {"name": "researcher", "description": "Reads and cites", "soul": "You cite."}
        schedule = {
            "channel": "slack", "chat": f"D{PERSON}", "name": "morning news", "kind": "cron",
            "expression": "0 9 * * 1-5", "prompt": "Sum up the news.", "timezone": "Europe/Berlin",
        }  # fmt: skip
        for path, body in (("/api/agents", agent), ("/api/schedules", schedule)):
            (await client.post(path, json=body)).raise_for_status()


async def _show(page: BrowserPage, file: str, address: str) -> None:
    if address:
        await show_view(page, address)
        return
    await show_view(page, f"#{_LISTS[file]}")
    await page.click("slack · Ada" if file == "console-conversation.png" else "Ada", "main td")
    await until_shown(page)
