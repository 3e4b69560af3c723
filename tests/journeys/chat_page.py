"""The console's chat in a browser, with a service without platforms: opens it, and writes in it."""

import json
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from tests.browser import BrowserPage, open_browser
from tests.eventually import eventually
from tests.fakes.model import FakeModelServer
from tests.journeys.console_views import sign_in_as_admin
from tests.journeys.service import Service, serving, with_model


@asynccontextmanager
async def open_chat(
    folder: Path, model: FakeModelServer, config: Mapping[str, Any] | None = None
) -> AsyncIterator[tuple[BrowserPage, Service]]:
    """Run the service and sign in to its console's chat."""
    whole = {**with_model(model.base_url), "title": {"enabled": False}, **(config or {})}
    async with serving(folder, whole) as service, open_browser(folder) as page:
        await page.open(f"{service.url}/console/#chat")
        await sign_in_as_admin(page, service)
        await page.wait_for_text("Write to the agent.", ".log")
        yield page, service


async def say(page: BrowserPage, text: str) -> None:
    """Send a message once the agent is ready for it."""
    ready = "!!document.querySelector('.compose button[type=submit]:enabled')"
    await eventually(lambda: page.evaluate(ready))
    await page.evaluate("document.querySelector('.compose textarea').focus()")
    await page.type(text)
    await page.press_enter()


async def count(page: BrowserPage, selector: str) -> int:
    """Return how many elements the page has."""
    found = f"document.querySelectorAll({json.dumps(selector)}).length"
    return int(await page.evaluate(found))
