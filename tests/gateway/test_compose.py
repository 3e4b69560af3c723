"""The composition root: the connections between services."""

import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import anyio
import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Route

from gateway.compose import open_app
from gateway.config import load_config
from gateway.gateway_config import GatewayConfig
from gateway.serving.listener import open_listener
from gateway.serving.server import HttpServer
from store.errors import StoreLocked
from tests.fakes.langgraph import FakeLangGraph, Script
from tests.gateway.composed import TOKEN, composed
from tests.gateway.test_routes import terminal, until_rest


async def said(folder: Path, text: str, line: str) -> str:
    """Send a line at the terminal of a composed service. Return the last finished message."""
    async with composed(folder, text) as service:
        with terminal(service).attach("s1") as session:
            await session.say(line)
            return (await until_rest(service, "s1", session.events()))[-1].text


async def test_runs_can_be_had_from_a_langgraph_server(tmp_path: Path) -> None:
    async with FakeLangGraph() as server:
        answer = await said(tmp_path, f"channels: {{langgraph_url: '{server.url}'}}", "hello")
    assert answer == "Hello you"


@asynccontextmanager
async def at_a_port(app: Starlette) -> AsyncIterator[str]:
    """Serve an application as `parley serve` does. Yield its URL."""
    with open_listener(GatewayConfig(port=0)) as door:
        server = HttpServer(app, door)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(server.run_until_stopped)
            await server.ready.wait()
            yield f"http://127.0.0.1:{door.getsockname()[1]}"
            server.stop()


async def models(request: Request) -> JSONResponse:
    assert request.headers["authorization"] == f"Bearer {TOKEN}"
    return JSONResponse({"models": [{"name": "far-away"}]})


async def test_commands_can_be_answered_by_another_gateway(tmp_path: Path) -> None:
    async with at_a_port(Starlette(routes=[Route("/api/models", models)])) as url:
        answer = await said(tmp_path, f"channels: {{gateway_url: '{url}/'}}", "/models")
    assert "far-away" in answer


async def test_a_model_that_cannot_be_built_fails_visibly(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    text = "models: [{name: broken, use: 'no_such_package:Chat', model: m, api_key: hush-hush-key}]"
    # If the import linter's test runs first, its logging configuration disables existing loggers.
    logging.getLogger("gateway.compose").disabled = False
    with caplog.at_level(logging.ERROR):
        answer = await said(tmp_path, text, "hello")
        help_text = await said(tmp_path, text, "/help")
    assert "went wrong" in answer
    assert "Available commands" in help_text
    assert "no_such_package" in caplog.text
    assert "hush-hush" not in caplog.text + answer


async def test_one_data_folder_has_one_service(tmp_path: Path) -> None:
    async with composed(tmp_path):
        config = load_config(str(tmp_path / "config.yaml"), {"PARLEY_HOME": str(tmp_path / "home")})
        with pytest.raises(StoreLocked):
            async with open_app(config):
                raise AssertionError("two services in one folder")


async def test_it_can_be_left_while_a_run_hangs(tmp_path: Path) -> None:
    async with FakeLangGraph() as server:
        server.scripts.append(Script(hang_after=1))
        text = f"channels: {{langgraph_url: '{server.url}', drain_s: 0.2}}"
        with anyio.fail_after(20):
            async with composed(tmp_path, text) as service:
                with terminal(service).attach("s1") as session:
                    await session.say("hang")
                    async for event in session.events():
                        if getattr(event, "text", "").startswith("Hello"):
                            break
