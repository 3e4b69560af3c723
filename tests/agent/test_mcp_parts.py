"""Parts of the MCP package: configuration, tool names, tokens, results, error descriptions."""

import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import httpx
import pytest
from aiohttp import web
from hypothesis import given
from hypothesis import strategies as st
from mcp.types import (
    AudioContent,
    BlobResourceContents,
    CallToolResult,
    ContentBlock,
    EmbeddedResource,
    ImageContent,
    ResourceLink,
    TextContent,
    TextResourceContents,
)
from pydantic import AnyUrl, ValidationError

from agent.config import McpConfig
from agent.errors import McpServerUnusable
from agent.mcp.errors import describe_error
from agent.mcp.images import image_path, save_images
from agent.mcp.oauth import OAuthTokenAuth, OAuthTokenSource
from agent.mcp.results import EMPTY, parse_result, parse_tools, result_text
from agent.mcp.server_config import McpOAuthConfig, expand_variables, parse_server
from agent.mcp.tool_names import MAX_CHARS, tool_name, unique_names
from agent.thread_storage import ThreadStorage
from tests.fakes.clock import ManualClock

# ---- entries -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("entry", "kind"),
    [
        ({"command": "npx"}, "stdio"),
        ({"type": "stdio", "command": "npx"}, "stdio"),
        ({"transport": "stdio", "command": "npx", "type": None}, "stdio"),
        ({"url": "http://h/mcp"}, "http"),
        ({"type": "http", "url": "http://h/mcp"}, "http"),
        ({"type": "streamable_http", "url": "http://h/mcp"}, "http"),
        ({"transport": "streamable-http", "url": "http://h/mcp"}, "http"),
        ({"transport": "SSE", "url": "https://h/sse"}, "sse"),
    ],
)
def test_transport_names(entry: dict[str, Any], kind: str) -> None:
    assert parse_server(entry, {}).type == kind


def test_variables_are_expanded_anywhere() -> None:
    entry = {
        "command": "$RUNNER",
        "args": ["-y", "$PACKAGE", "$UNSET", 7],
        "env": {"TOKEN": "$TOKEN", "EMPTY": "$UNSET", "FLAG": True, "N": 3, "none": None},
        "headers": {"Authorization": "Bearer ${TOKEN}", "X": "pa$word"},
        "description": None,
    }
    server = parse_server(entry, {"RUNNER": "npx", "PACKAGE": "@x/y", "TOKEN": "hush-hush"})
    assert server.command == "npx"
    assert server.args == ("-y", "@x/y", "", "7")
    assert server.env == {"TOKEN": "hush-hush", "EMPTY": "", "FLAG": "true", "N": "3"}
    assert server.headers == {"Authorization": "Bearer hush-hush", "X": "pa$word"}
    assert "hush-hush" not in repr(server)


@given(st.recursive(st.none() | st.booleans() | st.integers() | st.text(), st.lists, max_leaves=8))
def test_without_dollars_nothing_changes(value: object) -> None:
    if "$" not in str(value):
        assert expand_variables(value, {"A": "b"}) == value


@pytest.mark.parametrize(
    ("entry", "text"),
    [
        ({}, "a stdio server needs `command`"),
        ({"command": ""}, "a stdio server needs `command`"),
        ({"command": "$UNSET"}, "a stdio server needs `command`"),
        ({"type": "sse"}, "a server of type sse needs `url`"),
        ({"type": "http", "url": "file:///etc/passwd"}, "must start with http"),
        ({"type": "smoke-signals", "command": "hush-hush"}, "type"),
        ({"command": ["hush-hush"]}, "command"),
        ({"command": "x", "args": "hush-hush"}, "args"),
        ({"command": "x", "env": ["hush-hush"]}, "env"),
        ({"url": "http://h", "oauth": {"token_url": "hush-hush"}}, "oauth.token_url"),
        ({"url": "http://h", "oauth": {"token_url": "http://t", "grant_type": "password"}}, "oauth.grant_type"),
        ({"url": "http://h", "oauth": {"token_url": "http://t", "refresh_skew_seconds": float("nan")}}, "refresh_skew"),
    ],
)  # fmt: skip
def test_invalid_entries_are_described_without_values(entry: dict[str, Any], text: str) -> None:
    with pytest.raises(McpServerUnusable) as caught:
        parse_server(entry, {})
    assert text in caught.value.user_message
    assert "hush-hush" not in caught.value.user_message
    assert "\n" not in caught.value.user_message


