"""The picture of the playground: the real page in a real browser, with a service beside it."""

from pathlib import Path
from tempfile import TemporaryDirectory

from tests.browser import open_browser
from tests.journeys.playground import playground

PLACE = "telegram:-1001000000002/2"


async def take_playground_screenshot(folder: Path) -> None:
    """Write a topic with a question of the bot and the inspector as a PNG file. Needs chromium."""
    with TemporaryDirectory() as name:
        home = Path(name)
        async with playground(home) as running, open_browser(home) as page:
            await page.open(running.link)
            await page.wait_for_text("Travel", "#places")
            for person, text in (("ben", "where shall we go?"), ("ann", "ask me something")):
                await running.act(do="send", place=PLACE, person=person, text=f"@parley_bot {text}")
                await running.wait_for(PLACE, "You said" if person == "ben" else "Which color")
            await page.evaluate(f"document.querySelector('[data-place=\"{PLACE}\"]').click()")
            await page.wait_for_text("Green", "#messages .buttons")
            await page.screenshot(folder / "playground.png")
