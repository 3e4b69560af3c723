"""Access control at the port, and the admin token."""

import re
import stat
from collections.abc import AsyncIterator
from pathlib import Path

import anyio
import anyio.to_thread
import httpx
import pytest
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Route
from starlette.types import Message

from gateway.app import with_access_control
from gateway.auth import (
    MAX_BODY_BYTES,
    OPEN_PATHS,
    AccessMiddleware,
    AdminToken,
    limit_body,
    load_admin_token,
)
from gateway.config import Config, load_config
from gateway.config_file import ConfigError
from gateway.gateway_config import GatewayConfig
from tests.eventually import is_waiting
from tests.gateway.composed import TOKEN, composed


async def echo(request: Request) -> JSONResponse:
    return JSONResponse({"bytes": len(await request.body())})


APP = Starlette(
    routes=[
        Route("/health", echo),
        Route("/api/x", echo, methods=["GET", "POST"]),
    ]
)


def client(app: object, **headers: str) -> httpx.AsyncClient:
    transport = httpx.ASGITransport(app)  # type: ignore[arg-type]
    return httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1:8001", headers=headers)


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({}, 401),
        ({"Authorization": "Bearer secret-token"}, 200),
        ({"Authorization": "bearer  secret-token "}, 200),
        ({"X-Api-Key": "secret-token"}, 200),
        ({"Authorization": "Bearer wrong"}, 401),
        ({"Authorization": "Bearer"}, 401),
        ({"Authorization": "Basic secret-token"}, 401),
        ({"Authorization": "secret-token"}, 401),
        ({"X-Api-Key": "secret-toke"}, 401),
        ({"X-Api-Key": "secret-token-and-more"}, 401),
        ({"X-Api-Key": ""}, 401),
        ({"Cookie": "token=secret-token"}, 401),
    ],
)
async def test_the_token_opens_the_api(headers: dict[str, str], status: int) -> None:
    async with client(AccessMiddleware(APP, token="secret-token"), **headers) as operator:
        answer = await operator.get("/api/x")
    assert answer.status_code == status
    if status == 401:
        assert "www-authenticate" in answer.headers
        assert "detail" in answer.json()
        assert "secret-token" not in answer.text


async def test_a_token_that_is_not_ascii_is_only_wrong() -> None:
    async with client(AccessMiddleware(APP, token="secret-token")) as operator:
        answer = await operator.get("/api/x", headers=[(b"x-api-key", b"\xff\xfe\xfd")])
    assert answer.status_code == 401


async def test_health_needs_no_token() -> None:
    async with client(AccessMiddleware(APP, token="secret-token")) as operator:
        assert (await operator.get("/health")).status_code == 200
        assert (await operator.get("/health/")).status_code == 401
        assert (await operator.get("/healthy")).status_code == 401


async def test_auth_none_asks_nobody() -> None:
    async with client(AccessMiddleware(APP, token=None)) as operator:
        assert (await operator.get("/api/x")).status_code == 200


@pytest.mark.parametrize(
    ("host", "status"),
    [
        ("127.0.0.1:8001", 200),
        ("localhost", 200),
        ("LOCALHOST:1", 200),
        ("[::1]:8001", 200),
        ("bot.example.org", 200),
        ("box.lan:8001", 200),
        ("evil.example", 421),
        ("evil.example:8001", 421),
        ("127.0.0.1.evil.example", 421),
        ("127.0.0.1@evil.example", 421),
        ("0.0.0.0:8001", 421),
        ("", 421),
        ("a:b:c", 421),
    ],
)
async def test_only_known_host_names_are_answered(host: str, status: int) -> None:
    guard = AccessMiddleware(
        APP,
        token=None,
        hosts=[
            "0.0.0.0",  # noqa: S104 - refused
            "bot.example.org",
            "Box.lan",
        ],
    )
    async with client(guard) as operator:
        for path in ("/api/x", "/health"):
            assert (await operator.get(path, headers={"Host": host})).status_code == status


async def test_a_request_with_two_hosts_is_refused() -> None:
    """A proxy in front of Parley may use the second one."""
    async with client(AccessMiddleware(APP, token=None)) as operator:
        for hosts in (
            ("localhost", "evil.example"),
            ("evil.example", "localhost"),
            ("localhost",) * 2,
        ):
            headers = [("Host", host) for host in hosts]
            assert (await operator.get("/api/x", headers=headers)).status_code == 400


@pytest.mark.parametrize(
    ("method", "origin", "status"),
    [
        ("POST", None, 200),
        ("POST", "http://127.0.0.1:8001", 200),
        ("POST", "https://chat.example.org", 200),
        ("POST", "https://evil.example", 403),
        ("POST", "null", 403),
        ("POST", "http://127.0.0.1:9999", 403),
        ("POST", "http://[", 403),
        ("GET", "https://evil.example", 200),
    ],
)
async def test_foreign_pages_change_nothing(method: str, origin: str | None, status: int) -> None:
    guard = AccessMiddleware(APP, token=None, origins=["https://chat.example.org"])
    headers = {"Origin": origin} if origin is not None else {}
    async with client(guard) as page:
        assert (await page.request(method, "/api/x", headers=headers)).status_code == status
    async with client(AccessMiddleware(APP, token="secret-token")) as page:
        trusted = {"X-Api-Key": "secret-token", **headers}
        assert (await page.request(method, "/api/x", headers=trusted)).status_code == 200
        assert (await page.request(method, "/api/x", headers=headers)).status_code == 401