@pytest.mark.parametrize(
    "key",
    [
        "connect_timeout_seconds",
        "discovery_timeout_seconds",
        "call_timeout_seconds",
        "retry_seconds",
        "idle_seconds",
    ],
)
@pytest.mark.parametrize("value", [0, -1, float("nan"), float("inf"), "soon"])
def test_deadlines_must_be_positive(key: str, value: object) -> None:
    with pytest.raises(ValidationError):
        McpConfig.model_validate({key: value})


# ---- names -------------------------------------------------------------------------------------


@given(st.lists(st.tuples(st.text(max_size=80), st.text(max_size=80)), unique=True, max_size=12))
def test_tool_names_are_valid_for_providers(tools: list[tuple[str, str]]) -> None:
    names = unique_names(tools)
    assert len(set(names.values())) == len(names)
    for name in names.values():
        assert 1 <= len(name) <= MAX_CHARS
        assert all(char.isascii() and (char.isalnum() or char in "_-") for char in name)


def test_long_names_with_equal_prefixes_stay_unique() -> None:
    tools = [("server", "x" * 100 + str(n)) for n in range(5)]
    assert len(set(unique_names(tools).values())) == 5
    assert tool_name("gh", "issues") == "gh_issues"


# ---- tokens ------------------------------------------------------------------------------------


class TokenServer:
    """A token endpoint: records requests, and returns scripted answers."""

    def __init__(self) -> None:
        self.asked: list[dict[str, str]] = []
        self.answers: list[web.Response | dict[str, Any]] = []
        self.gate = anyio.Event()
        self.gate.set()
        self.came = anyio.Event()
        self.url = ""

    async def token(self, request: web.Request) -> web.StreamResponse:
        form = await request.post()
        self.asked.append({key: str(value) for key, value in form.items()})
        self.came.set()
        await self.gate.wait()
        count = len(self.asked)
        answer = self.answers.pop(0) if self.answers else {"access_token": f"t{count}"}
        return answer if isinstance(answer, web.Response) else web.json_response(answer)


@asynccontextmanager
async def token_server() -> AsyncIterator[TokenServer]:
    server = TokenServer()
    app = web.Application()
    app.router.add_post("/token", server.token)
    runner = web.AppRunner(app)
    await runner.setup()
    try:
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        host, port = runner.addresses[0][:2]
        server.url = f"http://{host}:{port}/token"
        yield server
    finally:
        await runner.cleanup()


def source(
    server: TokenServer, clock: Callable[[], float] | None = None, **config: object
) -> OAuthTokenSource:
    keys = {"token_url": server.url, "client_id": "id", "client_secret": "hush-hush", **config}
    settings = McpOAuthConfig.model_validate(keys)
    return OAuthTokenSource(settings, httpx.AsyncClient, clock or ManualClock())


async def test_client_credentials() -> None:
    async with token_server() as server:
        tokens = source(server, scope="a b", audience="api", extra_token_params={"resource": "r"})
        assert await tokens.header() == "Bearer t1"
        assert server.asked == [
            {
                "grant_type": "client_credentials",
                "client_id": "id",
                "client_secret": "hush-hush",
                "scope": "a b",
                "audience": "api",
                "resource": "r",
            }
        ]


async def test_extra_parameters_do_not_override() -> None:
    async with token_server() as server:
        stolen = {"grant_type": "password", "client_secret": "other", "refresh_token": "x"}
        await source(server, extra_token_params=stolen).header()
        assert server.asked[0]["grant_type"] == "client_credentials"
        assert server.asked[0]["client_secret"] == "hush-hush"
        assert "refresh_token" not in server.asked[0]


