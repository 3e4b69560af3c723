"""The service behind a real nginx with the configuration in deploy/nginx."""

import ssl
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.eventually import eventually
from tests.fakes.model import FakeModelServer, ModelReply
from tests.fakes.nginx import MISSING, PROGRAM, nginx
from tests.journeys.service import serving, with_model
from tests.ports import free_port

GATEWAY = {
    "trusted_proxies": ["127.0.0.1"],
    "root_path": "/parley",
    "rate_limit": {"strangers_per_s": 0.01, "strangers_burst": 5},
}


def client_at(address: str, port: int, certificate: Path) -> httpx.AsyncClient:
    """Return a client of the proxy that has its own address on the loopback interface."""
    verified = ssl.create_default_context(cafile=str(certificate))
    transport = httpx.AsyncHTTPTransport(verify=verified, local_address=address)
    return httpx.AsyncClient(
        transport=transport, base_url=f"https://127.0.0.1:{port}", timeout=30, trust_env=False
    )


@pytest.mark.skipif(PROGRAM is None, reason=MISSING)
async def test_clients_behind_a_proxy_are_distinguished_and_get_streams(tmp_path: Path) -> None:
    port = free_port()
    async with FakeModelServer() as model:
        config: dict[str, Any] = {**with_model(model.base_url), "gateway": GATEWAY}
        async with (
            serving(tmp_path, config) as service,
            nginx(tmp_path, port=port, upstream=service.port) as certificate,
            client_at("127.0.0.2", port, certificate) as guesser,
            client_at("127.0.0.3", port, certificate) as other,
        ):

            async def answers() -> bool:
                try:
                    return (await other.get("/health", headers={})).status_code == 200
                except httpx.TransportError:
                    return False

            await eventually(answers, bool)
            wrong = {"Authorization": "Bearer wrong", "X-Forwarded-For": "198.51.100.1"}
            codes = [
                (await guesser.get("/parley/api/models", headers=wrong)).status_code
                for _ in range(8)
            ]
            assert codes[:5] == [401] * 5
            assert codes[5:] == [429] * 3
            # Other clients of the same proxy are not delayed, and the address that the guesser claimed has no effect.
            assert (await other.get("/parley/health")).status_code == 200
            console = await other.get("/parley/", follow_redirects=True)
            assert (console.url.path, console.status_code) == ("/parley/console/", 200)
            audit = (service.home / "audit.log").read_text()
            assert '"127.0.0.2"' in audit
            assert "198.51.100.1" not in audit
            token = (service.home / "admin_token").read_text().strip()
            model.reply(ModelReply(text="one two three four", token_delay_s=0.2))
            body = {
                "assistant_id": "lead_agent",
                "input": {"messages": [{"role": "user", "content": "hi"}]},
                "stream_mode": ["messages-tuple"],
            }
            headers = {"Authorization": f"Bearer {token}"}
            request = other.build_request(
                "POST", "/parley/api/langgraph/runs/stream", json=body, headers=headers
            )
            response = await other.send(request, stream=True)
            assert response.status_code == 200
            assert response.headers["content-location"].startswith("/parley/api/langgraph/")
            chunks = [chunk async for chunk in response.aiter_raw()]
            # Not buffered: each word arrives separately.
            assert len(chunks) > 3
            assert b"four" in b"".join(chunks)
