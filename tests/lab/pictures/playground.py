"""The picture of the playground: the real page in a real browser, with a service beside it."""

from pathlib import Path
from tempfile import TemporaryDirectory

from tests.browser import open_browser
from tests.journeys.playground import playground

PLACE = "telegram:-1001000000002/2"


async def take_playground_screenshot(file: Path) -> None:
    """Write a topic with a question of the bot and the inspector as a PNG file. Needs chromium."""
    with TemporaryDirectory() as name:
        folder = Path(name)
        async with playground(folder) as running, open_browser(folder) as page:
            await page.open(running.link)
            await page.wait_for_text("Travel", "#places")
            for person, text in (("ben", "where shall we go?"), ("ann", "ask me something")):
                await running.act(do="send", place=PLACE, person=person, text=f"@parley_bot {text}")
                await running.wait_for(PLACE, "You said" if person == "ben" else "Which color")
            await page.evaluate(f"document.querySelector('[data-place=\"{PLACE}\"]').click()")
            await page.wait_for_text("Green", "#messages .buttons")
            await page.screenshot(file)
