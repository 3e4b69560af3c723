"""The console shows only buttons that the session's scope permits. The test presses every button."""

import json
import re
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path
from typing import Any

import httpx

from store.api_tokens import TokenScope
from tests.agent.test_skills import put
from tests.browser import BrowserPage, needs_chromium
from tests.eventually import eventually
from tests.fakes.model import FakeModelServer
from tests.gateway.test_console_actions import ACTIONS, SCOPES, hang_if_slow
from tests.journeys.console_views import show_view, sign_in, sign_in_as_admin
from tests.journeys.service import Service
from tests.journeys.test_console import console
from tests.journeys.test_console_views import addresses
from tests.people.platforms import PlatformServers
from tests.people.slack import SlackDirectUser
from tests.people.telegram import TelegramPrivateUser

pytestmark = needs_chromium

_HOLD_CHANGES = """((thread) => {
  const reading = RegExp('^/api/(markdown|(assistants|threads)/search|threads/[^/]+/history|configuration/check.*)$');
  window.realFetch ??= window.fetch;
  window.sent = [];
  window.pending = 0;
  window.fetch = async (url, options = {}) => {
    const { pathname } = new URL(url, location);
    const method = options.method ?? 'GET';
    if (method !== 'GET' && !reading.test(pathname)) {
      window.sent.push(`${method} ${pathname}`);
      return new Response(JSON.stringify({ thread_id: thread }), { headers: { 'Content-Type': 'application/json' } });
    }
    window.pending += 1;
    try {
      return await window.realFetch(url, options);
    } finally {
      window.pending -= 1;
    }
  };
})"""
"""A script that records requests that change something, and does not send them. It responds with a thread ID."""

_PRESS_ALL = """async (address) => {
  const quiet = async () => {
    do await new Promise((done) => setTimeout(done, 20));
    while (window.pending || document.querySelector('#view[aria-busy]'));
  };
  const fill = (form) => {
    for (const field of form.elements) {
      if (field.type === 'number') field.value ||= '1';
      else if (/^text/.test(field.type) && !field.readOnly) field.value ||= 'x';
    }
  };
  const all = (selector) => [...document.querySelectorAll(selector)].filter((one) => !one.hidden && !one.disabled);
  const press = async (buttons) => {
    for (let at = 0; at < buttons().length; at += 1) {
      const one = buttons()[at];
      if (one.form) fill(one.form);
      one.click();
      await quiet();
      if (one.closest('dialog')) continue;
      document.querySelector('#notice button')?.click();
      await quiet();
      if (document.querySelector('dialog')) await press(() => all('dialog [type=submit]'));
      for (const dialog of all('dialog')) dialog.close();
      if (location.hash !== address) {
        location.hash = address;
        await quiet();
      }
    }
  };
  for (const one of all('main details')) one.open = true;
  await quiet();
  await press(() => all('main button'));
}"""

SCHEDULE = {
    "channel": "slack",
    "chat": "DU1ANN",
    "prompt": "x",
    "kind": "cron",
    "expression": "0 9 * * *",
}
OUT_OF_REACH = {
    "POST /api/sessions",
    "DELETE /api/sessions/current",
    # A person chooses a file first.
    "POST /api/skills/install",
    "POST /api/threads/{thread_id}/uploads",
    # The buttons for these need the answer to another change, other texts, or a connected server.
    "DELETE /api/channels/broadcast/{key}",
    "POST /api/channels/outbox/restore",
    "PUT /api/configuration/file",
    "POST /api/configuration/undo",
    "POST /api/mcp/tools/{tool}/call",
    "POST /api/skills/custom/{name}/rollback",
}
"""Actions whose buttons this test does not press. Other journeys do."""


