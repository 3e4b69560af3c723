"""The picture of the console: the real page in a real browser, of a service that has just received messages."""

from pathlib import Path
from tempfile import TemporaryDirectory

from tests.browser import open_browser
from tests.fakes.model import FakeModelServer
from tests.journeys.service import serving, with_model
from tests.people.feishu import FeishuPrivateUser
from tests.people.platforms import PlatformServers
from tests.people.slack import SlackDirectUser
from tests.people.telegram import TelegramPrivateUser


async def take_console_screenshot(file: Path) -> None:
    """Write the list of messages as a PNG file. Needs chromium."""
    async with PlatformServers() as platforms, FakeModelServer() as model:
        with TemporaryDirectory() as name:
            folder = Path(name)
            config = {**with_model(model.base_url), "channels": platforms.channels}
            async with (
                serving(folder, config, *platforms.channels) as service,
                open_browser(folder) as page,
            ):
                for user in (
                    SlackDirectUser(platforms.slack),
                    TelegramPrivateUser(platforms.telegram),
                    FeishuPrivateUser(platforms.feishu),
                ):
                    await user.send("What is on my list today?")
                    await user.wait_for_message("You said")
                await page.open(service.url)
                await page.wait_for_text("Sign in")
                await page.type((service.home / "admin_token").read_text().strip())
                await page.press_enter()
                await page.click("Messages", "nav")
                await page.wait_for_text("What is on my list today?", "main")
                await page.screenshot(file)
