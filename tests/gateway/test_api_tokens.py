"""Named tokens with a scope: the requests that each permits over the network, and the command that creates them."""

from pathlib import Path

import httpx
import pytest

from gateway.api_tokens import ApiTokenLookup
from gateway.table_copy import MAX_AGE_S
from gateway.token_scopes import is_permitted
from store.api_tokens import ApiTokenStore, TokenScope
from store.config import StoreConfig
from store.database import Database
from tests.fakes.clock import ManualClock
from tests.gateway.composed import ComposedService, composed
from tests.journeys.service import Service

THREAD = "/api/threads/t1"


@pytest.mark.parametrize(
    ("method", "path", "scopes"),
    [
        ("GET", "/api/channels", "read operator admin"),
        ("GET", "/metrics", "read operator admin"),
        ("GET", "/api/channels/terminal/s1/events", "operator admin"),
        ("POST", "/api/threads/search", "read operator admin"),
        ("POST", "/api/langgraph/threads/count", "read operator admin"),
        ("POST", "/api/store/items/search", "read operator admin"),
        ("PUT", "/api/store/items", "operator admin"),
        ("POST", "/api/threads", "operator admin"),
        ("POST", "/api/runs/stream", "operator admin"),
        ("POST", "/api/channels/slack/restart", "operator admin"),
        ("POST", "/api/channels/pairings/ABC/approve", "operator admin"),
        ("PUT", "/api/mcp/config", "admin"),
        ("POST", "/api/skills/install", "admin"),
        ("DELETE", "/api/agents/a", "admin"),
        ("GET", "/api/agents/a", "read operator admin"),
        ("GET", "/api/tokens", "admin"),
        ("POST", "/api/tokens", "admin"),
        ("POST", "/api/tokens/x/rotate", "admin"),
        ("POST", "/api/sessions", "read operator admin"),
        ("GET", "/api/sessions/current", "read operator admin"),
        ("DELETE", "/api/sessions/current", "read operator admin"),
        ("GET", "/api/sessions", "admin"),
        ("POST", "/api/sessions/links", "admin"),
        ("DELETE", "/api/sessions/x", "admin"),
        ("POST", f"{THREAD}/runs/stream", "operator admin"),
        ("POST", f"{THREAD}/history", "read operator admin"),
        ("POST", f"{THREAD}/state/checkpoint", "read operator admin"),
        ("POST", f"{THREAD}/stream/events", "read operator admin"),
        ("WEBSOCKET", f"{THREAD}/stream/events", "operator admin"),
        ("POST", f"{THREAD}/state", "operator admin"),
        ("POST", "/api/assistants/a/versions", "read operator admin"),
        ("POST", "/api/assistants/a/latest", "operator admin"),
        ("GET", f"{THREAD}", "read operator admin"),
        ("GET", f"/api/langgraph{THREAD.removeprefix('/api')}/state", "read operator admin"),
        ("DELETE", f"{THREAD}/runs/r", "operator admin"),
        ("DELETE", THREAD, "operator admin"),
        ("POST", f"{THREAD}/copy", "operator admin"),
        ("GET", "/api/threads/t2/state", "read operator admin"),
        ("GET", "/api/threads/t1x", "read operator admin"),
        ("POST", "/api/threads/t2/../t1/runs", "operator admin"),
    ],
)
def test_each_scope_permits_these_routes(method: str, path: str, scopes: str) -> None:
    every: tuple[TokenScope, ...] = ("read", "operator", "admin")
    assert {s for s in every if is_permitted(s, method, path)} == set(scopes.split())


@pytest.mark.parametrize(
    ("query", "scopes"),
    [
        (b"cancel_on_disconnect=true", "operator admin"),
        (b"a=1&cancel%5Fon_disconnect=1", "operator admin"),
        (b"cancel_on_disconnect=false&cancel_on_disconnect=yes", "operator admin"),
        (b"cancel_on_disconnect=False&stream_mode=values", "read operator admin"),
        (b"", "read operator admin"),
    ],
)
def test_a_read_token_cancels_no_run_by_disconnecting(query: bytes, scopes: str) -> None:
    every: tuple[TokenScope, ...] = ("read", "operator", "admin")
    path = f"{THREAD}/runs/r/stream"
    assert {s for s in every if is_permitted(s, "GET", path, query)} == set(scopes.split())


