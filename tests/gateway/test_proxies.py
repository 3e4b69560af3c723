"""Which X-Forwarded-For and -Proto headers are trusted, and paths below a root path."""

from typing import Any

import httpx
import pytest
from starlette.types import Receive, Scope, Send

from gateway.gateway_config import GatewayConfig
from gateway.proxies import ProxyMiddleware
from tests.asgi import StreamingASGITransport


class ScopeRecorder:
    """An application that records the last scope."""

    def __init__(self) -> None:
        self.scope: dict[str, Any] = {}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        self.scope = dict(scope)
        headers = [(b"location", b"/runs/1"), (b"content-location", b"/api/runs/1")]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": b""})


async def get(
    path: str, headers: dict[str, str], *, peer: str = "10.0.0.5", root_path: str = ""
) -> tuple[dict[str, Any], httpx.Response]:
    """Send a request from a peer, with two trusted proxies configured."""
    seen = ScopeRecorder()
    app = ProxyMiddleware(seen, trusted=["10.0.0.0/8", "::1"], root_path=root_path)
    transport = StreamingASGITransport(app, client=(peer, 4000))
    async with httpx.AsyncClient(transport=transport, base_url="http://parley") as client:
        answer = await client.get(path, headers=headers)
    return seen.scope, answer


@pytest.mark.parametrize(
    ("peer", "forwarded", "client"),
    [
        ("10.0.0.5", "203.0.113.7", "203.0.113.7"),
        ("10.0.0.5", "203.0.113.7:5123", "203.0.113.7"),
        ("10.0.0.5", "[2001:db8::7]:443", "2001:db8::7"),
        # The addresses before the last untrusted one were invented by the client.
        ("10.0.0.5", "127.0.0.1, 203.0.113.7, 10.0.0.9", "203.0.113.7"),
        ("::1", "203.0.113.7", "203.0.113.7"),
        ("::ffff:10.0.0.5", "203.0.113.7", "203.0.113.7"),
        ("10.0.0.5", "unknown", "10.0.0.5"),
        ("10.0.0.5", "203.0.113.7, unknown", "10.0.0.5"),
        ("10.0.0.5", "", "10.0.0.5"),
        ("10.0.0.5", "10.0.0.9", "10.0.0.5"),
        # Not a trusted proxy, so its header is ignored.
        ("203.0.113.66", "127.0.0.1", "203.0.113.66"),
    ],
)
async def test_only_trusted_proxies_name_the_client(peer: str, forwarded: str, client: str) -> None:
    scope, _ = await get("/x", {"x-forwarded-for": forwarded}, peer=peer)
    assert scope["client"][0] == client


@pytest.mark.parametrize(
    ("peer", "proto", "scheme"),
    [
        ("10.0.0.5", "https", "https"),
        ("10.0.0.5", "gopher", "http"),
        ("203.0.113.66", "https", "http"),
    ],
)
async def test_only_trusted_proxies_name_the_scheme(peer: str, proto: str, scheme: str) -> None:
    scope, _ = await get("/x", {"x-forwarded-proto": proto}, peer=peer)
    assert scope["scheme"] == scheme


@pytest.mark.parametrize(
    ("requested", "path"),
    [
        ("/parley/api/models", "/api/models"),
        ("/api/models", "/api/models"),
        ("/parley", "/"),
        ("/parleyx", "/parleyx"),
    ],
)
async def test_the_root_path_is_removed_and_added(requested: str, path: str) -> None:
    scope, answer = await get(requested, {}, root_path="/parley")
    assert scope["path"] == path
    assert scope["raw_path"] == path.encode()
    assert answer.headers["content-location"] == "/parley/api/runs/1"
    # LangGraph's clients append it to their base URL.
    assert answer.headers["location"] == "/runs/1"


@pytest.mark.parametrize(
    "section",
    [
        {"trusted_proxies": ["proxy.example.org"]},
        {"trusted_proxies": ["*"]},
        {"root_path": "parley"},
        {"root_path": "/parley/"},
    ],
)
def test_values_that_cannot_be_used_are_rejected(section: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=next(iter(section))):
        GatewayConfig.model_validate(section)
