"""The browser preset: its proxy, and real Chromium through Playwright's MCP server."""

import json
import shutil
import subprocess
from collections.abc import Sequence
from functools import cache
from pathlib import Path

import anyio
import httpx
import pytest

from agent.mcp.browser import HIDDEN_TOOLS, PACKAGE
from agent.network.guarded_proxy import guarded_proxy
from agent.network.url_guard import UrlGuard
from tests.agent.agent_harness import open_agent
from tests.eventually import eventually
from tests.fakes.model import ModelReply, ToolCall
from tests.fakes.scripted import ScriptedChatModel
from tests.fakes.web import WebServer, web_server

INSTALL_S = 240


def client(proxy: str) -> httpx.AsyncClient:
    return httpx.AsyncClient(proxy=proxy, trust_env=False, timeout=60, follow_redirects=True)


async def test_the_proxy_passes_on_what_the_guard_allows() -> None:
    guard = UrlGuard(allow_private_hosts=["127.0.0.1"])
    async with web_server() as server, guarded_proxy(guard) as proxy, client(proxy) as http:
        server.answer("/page", "hello")
        answer = await http.post(f"{server.url}/page?x=1", json={"a": 1}, headers={"X-A": "b"})
        assert (answer.status_code, answer.text) == (200, "hello")
        ((method, path, headers, body),) = server.asked
        assert (method, path, body) == ("POST", "/page?x=1", {"a": 1})
        assert headers["X-A"] == "b"
        assert not [name for name in headers if name.lower().startswith("proxy")]
        many = [f"{server.url}/page" for _ in range(20)]
        async with anyio.create_task_group() as tasks:
            for url in many:
                tasks.start_soon(http.get, url)
        assert len(server.asked) == 1 + len(many)


async def test_the_proxy_tunnels_to_checked_addresses() -> None:
    guard = UrlGuard(allow_private_hosts=["127.0.0.1"])
    async with web_server() as server, guarded_proxy(guard) as proxy:
        server.answer("/", "inside")
        parsed = httpx.URL(proxy)
        async with await anyio.connect_tcp(parsed.host, parsed.port or 0) as stream:
            await stream.send(f"CONNECT 127.0.0.1:{server.port} HTTP/1.1\r\n\r\n".encode())
            assert b" 200 " in await stream.receive()
            await stream.send(b"GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
            answer = b""
            async for part in stream:
                answer += part
        assert answer.endswith(b"inside")


@pytest.mark.parametrize(
    "host", ["127.0.0.2", "localhost", "10.0.0.1", "169.254.169.254", "[::1]", "2130706434"]
)
async def test_the_proxy_refuses_private_networks(host: str) -> None:
    guard = UrlGuard(allow_private_hosts=["127.0.0.1"])
    async with web_server() as server, guarded_proxy(guard) as proxy, client(proxy) as http:
        server.answer("/away", status=302, headers={"Location": f"http://{host}:{server.port}/"})
        assert (await http.get(f"http://{host}:{server.port}/")).status_code == 403
        assert (await http.get(f"{server.url}/away")).status_code == 403
        with pytest.raises(httpx.ProxyError, match="403"):
            await http.get(f"https://{host}:{server.port}/")
        assert server.paths == ["/away"]


@pytest.mark.parametrize(
    "head", ["GET / HTTP/1.1", "GET ftp://a.example/ HTTP/1.1", "x", "A B C D"]
)
async def test_the_proxy_refuses_what_is_no_proxy_request(head: str) -> None:
    async with guarded_proxy(UrlGuard()) as proxy:
        parsed = httpx.URL(proxy)
        async with await anyio.connect_tcp(parsed.host, parsed.port or 0) as stream:
            await stream.send(f"{head}\r\nHost: a.example\r\n\r\n".encode())
            assert (await stream.receive()).startswith(b"HTTP/1.1 403 ")


@cache
def missing() -> str:
    """Return what the browser needs and this machine lacks; "" = nothing."""
    if not (shutil.which("chromium") or shutil.which("google-chrome")):
        return "chromium is not installed"
    npx = shutil.which("npx")
    if npx is None:
        return "npx is not installed"
    try:
        command = [npx, "--yes", PACKAGE, "--version"]
        done = subprocess.run(command, capture_output=True, timeout=INSTALL_S, check=False)
    except subprocess.TimeoutExpired:
        return f"npm did not install {PACKAGE} in time"
    return "" if done.returncode == 0 else f"npm cannot install {PACKAGE}"


async def browse(
    home: Path, server: WebServer, *calls: tuple[str, dict[str, object]]
) -> Sequence[str]:
    """Let an agent use the browser, and return the results. It may connect to 127.0.0.1."""
    model = ScriptedChatModel.playing(
        *(
            ModelReply(calls=(ToolCall(name=f"web_browser_{name}", args=args, id=f"c{n}"),))
            for n, (name, args) in enumerate(calls)
        ),
        "Done.",
    )
    extensions = home / "extensions_config.json"
    entry = {"preset": "playwright", "allow_private_hosts": ["127.0.0.1"]}
    extensions.write_text(json.dumps({"mcpServers": {"web": entry}}))
    config = {"mcp": {"connect_timeout_seconds": 120, "call_timeout_seconds": 120}}
    async with open_agent(home, model, config, extensions=extensions) as harness:

        async def state() -> str:
            (status,) = await harness.services.mcp.statuses()
            return f"{status.state} {status.error}"

        await eventually(state, lambda found: found.startswith("connected"), within_s=240)
        messages = await harness.say("Go there.")
    return [message.text for message in messages if message.type == "tool"]


@pytest.mark.timeout(600)
async def test_the_agent_reads_pages_in_a_browser_but_no_private_ones(tmp_path: Path) -> None:
    if problem := await anyio.to_thread.run_sync(missing):
        pytest.skip(problem)
    async with web_server() as server:
        secret = f"http://127.0.0.2:{server.port}/secret"
        server.answer(
            "/page",
            "<title>A page</title><p id=a>old</p><script>"
            "document.getElementById('a').textContent = 'made by ' + 'a script';"
            f"fetch('{secret}').catch(() => 0);</script><img src='{secret}?image'>",
        )
        server.answer("/away", status=302, headers={"Location": secret})
        server.answer("/secret", "the private page")
        results = await browse(
            tmp_path,
            server,
            ("navigate", {"url": f"{server.url}/page"}),
            ("snapshot", {}),
            ("navigate", {"url": f"{server.url}/away"}),
            ("snapshot", {}),
            ("navigate", {"url": secret}),
            ("navigate", {"url": f"http://localhost:{server.port}/secret"}),
            ("navigate", {"url": "file:///etc/passwd"}),
            ("run_code_unsafe", {"code": "async () => 1"}),
        )
    assert "made by a script" in results[1]
    assert not any("the private page" in result for result in results)
    assert "root:" not in str(results)
    assert "not a valid tool" in results[-1]
    assert {path.partition("?")[0] for path in server.paths} <= {"/page", "/away", "/favicon.ico"}
    assert "browser_run_code_unsafe" in HIDDEN_TOOLS