async def test_tokens_are_cached_until_shortly_before_expiry() -> None:
    async with token_server() as server:
        clock = ManualClock()
        server.answers = [{"access_token": "a", "expires_in": 100}, {"access_token": "b"}]
        tokens = source(server, clock, refresh_skew_seconds=60)
        assert await tokens.header() == "Bearer a"
        clock.now += 39.9
        assert await tokens.header() == "Bearer a"
        clock.now += 0.1
        assert await tokens.header() == "Bearer b"
        clock.now += 3600 - 60 - 1  # without a stated lifetime: one hour
        assert await tokens.header() == "Bearer b"
        clock.now += 1
        assert await tokens.header() == "Bearer t3"


async def test_concurrent_callers_share_one_token_request() -> None:
    async with token_server() as server:
        server.gate = anyio.Event()
        tokens = source(server)
        headers: list[str] = []

        async def ask() -> None:
            headers.append(await tokens.header())

        async with anyio.create_task_group() as tasks:
            for _ in range(20):
                tasks.start_soon(ask)
            with anyio.fail_after(20):
                await server.came.wait()
            server.gate.set()
        assert headers == ["Bearer t1"] * 20
        assert len(server.asked) == 1


async def test_refresh_tokens_are_rotated() -> None:
    async with token_server() as server:
        clock = ManualClock()
        server.answers = [
            {"access_token": "a", "refresh_token": "r2"},
            {"access_token": "b"},
            {"access_token": "c"},
        ]
        tokens = source(
            server, clock, grant_type="refresh_token", refresh_token="r1", client_secret=None
        )
        for _ in range(3):
            await tokens.header()
            clock.now += 7200
        assert [form["refresh_token"] for form in server.asked] == ["r1", "r2", "r2"]
        assert "client_secret" not in server.asked[0]


async def test_configured_field_names() -> None:
    async with token_server() as server:
        server.answers = [{"tok": "a", "kind": "DPoP", "life": "100"}]
        tokens = source(server, token_field="tok", token_type_field="kind", expires_in_field="life")
        assert await tokens.header() == "DPoP a"


@pytest.mark.parametrize("life", [0, -5, float("nan"), "soon", None, [], True])
async def test_invalid_lifetimes_use_the_default(life: object) -> None:
    async with token_server() as server:
        text = json.dumps({"access_token": "a", "expires_in": life})
        server.answers = [web.Response(text=text, content_type="application/json")]
        tokens = source(server, refresh_skew_seconds=0)
        assert await tokens.header() == "Bearer a"


@pytest.mark.parametrize(
    ("answer", "text"),
    [
        (web.Response(status=401, text="hush-hush"), "the token server responded with HTTP 401"),
        (web.Response(text="<html>hush-hush"), "is not JSON"),
        ({"token": "hush-hush"}, "has no 'access_token'"),
        ({"access_token": ""}, "has no 'access_token'"),
    ],
)
async def test_token_server_errors(answer: web.Response | dict[str, Any], text: str) -> None:
    async with token_server() as server:
        server.answers = [answer]
        tokens = source(server)
        with pytest.raises(McpServerUnusable) as caught:
            await tokens.header()
        assert text in caught.value.user_message
        assert "hush-hush" not in caught.value.user_message
        assert await tokens.header() == "Bearer t2"


@pytest.mark.parametrize(
    ("config", "text"),
    [
        ({"client_secret": ""}, "client_credentials needs client_secret"),
        ({"client_id": None, "client_secret": None}, "needs client_id and client_secret"),
        ({"grant_type": "refresh_token"}, "refresh_token needs refresh_token"),
    ],
)
async def test_missing_oauth_settings_are_named(config: dict[str, Any], text: str) -> None:
    async with token_server() as server:
        with pytest.raises(McpServerUnusable, match=text):
            await source(server, **config).header()
        assert server.asked == []


