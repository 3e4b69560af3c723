"""Request ids, limits, and the audit log of admin actions."""

import json
import logging
import stat
from pathlib import Path
from typing import Any

import httpx
import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Route, WebSocketRoute
from starlette.types import Message, Scope
from starlette.websockets import WebSocket
from typing_extensions import override

from gateway.audit import AuditEntry, AuditLog
from gateway.auth import AccessMiddleware
from gateway.logs import JsonLogFormatter, SecretRedactor
from gateway.middleware import API_GROUP, RequestMiddleware
from gateway.rate_limits import RateLimitConfig
from gateway.request_stats import REQUEST_ID, UNKNOWN_ROUTE, RequestStats
from store.work_group import WORK_GROUP
from tests.gateway.composed import TOKEN, composed

THREAD = "6f8a1a6e-25a6-4a6f-8a63-3e3a2c1f0d11"


def entries(home: Path) -> list[dict[str, Any]]:
    file = home / "audit.log"
    return [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []


async def test_every_answer_has_a_request_id(tmp_path: Path) -> None:
    async with composed(tmp_path) as service:
        given = await service.client.get("/api/models", headers={"X-Request-Id": "trace-1.a_B"})
        assert given.headers["x-request-id"] == "trace-1.a_B"
        for odd in ("a b", "x" * 65, "", 'a"b', "<script>"):
            answer = await service.client.get("/health", headers={"X-Request-Id": odd})
            assert answer.headers["x-request-id"] != odd
            assert len(answer.headers["x-request-id"]) == 16
        refused = await service.stranger.get("/api/models")
        assert (refused.status_code, len(refused.headers["x-request-id"])) == (401, 16)
        missing = await service.client.get("/nothing")
        assert (missing.status_code, len(missing.headers["x-request-id"])) == (404, 16)


async def test_an_error_that_nobody_expected_is_logged_and_not_shown(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with composed(tmp_path) as service:
        made = await service.client.post("/api/threads", json={"thread_id": THREAD})
        assert made.status_code == 200
        damage = "UPDATE thread SET error = '{hush-hush' WHERE thread_id = :id"
        await service.services.database.transaction(lambda tx: tx.run(damage, {"id": THREAD}))
        answer = await service.client.get(f"/api/threads/{THREAD}")
        assert answer.status_code == 500
        assert answer.json() == {"detail": "Internal server error; see the log."}
        assert len(answer.headers["x-request-id"]) == 16
        (record,) = (one for one in caplog.records if one.levelno == logging.ERROR)
        assert record.getMessage() == f"GET /api/threads/{THREAD} failed"
        assert record.exc_info is not None


async def test_log_lines_name_the_request(caplog: pytest.LogCaptureFixture) -> None:
    lines: list[str] = []

    class Lines(logging.Handler):
        @override
        def emit(self, record: logging.LogRecord) -> None:
            lines.append(JsonLogFormatter(SecretRedactor([])).format(record))

    async def shout(request: Request) -> JSONResponse:
        logging.getLogger("test.entrance").warning("hello")
        return JSONResponse({})

    app = Starlette(routes=[Route("/x", shout)])
    entrance = RequestMiddleware(
        app, stats=RequestStats(), audit=AuditLog(Path("/nonexistent/audit.log"))
    )
    logger, handler = logging.getLogger("test.entrance"), Lines()
    logger.addHandler(handler)
    try:
        async with httpx.AsyncClient(
            transport=httpx.ASGITransport(entrance), base_url="http://localhost"
        ) as client:
            await client.get("/x", headers={"X-Request-Id": "r1"})
        logger.warning("outside")
    finally:
        logger.removeHandler(handler)
    assert [json.loads(line).get("request") for line in lines] == ["r1", None]


async def test_websockets_have_a_request_id_and_are_counted() -> None:
    stats, seen = RequestStats(), list[tuple[str, int]]()

    async def echo(websocket: WebSocket) -> None:
        seen.append((REQUEST_ID.get(), stats.in_progress))
        assert WORK_GROUP.get() == API_GROUP
        if websocket.query_params:
            await websocket.close()
            return
        await websocket.accept()
        await websocket.close()

    app = Starlette(routes=[WebSocketRoute("/echo", echo)])
    entrance = RequestMiddleware(app, stats=stats, audit=AuditLog(Path("/nonexistent/audit.log")))
    sent: list[Message] = []

    async def receive() -> Message:
        return {"type": "websocket.connect"}

    async def send(message: Message) -> None:
        sent.append(message)

    for query in (b"", b"refuse=1"):
        scope: Scope = {
            "type": "websocket",
            "path": "/echo",
            "query_string": query,
            "headers": [(b"x-request-id", b"r1")],
        }
        await entrance(scope, receive, send)
    assert seen == [("r1", 1), ("r1", 1)]
    assert (b"x-request-id", b"r1") in sent[0]["headers"]
    assert {key[0::2]: count for key, count in stats.requests.items()} == {
        ("WEBSOCKET", 101): 1,
        ("WEBSOCKET", 403): 1,
    }
    assert stats.in_progress == 0


async def test_changes_are_written_down_without_bodies_and_tokens(tmp_path: Path) -> None:
    async with composed(tmp_path) as service:
        client = service.client
        made = await client.post(
            "/api/memory/facts?scope=default",
            json={"content": "hush-hush"},
            headers={"X-Request-Id": "r7"},
        )
        assert made.status_code == 200
        assert (await client.put("/api/skills/nothing", json={"enabled": True})).status_code == 404
        assert (await client.delete(f"/api/threads/{THREAD}")).status_code == 404
        # Requests that are not admin actions, or whose sender lacks permission:
        await client.get("/api/memory")
        await client.post("/api/threads", json={})
        await client.post("/api/langgraph/threads/search", json={})
        await service.stranger.put("/api/skills/nothing", json={"enabled": True})
        first, *others = entries(tmp_path / "home")
        assert first.pop("time").endswith("+00:00")
        assert first.pop("who").startswith("token:")
        assert first == {
            "address": "127.0.0.1",
            "request_id": "r7",
            "action": "POST /api/memory/facts",
            "target": "/api/memory/facts?scope=default",
            "status": 200,
            "detail": "",
        }
        assert [(one["action"], one["status"]) for one in others] == [
            ("PUT /api/skills/{name}", 404),
            ("DELETE /api/threads/{thread_id}", 404),
        ]
        file = tmp_path / "home" / "audit.log"
        assert stat.S_IMODE(file.stat().st_mode) == 0o600
        assert TOKEN not in file.read_text()
        assert "hush-hush" not in file.read_text()


def entry(number: int) -> AuditEntry:
    return AuditEntry(
        time="t",
        who="w",
        address="a",
        request_id=str(number),
        action="PUT /x",
        target="/x",
        status=200,
    )


async def test_the_audit_log_is_turned_over(tmp_path: Path) -> None:
    file = tmp_path / "new" / "audit.log"
    audit = AuditLog(file, max_bytes=250)
    for number in range(20):
        await audit.append(entry(number))
    names = sorted(path.name for path in file.parent.iterdir())
    assert names == ["audit.log", *(f"audit.log.{number}" for number in range(1, 6))]
    assert all(path.stat().st_size <= 250 for path in file.parent.iterdir())
    assert json.loads(file.read_text().splitlines()[-1])["request_id"] == "19"
    newest = (file.parent / "audit.log.1").read_text().splitlines()[-1]
    assert int(json.loads(newest)["request_id"]) in (17, 18)


async def test_an_audit_log_that_cannot_be_written_stops_nothing(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "audit.log").symlink_to(tmp_path / "elsewhere")
    await AuditLog(tmp_path / "audit.log").append(entry(1))
    assert not (tmp_path / "elsewhere").exists()
    assert "the audit log cannot be written" in caplog.text


async def ok(request: Request) -> JSONResponse:
    return JSONResponse({"bytes": len(await request.body())})


def limited(rates: RateLimitConfig, address: str = "10.0.0.1", **headers: str) -> httpx.AsyncClient:
    app = Starlette(routes=[Route("/health", ok), Route("/api/x", ok, methods=["GET", "POST"])])
    if rates not in GUARDS:
        GUARDS[rates] = AccessMiddleware(app, token="secret-token", rates=rates)
    transport = httpx.ASGITransport(GUARDS[rates], client=(address, 1))
    return httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1:8001", headers=headers)


GUARDS: dict[RateLimitConfig, AccessMiddleware] = {}


async def statuses(client: httpx.AsyncClient, path: str, count: int) -> list[int]:
    return [(await client.get(path)).status_code for _ in range(count)]


async def test_each_client_has_a_limit_of_its_own() -> None:
    rates = RateLimitConfig(requests_per_s=0.001, burst=2, strangers_per_s=0.001, strangers_burst=3)
    async with limited(rates, **{"X-Api-Key": "secret-token"}) as known:
        assert await statuses(known, "/api/x", 3) == [200, 200, 429]
        slow = await known.get("/api/x")
        assert int(slow.headers["retry-after"]) > 500
        assert "Retry-After" in slow.json()["detail"]
    async with limited(rates) as stranger:
        # The address is the same. Requests with and without the token are counted separately.
        assert await statuses(stranger, "/health", 1) == [200]
        assert await statuses(stranger, "/api/x", 3) == [401, 401, 429]
        assert await statuses(stranger, "/health", 1) == [429]
    async with limited(rates, "10.0.0.2", **{"X-Api-Key": "wrong"}) as guesser:
        assert await statuses(guesser, "/api/x", 4) == [401, 401, 401, 429]
    async with limited(rates, "10.0.0.3", **{"X-Api-Key": "secret-token"}) as other:
        assert await statuses(other, "/api/x", 1) == [200]


async def test_ipv4_clients_of_an_ipv6_socket_are_distinguished() -> None:
    """With `gateway.host: "::"` all of them have addresses in one IPv6 network."""
    rates = RateLimitConfig(strangers_per_s=0.001, strangers_burst=1)
    GUARDS.pop(rates, None)
    async with limited(rates, "::ffff:192.0.2.1") as flooder:
        assert await statuses(flooder, "/health", 2) == [200, 429]
    async with limited(rates, "::ffff:192.0.2.2") as other:
        assert await statuses(other, "/health", 1) == [200]
    async with limited(rates, "2001:db8::1") as one, limited(rates, "2001:db8::2") as same:
        assert await statuses(one, "/health", 1) == [200]
        assert await statuses(same, "/health", 1) == [429]


async def test_no_limit_is_no_limit() -> None:
    async with limited(RateLimitConfig(strangers_per_s=0, strangers_burst=1)) as stranger:
        assert set(await statuses(stranger, "/health", 50)) == {200}


async def test_limits_are_configured_and_counted(tmp_path: Path) -> None:
    text = "gateway: {rate_limit: {strangers_per_s: 0.001, strangers_burst: 1}}"
    async with composed(tmp_path, text) as service:
        assert await statuses(service.stranger, "/api/models", 2) == [401, 429]
        await service.client.get("/api/models/none")
        requests = service.services.stats.requests
        assert requests[("GET", "/api/models/{name}", 404)] == 1
        assert requests[("GET", UNKNOWN_ROUTE, 429)] == 1
        assert service.services.stats.in_progress == 0


async def test_wrong_tokens_are_logged_and_audited_and_a_flood_is_not(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with composed(tmp_path) as service:
        with caplog.at_level(logging.WARNING, "gateway.middleware"):
            assert (await service.stranger.get("/api/models")).status_code == 401
            assert entries(tmp_path / "home") == []
            for _ in range(200):
                wrong = {"X-Api-Key": "not-the-token"}
                answer = await service.stranger.get("/api/models", headers=wrong)
                assert answer.status_code == 401
        found = entries(tmp_path / "home")
    assert 1 <= len(found) < 20
    assert (found[0]["who"], found[0]["status"]) == ("(wrong token)", 401)
    assert found[0]["action"] == "GET (none)"
    logged = [record.getMessage() for record in caplog.records if "wrong" in record.getMessage()]
    assert len(logged) == len(found)
    assert "not-the-token" not in str(found) + str(logged)
