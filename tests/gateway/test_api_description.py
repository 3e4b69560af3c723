"""The OpenAPI document at the root, and the hint for clients that expect the LangGraph API there."""

from pathlib import Path

import httpx
import pytest

from gateway.app import network_app
from gateway.gateway_config import GatewayConfig
from gateway.routes.api_description import UNDER_API
from tests.gateway.composed import composed

TOKEN = "a-token-of-the-tests"


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("POST", "/threads"),
        ("POST", "/threads/search"),
        ("GET", "/threads/0190f6e2-1111-7000-8000-000000000001/state"),
        ("POST", "/runs/stream"),
        ("POST", "/runs/wait"),
        ("POST", "/assistants/search"),
        ("GET", "/assistants/lead_agent"),
        ("PUT", "/store/items"),
        ("GET", "/info"),
        ("GET", "/ok"),
    ],
)
async def test_langgraph_paths_at_the_root_say_where_the_api_is(
    tmp_path: Path, method: str, path: str
) -> None:
    async with composed(tmp_path) as service:
        answer = await service.client.request(method, path)
        assert (answer.status_code, answer.json()) == (404, {"detail": UNDER_API})
        assert (await service.client.get("/nothing")).json() == {"detail": "Not Found"}


async def test_the_openapi_document_is_there_without_a_token(tmp_path: Path) -> None:
    async with composed(tmp_path) as service:
        app = network_app(service.app, GatewayConfig(), token=TOKEN)
        transport = httpx.ASGITransport(app)
        async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as client:
            document = await client.get("/openapi.json")
            assert document.status_code == 200
            assert document.json()["paths"].keys() >= {"/api/threads", "/api/models"}
            assert (await client.get("/api/openapi.json")).status_code == 401
            assert (await client.post("/openapi.json")).status_code == 401
            assert (await client.post("/threads")).status_code == 401