async def test_unreachable_token_server() -> None:
    async with token_server() as server:
        tokens = source(server)
    with pytest.raises(McpServerUnusable, match="cannot be reached"):
        await tokens.header()


async def test_after_a_401_another_token_is_fetched_once() -> None:
    async with token_server() as server:
        tokens = source(server)
        seen: list[str] = []

        def answer(request: httpx.Request) -> httpx.Response:
            seen.append(request.headers["Authorization"])
            return httpx.Response(200 if seen[-1] == "Bearer t2" else 401)

        transport = httpx.MockTransport(answer)
        async with httpx.AsyncClient(transport=transport, auth=OAuthTokenAuth(tokens)) as client:
            assert (await client.get("http://h/")).status_code == 200
            assert seen == ["Bearer t1", "Bearer t2"]
            assert (await client.get("http://h/")).status_code == 200
        assert len(server.asked) == 2


# ---- results -----------------------------------------------------------------------------------


def result(*content: ContentBlock, **more: Any) -> CallToolResult:  # noqa: ANN401 - its fields
    return CallToolResult(content=list(content), **more)


def text(said: str) -> TextContent:
    return TextContent(type="text", text=said)


BLOB = "QUJD" * 100


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (result(text("a"), text("b")), "a\nb"),
        (result(), EMPTY),
        (result(structuredContent={"ü": 1}), '{"ü": 1}'),
        (result(text("a"), structuredContent={"x": 1}), 'a\n{"x": 1}'),
        (result(text("a"), structuredContent={"result": "a"}), "a"),
        (result(text('{"x": 1}'), structuredContent={"x": 1}), '{"x": 1}'),
        (result(text("[1]"), structuredContent={"result": [1]}), "[1]"),
        (
            result(text("GET https://u:pw@h/a?key=123 failed: token=abc"), isError=True),
            "Error: GET https://***@h/a?key=*** failed: token=***",
        ),
        (result(text("no"), isError=True), "Error: no"),
        (result(text("Error: no"), isError=True), "Error: no"),
        (result(isError=True), "Error: the tool failed without a message"),
        (result(ImageContent(type="image", data=BLOB, mimeType="a/b")), "[image, a/b, 300 bytes, not shown]"),
        (result(AudioContent(type="audio", data=BLOB, mimeType="a/b")), "[audio, a/b, 300 bytes, not shown]"),
        (result(ResourceLink(type="resource_link", name="log", uri=AnyUrl("file:///log"))), "[resource log: file:///log]"),
        (
            result(EmbeddedResource(type="resource", resource=TextResourceContents(uri=AnyUrl("x://a"), text="inner"))),
            "inner",
        ),
        (
            result(EmbeddedResource(type="resource", resource=BlobResourceContents(uri=AnyUrl("x://a"), blob=BLOB))),
            "[file x://a, of unknown type, 300 bytes, not shown]",
        ),
    ],
)  # fmt: skip
def test_results_are_texts(answer: CallToolResult, said: str) -> None:
    assert result_text(answer) == said


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        ({"content": [{"type": "text", "text": "a", "annotations": None, "_meta": None}]}, "a"),
        ({"content": [{"type": "text", "text": "a"}, {"type": "chart", "x": 1}]}, 'a\n{"type": "chart", "x": 1}'),
        ({"content": [{"type": "markdown", "text": "# a"}]}, "# a"),
        ({"content": [{"text": "a"}]}, "a"),
        ({"content": [{"type": "image", "url": "x://a"}]}, '{"type": "image", "url": "x://a"}'),
        ({"content": "bare"}, "bare"),
        ({"content": {"type": "text", "text": "one"}}, "one"),
        ({"content": ["a", 7, None]}, "a\n7\nnull"),
        ({"content": None, "structuredContent": {"x": 1}, "isError": None}, '{"x": 1}'),
        ({"structuredContent": {"x": 1}}, '{"x": 1}'),
        ({"content": [], "structuredContent": [1]}, "[1]"),
        ({"content": [{"type": "text", "text": "no"}], "isError": True}, "Error: no"),
        ({}, EMPTY),
    ],
)  # fmt: skip
def test_answers_in_odd_forms_are_read(answer: dict[str, Any], said: str) -> None:
    assert result_text(parse_result(answer)) == said


