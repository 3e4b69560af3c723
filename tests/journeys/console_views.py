"""Opens views of the console in a browser, and waits until they are shown."""

import json

from tests.browser import BrowserPage
from tests.eventually import eventually
from tests.journeys.service import Service

_IS_SHOWN = """(() => {
  const view = document.getElementById('view');
  return !view.hasAttribute('aria-busy') && view.innerText.trim() !== '' && document.title !== 'Parley console';
})()"""
_GO = """new Promise((gone) => {
  const before = location.href;
  addEventListener('hashchange', () => setTimeout(gone), { once: true });
  location.hash = %s;
  if (location.href === before) gone();
})"""


async def until_shown(page: BrowserPage) -> None:
    """Wait until a view is shown."""
    await eventually(lambda: page.evaluate(_IS_SHOWN))


async def show_view(page: BrowserPage, address: str) -> None:
    """Open an address of the console, such as `#messages`, and wait until the view is shown."""
    await page.evaluate(_GO % json.dumps(address))
    await until_shown(page)


async def sign_in(page: BrowserPage, token: str) -> None:
    """Enter a token into the form. The cursor is already in the field."""
    await page.wait_for_text("Sign in")
    await page.type(token)
    await page.press_enter()


async def sign_in_as_admin(page: BrowserPage, service: Service) -> None:
    """Enter the admin token, and wait for the first view. Drop the error of the request refused before the sign-in."""
    await sign_in(page, (service.home / "admin_token").read_text().strip())
    await page.wait_for_text("Overview", "nav")
    await until_shown(page)
    page.errors.clear()
