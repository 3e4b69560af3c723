"""The playground in a real browser: the platforms are simulated, the adapters and the service are real."""

import json
from pathlib import Path

from tests.browser import BrowserPage, needs_chromium, open_browser
from tests.eventually import eventually
from tests.journeys.playground import playground

HOSTILE = '<img src=x onerror="document.title = 1"><script>document.title = 2</script>'


async def choose(page: BrowserPage, selector: str, value: str) -> None:
    """Choose an option of a select element."""
    await page.evaluate(
        f"""(() => {{
            const one = document.querySelector({json.dumps(selector)});
            one.value = {json.dumps(value)};
            one.dispatchEvent(new Event("change", {{ bubbles: true }}));
        }})()"""
    )


async def go_to(page: BrowserPage, place: str) -> None:
    """Open a place. The cursor is in the text field then."""
    selector = f'#places [data-place="{place}"]'
    await eventually(
        lambda: page.evaluate(f"document.querySelector({json.dumps(selector)}) !== null")
    )
    await page.evaluate(f"document.querySelector({json.dumps(selector)}).click()")


async def write(page: BrowserPage, text: str) -> None:
    """Write a message."""
    await page.evaluate("document.querySelector('#text').focus()")
    await page.type(text)
    await page.press_enter()


@needs_chromium
async def test_people_talk_to_the_bot_on_all_platforms(tmp_path: Path) -> None:
    async with playground(tmp_path) as running, open_browser(tmp_path) as page:
        await page.open(running.link)
        await _a_private_chat_in_telegram(page)
        assert page.errors == []


async def _a_private_chat_in_telegram(page: BrowserPage) -> None:
    await go_to(page, "telegram:1001")
    await write(page, HOSTILE)
    shown = await page.wait_for_text("You said", "#messages article[data-author=parley]")
    assert HOSTILE in shown
    await page.wait_for_text(HOSTILE, "#messages article.own")
    assert await page.evaluate("document.title") == "Parley playground"
