"""Browser sessions: opening them, the permissions of their cookie, and ending them."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import httpx
import pytest

from gateway.api_tokens import ApiTokenLookup
from gateway.sessions import SessionLookup
from store.api_tokens import ApiTokenStore, token_digest
from store.config import StoreConfig
from store.console_sessions import IDLE_S, LINK_S, OVERLAP_S, ConsoleSessionStore
from store.database import Database
from store.errors import RowNotFound
from tests.fakes.clock import ManualClock
from tests.gateway.composed import TOKEN, ComposedService, composed

COOKIE = "parley_session_8001"


@asynccontextmanager
async def browser(service: ComposedService) -> AsyncIterator[httpx.AsyncClient]:
    """Return a client without a token, which keeps cookies."""
    transport = service.stranger._transport
    async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1:8001") as client:
        yield client


async def sign_in(client: httpx.AsyncClient, token: str = TOKEN) -> str:
    """Open a session; return its CSRF token."""
    opened = await client.post("/api/sessions", headers={"Authorization": f"Bearer {token}"})
    assert opened.status_code == 201, opened.text
    return str(opened.json()["csrf"])


async def test_a_token_becomes_a_cookie_that_no_script_and_no_other_page_can_use(
    tmp_path: Path,
) -> None:
    async with composed(tmp_path) as service, browser(service) as client:
        opened = await client.post("/api/sessions", headers={"Authorization": f"Bearer {TOKEN}"})
        cookie = opened.headers["set-cookie"]
        assert cookie.startswith(f"{COOKIE}=parley_session_")
        assert "HttpOnly" in cookie
        assert "SameSite=strict" in cookie
        csrf = {"X-CSRF-Token": opened.json()["csrf"]}
        assert (await client.get("/api/channels")).status_code == 200
        path = "/api/tokens"
        body = {"name": "x", "scope": "read"}
        assert (await client.post(path, json=body)).status_code == 403
        assert (
            await client.post(path, json=body, headers={"X-CSRF-Token": "x"})
        ).status_code == 403
        foreign = {**csrf, "Origin": "http://evil.example"}
        assert (await client.post(path, json=body, headers=foreign)).status_code == 403
        assert (await client.post(path, json=body, headers=csrf)).status_code == 201
        ended = await client.delete("/api/sessions/current", headers=csrf)
        assert ended.status_code == 204
        client.cookies.set(COOKIE, cookie.partition("=")[2].partition(";")[0])
        assert (await client.get("/api/channels")).status_code == 401


async def test_a_link_opens_one_session_and_does_nothing_else(tmp_path: Path) -> None:
    async with composed(tmp_path) as service, browser(service) as client:
        made = await service.client.post("/api/sessions/links")
        path, _, secret = made.json()["path"].partition("#link=")
        assert path == "console/"
        header = {"Authorization": f"Bearer {secret}"}
        assert (await client.get("/api/channels", headers=header)).status_code == 403
        client.cookies.set(COOKIE, secret)
        assert (await client.get("/api/channels")).status_code == 401  # no cookie
        client.cookies.clear()
        await sign_in(client, secret)
        assert (await client.get("/api/sessions")).status_code == 200
        async with browser(service) as other:
            again = await other.post("/api/sessions", headers=header)
            assert again.status_code == 401


async def test_sessions_are_listed_and_end_when_revoked_or_with_their_token(
    tmp_path: Path,
) -> None:
    async with composed(tmp_path) as service, browser(service) as client:
        made = await service.client.post("/api/tokens", json={"name": "desk", "scope": "operator"})
        csrf = await sign_in(client, made.json()["token"])
        current = (await client.get("/api/sessions/current")).json()
        assert (current["scope"], current["may_change"], current["may_administer"]) == (
            "operator",
            True,
            False,
        )
        refused = await client.post("/api/tokens", headers={"X-CSRF-Token": csrf})
        assert refused.status_code == 403
        assert "scope `operator`" in refused.json()["detail"]
        rows = (await service.client.get("/api/sessions")).json()["rows"]
        assert [(row["token"], row["scope"], row["is_link"]) for row in rows] == [
            ("desk", "operator", False)
        ]
        await service.client.post("/api/tokens/desk/rotate")
        assert (await client.get("/api/channels")).status_code == 401
        async with browser(service) as other:
            await sign_in(other)
            rows = (await service.client.get("/api/sessions")).json()["rows"]
            await service.client.delete(f"/api/sessions/{rows[0]['id']}")
            assert (await other.get("/api/channels")).status_code == 401


async def test_a_read_session_sees_and_changes_nothing(tmp_path: Path) -> None:
    async with composed(tmp_path) as service, browser(service) as client:
        made = await service.client.post("/api/tokens", json={"name": "screen", "scope": "read"})
        csrf = {"X-CSRF-Token": await sign_in(client, made.json()["token"])}
        assert (await client.get("/api/channels/outbox")).status_code == 200
        assert (await client.post("/api/channels/slack/restart", headers=csrf)).status_code == 403
        assert (await client.get("/api/sessions")).status_code == 403


async def test_who_opened_a_session_is_in_the_audit_log(tmp_path: Path) -> None:
    async with composed(tmp_path) as service, browser(service) as client:
        await sign_in(client)
        lines = service.services.config.audit_file.read_text().splitlines()
    assert '"action": "POST /api/sessions"' in lines[-1]


async def test_secrets_rotate_and_links_and_sessions_expire(tmp_path: Path) -> None:
    clock = ManualClock()
    async with Database.open(StoreConfig(), tmp_path) as database:
        store = ConsoleSessionStore(database, now=clock)
        tokens = ApiTokenLookup(ApiTokenStore(database), clock=clock, now=clock)
        digest = token_digest("admin")
        lookup = SessionLookup(store, tokens=tokens, admin_digest=digest, clock=clock, now=clock)
        opened, secret = await store.open(
            scope="admin", token="", token_digest=digest, address="a", browser=""
        )
        renewed = await store.rotate(opened)
        assert renewed is not None
        assert await store.rotate(opened) is None  # Another tab did it.
        assert await lookup.find(secret) is not None
        clock.now += OVERLAP_S
        assert await lookup.find(secret) is None
        assert await lookup.find(renewed) is not None
        link = await store.create_link(token_digest=digest)
        clock.now += LINK_S
        assert await lookup.find(link) is None
        clock.now += IDLE_S
        assert await lookup.find(renewed) is None
        assert await lookup.has_ended(opened.id)
        _, foreign = await store.open(
            scope="admin", token="", token_digest="gone", address="a", browser=""
        )
        assert await lookup.find(foreign) is None
        assert len(await store.list_all()) == 1  # The expired ones are gone.
        with pytest.raises(RowNotFound):
            await store.revoke("unknown")
