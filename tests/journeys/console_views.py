"""Opens views of the console in a browser, and waits until they are there."""

import json

from tests.browser import BrowserPage
from tests.eventually import eventually

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
    """Wait until a view is there."""
    await eventually(lambda: page.evaluate(_IS_SHOWN))


async def show_view(page: BrowserPage, address: str) -> None:
    """Open an address of the console, such as `#messages`, and wait until the view is there."""
    await page.evaluate(_GO % json.dumps(address))
    await until_shown(page)