async def test_a_session_has_the_buttons_of_its_scope_alone(tmp_path: Path) -> None:
    async with console(tmp_path) as (page, service, platforms, model):
        threads = await _fill(service, platforms, model)
        await sign_in_as_admin(page, service)
        places = [
            *(one for one in await addresses(page) if one != "#configuration"),
            "#configuration?key=log_level",
            "#agents?new=1",
            "#agents/poet",
            *(f"#conversation/{thread}" for thread in threads),
        ]
        found: dict[TokenScope, set[str]] = {}
        for scope in SCOPES:
            await _become(page, service, scope)
            await page.evaluate(f"{_HOLD_CHANGES}('{threads[0]}')")
            found[scope] = await _press_everything(page, places)
        assert found["read"] == set()
        assert found["operator"] == {
            name for name in found["admin"] if ACTIONS[name].scope == "operator"
        }
        changing = {name for name, action in ACTIONS.items() if action.changes}
        assert changing - found["admin"] == OUT_OF_REACH


async def _fill(service: Service, platforms: PlatformServers, model: FakeModelServer) -> list[str]:
    """Create one object for each kind of button in the views. Return the threads of two conversations.

    A person has taken over the second one.
    """
    for user in (7001, 7002):
        stranger = TelegramPrivateUser(platforms.telegram, user=user)
        await stranger.send("let me in")
        await stranger.wait_for_message("code")
    ann, bob = SlackDirectUser(platforms.slack), SlackDirectUser(platforms.slack, user="U2BOB")
    for person in (ann, bob):
        await person.send("hello")
        await person.wait_for_message("You said: hello")
    put(service.home / "skills" / "custom" / "poems", "poems")
    async with service.client() as client:
        make = partial(_make, client)
        for number in (1, 2):
            platforms.slack.fail("chat.postMessage", error="channel_not_found")
            await ann.send(f"are you there {number}")
            await eventually(
                lambda: make("GET", "channels/outbox/count?state=failed"),
                partial(_counts, number),
            )
        model.answer = hang_if_slow
        await ann.send("slowly")
        await _fill_by_requests(make)
        talks = (await make("GET", "channels/conversations"))["rows"]
        threads = {one["chat"]: one["thread_id"] for one in talks}
        await make("POST", f"conversations/{threads['DU2BOB']}/takeover")
        return [threads["DU1ANN"], threads["DU2BOB"]]


def _counts(number: int, found: Any) -> bool:  # noqa: ANN401 - JSON
    return bool(found["count"] == number)


async def _fill_by_requests(make: Callable[..., Awaitable[Any]]) -> None:
    [one, _] = (await make("GET", "channels/pairings"))["rows"]
    await make("POST", f"channels/pairings/{one['code']}/approve")
    await make("POST", "schedules", SCHEDULE)
    await make("POST", "channels/broadcast", {"text": "x", "key": "b"})
    await make("PUT", "mcp/config/inn", {"type": "http", "url": "http://127.0.0.1:1/mcp"})
    await make("POST", "agents", {"name": "poet"})
    await make("POST", "tokens", {"name": "ci", "scope": "read"})
    await make("POST", "sessions/links")
    person = await eventually(lambda: make("GET", "people/slack/U1ANN"))
    facts = httpx.QueryParams(scope=person["memory_scope"], agent=person["memory_agent"])
    await make("POST", f"memory/facts?{facts}", {"content": "x"})


async def _make(client: httpx.AsyncClient, method: str, path: str, body: object = None) -> Any:  # noqa: ANN401 - JSON
    response = await client.request(method, f"/api/{path}", json=body)
    assert response.status_code < 400, f"{path}: {response.text}"
    return response.json() if response.content else None


async def _become(page: BrowserPage, service: Service, scope: TokenScope) -> None:
    """Sign in with a token of a scope."""
    async with service.client() as client:
        made = await client.post("/api/tokens", json={"name": scope, "scope": scope})
    await page.evaluate("window.fetch = window.realFetch ?? window.fetch, null")
    await page.click("Sign out")
    await sign_in(page, made.json()["token"])
    await page.wait_for_text("Overview", "nav")


async def _press_everything(page: BrowserPage, places: list[str]) -> set[str]:
    """Press all buttons of all views. Return their actions."""
    for address in places:
        await show_view(page, address)
        await page.evaluate(f"({_PRESS_ALL})({json.dumps(address)})")
    return {_action(one) for one in await page.evaluate("window.sent")}


def _action(request: str) -> str:
    """Return the action of a request."""
    [found] = [
        name for name in ACTIONS if re.fullmatch(re.sub(r"\{\w+\}", "[^/]+", name), request)
    ] or [request]
    return found
