"""Sessions of the console in a real browser with the real service: links, the cookie, other pages, and their end."""

import sqlite3
from contextlib import closing
from pathlib import Path

from gateway.sessions import ROTATE_AFTER_S
from tests.browser import BrowserPage, needs_chromium
from tests.eventually import eventually
from tests.journeys.console_views import show_view
from tests.journeys.service import Service
from tests.journeys.test_console import console
from tests.people.platforms import PlatformServers

pytestmark = needs_chromium

_POST = "fetch({url!r}, {{ method: 'POST', {more} }}).then((one) => one.status, () => -1)"


async def test_a_link_opens_one_session_that_is_safe_listed_rotated_and_revoked(
    tmp_path: Path,
) -> None:
    """Check the life of a session with one service and one browser, because they take seconds to start."""
    async with console(tmp_path) as (page, service, platforms, _):
        link = await _new_link(service)
        await _a_link_signs_in_and_leaves_no_secret(page, link)
        await _no_script_and_no_other_page_can_use_the_session(page, service, platforms)
        await _an_old_secret_is_replaced(page, service)
        await _another_link_is_listed_and_withdrawn(page, service)
        await page.click("Sign out")
        await page.open(f"{service.url}/console/?again{link}")
        await page.wait_for_text("This link was already used", "form .error")
        await _a_revoked_session_ends(page, service)


async def _new_link(service: Service) -> str:
    """Return the part of a new link's address after `console/`."""
    async with service.client() as client:
        path = str((await client.post("/api/sessions/links")).json()["path"])
    return path.removeprefix("console/")


async def _sessions(service: Service, *, are_links: bool = False) -> list[str]:
    """Return the IDs of the sessions, or of the links that were not opened."""
    async with service.client() as client:
        rows = (await client.get("/api/sessions")).json()["rows"]
    return [row["id"] for row in rows if row["is_link"] == are_links]


async def _a_link_signs_in_and_leaves_no_secret(page: BrowserPage, link: str) -> None:
    await page.open(f"{await page.evaluate('location.origin')}/console/?first{link}")
    await page.wait_for_text("Overview", "nav")
    assert "link" not in await page.evaluate("location.href")
    [cookie] = await page.cookies()
    assert (cookie["httpOnly"], cookie["sameSite"]) == (True, "Strict")
    stored = "document.cookie + JSON.stringify(localStorage) + JSON.stringify(sessionStorage)"
    assert cookie["value"] not in await page.evaluate(stored)
    assert await page.evaluate("document.cookie") == ""


async def _no_script_and_no_other_page_can_use_the_session(
    page: BrowserPage, service: Service, platforms: PlatformServers
) -> None:
    route = f"{service.url}/api/sessions/links"
    for more in ("", "headers: { 'X-CSRF-Token': 'guessed' }"):
        assert await page.evaluate(_POST.format(url=route, more=more)) == 403
    # A page of another port is another origin, but the same site: its requests have the cookie.
    await page.open(platforms.slack.base_url)
    assert await page.evaluate("location.origin") != service.url
    foreign = "mode: 'no-cors', credentials: 'include'"
    assert await page.evaluate(_POST.format(url=route, more=foreign)) == 0  # It cannot read it.
    assert await _sessions(service, are_links=True) == []
    await page.open(f"{service.url}/console/")
    await page.wait_for_text("Overview", "nav")


async def _an_old_secret_is_replaced(page: BrowserPage, service: Service) -> None:
    [before] = await page.cookies()
    with closing(sqlite3.connect(service.home / "parley.db")) as database, database:
        age = "UPDATE console_session SET rotated_at = rotated_at - ?"
        assert database.execute(age, [ROTATE_AFTER_S]).rowcount == 1

    async def is_replaced() -> bool:
        await page.open(f"{service.url}/console/")
        [cookie] = await page.cookies()
        return bool(cookie["value"] != before["value"])

    await eventually(is_replaced)  # The service updates the age after two seconds.
    await page.wait_for_text("Overview", "nav")


async def _another_link_is_listed_and_withdrawn(page: BrowserPage, service: Service) -> None:
    other = await _new_link(service)
    await show_view(page, "#sessions")
    shown = await page.wait_for_text("not opened yet", "main tbody")
    assert "Chrome" in shown
    assert await page.text("main .pill") == "this browser"
    await page.click("End", "main tbody")
    await page.wait_for_text("The session has ended.", "#notice")
    assert await _sessions(service, are_links=True) == []
    async with service.client() as client:
        secret = other.partition("=")[2]
        headers = {"Authorization": f"Bearer {secret}"}
        assert (await client.post("/api/sessions", headers=headers)).status_code == 401


async def _a_revoked_session_ends(page: BrowserPage, service: Service) -> None:
    await page.open(f"{service.url}/console/?second{await _new_link(service)}")
    await page.wait_for_text("Overview", "nav")
    [session] = await _sessions(service)
    async with service.client() as client:
        assert (await client.delete(f"/api/sessions/{session}")).status_code == 204
    await page.click("Messages", "nav")
    await page.wait_for_text("The session has ended. Sign in again.", "main")