async def create(service: ComposedService, name: str, scope: str, **more: object) -> str:
    body = {"name": name, "scope": scope, **more}
    answer = await service.client.post("/api/tokens", json=body)
    assert answer.status_code == 201, answer.text
    return str(answer.json()["token"])


def bearer(value: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {value}"}


async def test_a_token_opens_what_its_scope_permits_until_it_is_revoked(tmp_path: Path) -> None:
    async with composed(tmp_path) as service:
        value = await create(service, "dashboard", "read")
        stranger = service.stranger

        async def status(method: str, path: str) -> int:
            return (await stranger.request(method, path, headers=bearer(value))).status_code

        assert await status("GET", "/api/models") == 200
        refused = await stranger.post("/api/threads", json={}, headers=bearer(value))
        assert (refused.status_code, "scope `read`" in refused.json()["detail"]) == (403, True)
        assert await status("GET", "/api/tokens") == 403
        listed = (await service.client.get("/api/tokens")).json()["rows"]
        assert [(row["name"], row["scope"], row["expires_at"]) for row in listed] == [
            ("dashboard", "read", None)
        ]
        rotated = await service.client.post("/api/tokens/dashboard/rotate")
        new = str(rotated.json()["token"])
        assert (await stranger.get("/api/models", headers=bearer(new))).status_code == 200
        assert await status("GET", "/api/models") == 401
        assert (await service.client.delete("/api/tokens/dashboard")).status_code == 204
        assert (await service.client.delete("/api/tokens/dashboard")).status_code == 404
        again = await service.client.post("/api/tokens", json={"name": "a b", "scope": "read"})
        assert again.status_code == 422


@pytest.mark.parametrize("ending", ["%0A", "%0a", "%0D%0A", "%0A%0A", "/%0A"])
async def test_a_path_that_ends_in_a_line_break_leads_nowhere(tmp_path: Path, ending: str) -> None:
    async with composed(tmp_path) as service:
        for scope in ("read", "operator", "admin"):
            value = await create(service, scope, scope)
            for method, path, body in (
                ("GET", "/api/tokens", None),
                ("POST", "/api/tokens", {"name": "mine", "scope": "admin"}),
                ("PUT", "/api/mcp/config", {"mcp_servers": {}}),
                ("POST", "/api/agents", {"name": "mine"}),
                ("GET", "/api/models", None),
            ):
                answer = await service.stranger.request(
                    method, path + ending, json=body, headers=bearer(value)
                )
                assert answer.status_code == 404, (scope, method, path, answer.text)
        named = [row["name"] for row in (await service.client.get("/api/tokens")).json()["rows"]]
        assert sorted(named) == ["admin", "operator", "read"]
        assert (await service.client.get("/api/agents")).json()["agents"] == []


async def test_a_reader_may_watch_a_run_and_not_end_it_by_leaving(tmp_path: Path) -> None:
    thread = "11111111-1111-4111-8111-111111111111"
    async with composed(tmp_path) as service:
        await service.client.post("/api/threads", json={"thread_id": thread})
        run = await service.client.post(
            f"/api/threads/{thread}/runs",
            json={
                "assistant_id": "lead_agent",
                "input": {"messages": [{"role": "user", "content": "hi"}]},
            },
        )
        value = await create(service, "dashboard", "read")
        join = f"/api/threads/{thread}/runs/{run.json()['run_id']}/join"
        for query, status in (("?cancel_on_disconnect=true", 403), ("", 200)):
            answer = await service.stranger.get(join + query, headers=bearer(value))
            assert answer.status_code == status


async def test_a_read_token_does_not_extend_an_items_lifetime(tmp_path: Path) -> None:
    item = {"namespace": ["notes"], "key": "a", "value": {"n": 1}}
    one = {"namespace": "notes", "key": "a"}

    async with composed(tmp_path) as service:
        client, stranger = service.client, service.stranger

        async def expires_at() -> float:
            (row,) = await service.services.database.read("SELECT expires_at FROM item", {})
            return float(row["expires_at"])

        await client.put("/api/store/items", json={**item, "ttl": 60})
        before = await expires_at()
        reader = bearer(await create(service, "dashboard", "read"))
        for given, status in (
            ({}, 200),
            ({"refresh_ttl": False}, 200),
            ({"refresh_ttl": True}, 403),
        ):
            got = await stranger.get("/api/store/items", params={**one, **given}, headers=reader)
            found = await stranger.post("/api/store/items/search", json=given, headers=reader)
            assert (got.status_code, found.status_code) == (status, status)
            assert status == 403 or (got.json()["key"], len(found.json()["items"])) == ("a", 1)
        assert await expires_at() == before
        await client.get("/api/store/items", params=one)
        assert await expires_at() > before


async def test_requests_are_audited_under_their_tokens_name(tmp_path: Path) -> None:
    async with composed(tmp_path) as service:
        value = await create(service, "ops", "operator")
        await service.stranger.post("/api/channels/none/restart", headers=bearer(value))
        audit = (tmp_path / "home" / "audit.log").read_text()
    assert '"who":"token ops"' in audit.replace('": "', '":"')
    assert value not in audit


async def test_a_revoked_or_expired_token_ends_in_time(tmp_path: Path) -> None:
    clock = ManualClock()
    async with Database.open(StoreConfig(), tmp_path) as database:
        store = ApiTokenStore(database, now=clock)
        lookup = ApiTokenLookup(ApiTokenStore(database), clock=clock, now=clock)
        assert await lookup.find("parley_unknown") is None
        clock.now += 1
        lasting, short = (
            await store.create("a", "read"),
            await store.create("b", "read", lifetime_s=9),
        )
        assert await lookup.find(lasting) is not None
        await store.revoke("a")
        clock.now += MAX_AGE_S + 0.1
        assert await lookup.find(lasting) is None
        assert await lookup.find(short) is not None
        clock.now += 9
        assert await lookup.find(short) is None


async def test_the_command_makes_tokens_with_and_without_a_service(tmp_path: Path) -> None:
    service = Service(tmp_path, {})
    code, out, error = await service.command("token", "create", "early", "--scope", "read")
    assert (code, out.startswith("parley_"), error) == (0, True, "")
    early = out.strip()
    await service.start()
    try:
        code, late, _ = await service.command(
            "token", "create", "late", "--scope", "operator", "--days", "1"
        )
        assert code == 0
        async with httpx.AsyncClient(base_url=service.url) as http:
            for value in (early, late.strip()):
                assert (await http.get("/api/models", headers=bearer(value))).status_code == 200
        _, listed, _ = await service.command("token", "list")
        assert [line.split()[:2] for line in listed.splitlines()[1:]] == [
            ["early", "read"],
            ["late", "operator"],
        ]
        code, _, error = await service.command("token", "create", "late", "--scope", "read")
        assert (code, "There is a token named late" in error) == (1, True)
        code, rotated, _ = await service.command("token", "rotate", "late")
        assert (code, rotated.startswith("parley_")) == (0, True)
    finally:
        await service.stop()
    assert (await service.command("token", "revoke", "early"))[0] == 0
    code, _, error = await service.command("token", "revoke", "early")
    assert (code, "no token named early" in error) == (1, True)
    for arguments, told in (
        (("a b", "--scope", "read"), "NAME: must be 1 to 64 letters, digits, `.`, `_` or `-`, and"),
        (("x", "--scope", "read", "--days", "0"), "--days: must be greater than 0"),
    ):
        code, _, error = await service.command("token", "create", *arguments)
        assert (code, error.startswith(f"parley: {told}")) == (1, True), error