def test_one_tool_that_cannot_be_read_leaves_the_others_usable() -> None:
    listed = [
        {"name": "a", "description": None, "annotations": None, "inputSchema": None},
        {"name": 7},
        "b",
        {"name": "c", "inputSchema": {"type": "object"}, "outputSchema": None, "icons": None},
    ]
    assert [tool.name for tool in parse_tools(listed)] == ["a", "c"]
    assert parse_tools(None) == []


# ---- faults ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (FileNotFoundError(2, "no", "/usr/bin/hush-hush"), "its command is not installed"),
        (PermissionError(13, "no", "/usr/bin/hush-hush"), "its command is not executable"),
        (TimeoutError("hush-hush"), "it did not respond in time"),
        (httpx.ConnectError("http://hush-hush"), "it cannot be reached"),
        (httpx.ReadError("http://hush-hush"), "the connection failed"),
        (RuntimeError("/home/hush-hush"), "unexpected error (RuntimeError)"),
        (ExceptionGroup("x", [RuntimeError("hush-hush"), TimeoutError()]), "it did not respond in time"),
        (ExceptionGroup("x", [ExceptionGroup("y", [KeyError("hush-hush")])]), "unexpected error (KeyError)"),
        (McpServerUnusable("the token server responded with HTTP 401"), "the token server responded with HTTP 401"),
    ],
)  # fmt: skip
def test_errors_are_described_without_addresses(error: BaseException, said: str) -> None:
    assert describe_error(error) == said


def test_http_status_is_described_without_its_url() -> None:
    request = httpx.Request("GET", "http://h/?key=hush-hush")
    error = httpx.HTTPStatusError("hush-hush", request=request, response=httpx.Response(503))
    assert describe_error(error) == "it responded with HTTP 503"


def test_images_are_saved_without_following_links(tmp_path: Path) -> None:
    folders = ThreadStorage(tmp_path).folders("t")
    folders.create()
    png = ImageContent(type="image", data=BLOB, mimeType="image/png")
    vector = ImageContent(type="image", data=BLOB, mimeType="image/svg+xml")
    broken = ImageContent(type="image", data="?", mimeType="image/gif")
    path = image_path(png)
    assert path is not None
    link = folders.outputs / Path(path).name
    link.symlink_to(tmp_path / "outside")  # a command of the agent may know the name
    assert list(save_images(result(png, vector, broken), folders)) == [path]
    assert not (tmp_path / "outside").exists()
    link.unlink()
    assert save_images(result(png, png), folders) == {path: {"mime_type": "image/png", "size": 300}}
    assert link.stat().st_size == 300
    odd = ImageContent(type="image", data="\ud800", mimeType="image/png")
    assert save_images(result(odd), folders) == {}
    assert result_text(result(odd), save_images(result(odd), folders))
    many = [ImageContent(type="image", data=BLOB[4 * n :], mimeType="image/png") for n in range(12)]
    assert len(save_images(result(*many), folders)) == 8


def test_errors_of_entries_are_one_line_whatever_the_keys_are() -> None:
    entry = {"command": "npx", "env": {"A\r\nINFO: \x1b[2J": {"b": 1}}}
    with pytest.raises(McpServerUnusable) as caught:
        parse_server(entry, {})
    assert caught.value.user_message.isprintable()


def test_an_entry_that_is_nested_too_deeply_is_unusable() -> None:
    deep: dict[str, Any] = {}
    for _ in range(1200):
        deep = {"a": deep}
    with pytest.raises(McpServerUnusable, match="too deeply"):
        parse_server({"command": "npx", "x": deep}, {})