async def test_allowed_pages_get_cors_headers_and_others_none() -> None:
    config = GatewayConfig(cors_origins=["https://chat.example.org"])
    preflight = {
        "Access-Control-Request-Method": "POST",
        "Access-Control-Request-Headers": "x-api-key",
    }
    async with client(with_access_control(APP, config, token="secret-token")) as page:
        good = await page.options(
            "/api/x", headers={"Origin": "https://chat.example.org", **preflight}
        )
        assert good.status_code == 200
        assert good.headers["access-control-allow-origin"] == "https://chat.example.org"
        bad = await page.options("/api/x", headers={"Origin": "https://evil.example", **preflight})
        assert "access-control-allow-origin" not in bad.headers
        answer = await page.get(
            "/api/x", headers={"Origin": "https://chat.example.org", "X-Api-Key": "secret-token"}
        )
        assert "Content-Location" in answer.headers["access-control-expose-headers"]


async def test_large_bodies_are_refused_announced_or_not() -> None:
    async def pieces() -> AsyncIterator[bytes]:
        for _ in range(11):
            yield b"x" * 1_000_000

    async with client(AccessMiddleware(APP, token=None)) as operator:
        assert (await operator.post("/api/x", content=b"x" * 1000)).json() == {"bytes": 1000}
        announced = await operator.post("/api/x", content=b"x" * (MAX_BODY_BYTES + 1))
        assert announced.status_code == 413
        streamed = await operator.post("/api/x", content=pieces())
        assert streamed.status_code == 413
        for length in (b"-1", b"\xb2", b"1e9"):
            odd = await operator.post("/api/x", content=b"x", headers=[(b"content-length", length)])
            assert odd.status_code == 413


async def test_a_stalled_body_is_given_up() -> None:
    async def first_half_only() -> Message:
        if not sent:
            sent.append(True)
            return {"type": "http.request", "body": b"{", "more_body": True}
        await anyio.sleep_forever()
        raise AssertionError

    sent: list[bool] = []
    receive = limit_body(first_half_only, 10, pause_s=0.01)
    await receive()
    with anyio.fail_after(20), pytest.raises(HTTPException) as caught:
        await receive()
    assert caught.value.status_code == 408


async def test_after_its_body_a_client_may_be_silent() -> None:
    gone = anyio.Event()

    async def whole() -> Message:
        if not sent:
            sent.append(True)
            return {"type": "http.request", "body": b"{}", "more_body": False}
        await gone.wait()
        return {"type": "http.disconnect"}

    sent: list[bool] = []
    receive = limit_body(whole, 10, pause_s=5)
    assert (await receive())["body"] == b"{}"
    assert await is_waiting(receive)
    gone.set()
    assert (await receive())["type"] == "http.disconnect"


async def test_every_route_but_health_needs_the_token(tmp_path: Path) -> None:
    async with composed(tmp_path) as service:
        table = [
            (method.upper(), re.sub(r"\{[^}]*\}", "x", path))
            for path, methods in service.app.openapi()["paths"].items()
            for method in methods
        ]
        table += [(how, path.replace("/api/", "/api/langgraph/", 1)) for how, path in table]
        assert len(table) > 60
        for method, path in table:
            is_open = path in OPEN_PATHS
            for headers in ({}, {"Authorization": "Bearer wrong"}):
                answer = await service.stranger.request(method, path, headers=headers)
                assert (answer.status_code == 401) != is_open, f"{method} {path}"
        assert (await service.client.get("/api/models")).status_code == 200


def test_a_generated_token_is_kept_for_the_user_alone(tmp_path: Path) -> None:
    config = load_config(None, {"PARLEY_HOME": str(tmp_path / "home")})
    first = load_admin_token(config)
    assert first is not None
    assert first.generated
    assert len(first.value) >= 32
    assert stat.S_IMODE(config.token_file.stat().st_mode) == 0o600
    assert stat.S_IMODE(config.home.stat().st_mode) == 0o700
    again = load_admin_token(config)
    assert again is not None
    assert (again.value, again.generated) == (first.value, False)


async def test_processes_that_start_at_once_in_a_shared_folder_have_the_same_token(
    tmp_path: Path,
) -> None:
    for number in range(30):
        config = load_config(None, {"PARLEY_HOME": str(tmp_path / str(number))})
        found: list[AdminToken | None] = []

        async def start(config: Config, found: list[AdminToken | None]) -> None:
            found.append(await anyio.to_thread.run_sync(load_admin_token, config))

        async with anyio.create_task_group() as group:
            for _ in range(8):
                group.start_soon(start, config, found)
        assert len({token.value for token in found if token}) == 1
        assert sum(token.generated for token in found if token) == 1
        assert [path.name for path in config.home.iterdir()] == [config.token_file.name]


def test_a_configured_token_is_not_written(tmp_path: Path) -> None:
    environ = {"PARLEY_HOME": str(tmp_path / "home"), "PARLEY_ADMIN_TOKEN": TOKEN}
    config = load_config(None, environ)
    token = load_admin_token(config)
    assert token is not None
    assert (token.value, token.generated) == (TOKEN, False)
    assert not config.token_file.exists()


def test_tokens_that_cannot_be_stored_or_read_are_reported(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigError, match="PARLEY_HOME"):
        load_admin_token(load_config(None, {"PARLEY_HOME": str(tmp_path / "file" / "home")}))
    (tmp_path / "admin_token").write_text("\n")
    with pytest.raises(ConfigError, match="delete the file"):
        load_admin_token(load_config(None, {"PARLEY_HOME": str(tmp_path)}))


def test_a_planted_link_is_not_written_through(tmp_path: Path) -> None:
    target = tmp_path / "elsewhere"
    (tmp_path / "admin_token").symlink_to(target)
    with pytest.raises(ConfigError):
        load_admin_token(load_config(None, {"PARLEY_HOME": str(tmp_path)}))
    assert not target.exists()
