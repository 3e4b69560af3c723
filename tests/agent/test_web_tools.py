"""The web tools, configured by name, against local servers."""

import json
from pathlib import Path
from typing import Any

import anyio
import pytest
from langchain.tools import ToolRuntime
from langchain_core.tools import BaseTool

from agent.config import ToolConfig
from agent.errors import ObjectNotImportable
from agent.tools.registry import configured_tools
from agent.tools.web.page import html_to_markdown
from tests.agent.agent_harness import open_agent
from tests.agent.plain_agent import THREAD
from tests.fakes.model import ModelReply, ToolCall
from tests.fakes.scripted import ScriptedChatModel
from tests.fakes.web import PAGE, WebServer, web_server

KEY = "tvly-very-secret-key"
HERE = ["127.0.0.1"]


def tool(use: str, **keys: object) -> BaseTool:
    name = {"search": "web_search"}.get(use.rpartition("_")[2], "web_fetch")
    name = "image_search" if use == "image_search" else name
    entry = {"name": name, "group": "web", "use": f"agent.tools.web:{use}", "timeout": 20, **keys}
    (built,) = configured_tools([ToolConfig.model_validate(entry)])
    assert built.name == name
    return built


async def ask(built: BaseTool, **arguments: object) -> str:
    """Call a tool as the graph does."""
    runtime: ToolRuntime[None, dict[str, Any]] = ToolRuntime(
        state={},
        context=None,
        config={"configurable": {"thread_id": THREAD}},
        stream_writer=lambda _: None,
        tool_call_id="call-1",
        store=None,
    )
    needs_runtime = built.name == "web_fetch"
    answer = await built.ainvoke(arguments | ({"runtime": runtime} if needs_runtime else {}))
    assert isinstance(answer, str)
    return answer


# --- pages fetched by the service itself -----------------------------------------------------------------------


async def test_a_page_becomes_markdown() -> None:
    async with web_server() as server:
        server.answer("/page", PAGE)
        answer = await ask(tool("fetch_page", allow_private_hosts=HERE), url=f"{server.url}/page")
    assert answer == (
        "# A page\n\n# Heading\n\nSome **bold** text and [a link](/x).\n\n- one\n- two"
    )


async def test_long_pages_are_read_on() -> None:
    async with web_server() as server:
        server.answer("/long", f"<title>Long</title><p>{'word ' * 5000}</p>")
        url = f"{server.url}/long"
        whole = await ask(tool("fetch_page", allow_private_hosts=HERE), url=url)
        short = tool("fetch_page", allow_private_hosts=HERE, max_chars=20_000)
        first = await ask(short, url=url)
        rest = await ask(short, url=url, offset=20_000)
    note = f"\n... [characters 0 to 20000 of {len(whole)}; continue with offset=20000]"
    assert first == whole[:20_000] + note
    assert rest == whole[20_000:]
    assert whole == "# Long\n\n" + ("word " * 5000).strip()


async def test_pages_over_the_size_limit_say_so() -> None:
    async with web_server() as server:
        server.answer("/long", f"<p>{'word ' * 5000}</p>")
        fetch = tool("fetch_page", allow_private_hosts=HERE, max_bytes=1000)
        answer = await ask(fetch, url=f"{server.url}/long")
    assert answer.endswith("[The page is longer than 1000 bytes; the rest was not loaded.]")


@pytest.mark.parametrize(
    ("kind", "body", "answered"),
    [
        ("text/plain; charset=utf-8", "grüß".encode(), "# 127.0.0.1\n\ngrüß"),
        ("text/plain; charset=latin-1", "grüß".encode("latin-1"), "# 127.0.0.1\n\ngrüß"),
        ("text/plain; charset=no-such-one", "grüß".encode(), "# 127.0.0.1\n\ngrüß"),
        ("application/json", b'{"a": 1}', '# 127.0.0.1\n\n{"a": 1}'),
        ("application/ld+json", b"{}", "# 127.0.0.1\n\n{}"),
        ("text/html", '<meta charset="gbk"><p>你好'.encode("gbk"), "# 127.0.0.1\n\n你好"),
        ("", b"<!DOCTYPE html><title>T</title>x", "# T\n\nx"),
        ("application/pdf", b"%PDF-1.7", "Error: The page has the type application/pdf"),
        ("image/png", b"\x89PNG", "Error: The page has the type image/png"),
        ("text/plain", b"\x00\x01", "Error: The page contains binary data"),
        ("text/html", b"", "# 127.0.0.1"),
    ],
)
async def test_text_responses_can_be_read(kind: str, body: bytes, answered: str) -> None:
    async with web_server() as server:
        server.answer("/x", body, kind=kind)
        answer = await ask(tool("fetch_page", allow_private_hosts=HERE), url=f"{server.url}/x")
    assert answer.startswith(answered)


def test_the_main_element_of_a_page_is_used() -> None:
    text = "An article with enough text. " * 20
    html = f"<body><div>around</div><main><p>{text}</p></main></body>".encode()
    assert html_to_markdown(html)[1] == text.strip()
    assert "around" in html_to_markdown(b"<body><div>around</div><main>short</main></body>")[1]


def test_extremely_nested_pages_are_read() -> None:
    html = b"<div>" * 3_000 + b"deep down" + b"</div>" * 3_000
    assert html_to_markdown(html)[0] == ""
    assert "deep down" in html_to_markdown(b"<p>deep down</p>" + html)[1]


@pytest.mark.parametrize(
    ("url", "told"),
    [
        ("http://127.0.0.1:9/", "Private and reserved addresses"),
        ("http://localhost:8001/api/memory", "private networks"),
        ("http://169.254.169.254/latest/meta-data/", "Private and reserved addresses"),
        ("example.org", "give the full URL"),
        ("file:///etc/passwd", "Only http:// and https://"),
        ("https://me:secret@example.org/", "user name or password"),
    ],
)
@pytest.mark.parametrize("use", ["fetch_page", "jina_fetch", "tavily_fetch", "firecrawl_scrape"])
async def test_private_urls_are_not_sent_to_services(use: str, url: str, told: str) -> None:
    async with web_server() as server:
        answer = await ask(tool(use, api_key=KEY, base_url=server.url), url=url)
        assert server.asked == []
    assert answer.startswith("Error: ")
    assert told in answer
    assert "secret" not in answer.replace("secrets", "")


# --- SearXNG and public search engines, without a key -----------------------------------------------------------


async def test_searxng_searches() -> None:
    async with web_server() as server:
        results = [
            {"title": f"T{n}", "url": f"https://e.example/{n}", "content": f"text {n}"}
            for n in range(9)
        ]
        server.answer("/search", {"query": "parley", "results": [None, *results]})
        search = tool("searxng_search", base_url=server.url, max_results=2)
        answer = json.loads(await ask(search, query="parley & more"))
    assert answer == [
        {"title": "T0", "url": "https://e.example/0", "snippet": "text 0"},
        {"title": "T1", "url": "https://e.example/1", "snippet": "text 1"},
    ]
    assert server.paths == ["/search?q=parley+%26+more&format=json"]


async def test_a_searxng_that_does_not_answer_in_json_is_reported() -> None:
    async with web_server() as server:
        server.answer("/search", "forbidden", status=403)
        answer = await ask(tool("searxng_search", base_url=server.url), query="parley")
    assert answer == "Error: SearXNG denied access (HTTP 403)."
    with pytest.raises(ObjectNotImportable, match="base_url"):
        tool("searxng_search")


async def test_search_engines_that_cannot_be_reached_are_reported(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with web_server() as server:
        monkeypatch.setenv("DDGS_PROXY", server.url)  # a proxy that refuses all connections
        answer = await ask(tool("ddgs_search", timeout=5), query="parley")
    assert answer.startswith("Error: No search engine")


# --- Tavily ----------------------------------------------------------------------------------------------------


async def test_tavily_searches() -> None:
    async with web_server() as server:
        results = [
            {"title": f"T{n}", "url": f"https://e.example/{n}", "content": f"text {n}", "score": 1}
            for n in range(9)
        ]
        server.answer("/search", {"results": [None, "odd", *results]})
        search = tool("tavily_search", api_key=KEY, base_url=f"{server.url}/", max_results=3)
        answer = json.loads(await ask(search, query="parley"))
        method, _, headers, body = server.asked[0]
    assert answer == [
        {"title": f"T{n}", "url": f"https://e.example/{n}", "snippet": f"text {n}"}
        for n in range(3)
    ]
    assert (method, body) == ("POST", {"query": "parley", "max_results": 3})
    assert headers["Authorization"] == f"Bearer {KEY}"


async def test_tavily_reads_pages() -> None:
    async with web_server() as server:
        page = {"url": "https://8.8.8.8/", "title": "Eights", "raw_content": "x" * 5000}
        server.answer("/extract", {"results": [page], "failed_results": []})
        answer = await ask(
            tool("tavily_fetch", api_key=KEY, base_url=server.url), url="https://8.8.8.8/"
        )
        assert server.asked[0][3] == {"urls": ["https://8.8.8.8/"]}
        failed = {"results": [], "failed_results": [{"url": "u", "error": "blocked by robots"}]}
        server.answer("/extract", failed)
        refused = await ask(
            tool("tavily_fetch", api_key=KEY, base_url=server.url), url="https://8.8.8.8/"
        )
    assert answer == "# Eights\n\n" + "x" * 5000
    assert refused == "Error: Tavily could not read the page: blocked by robots."


# --- Jina, Firecrawl -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("key", [KEY, None])
async def test_jina_reads_pages_with_and_without_a_key(key: str | None) -> None:
    async with web_server() as server:
        server.answer("/", PAGE, kind="text/plain")
        answer = await ask(
            tool("jina_fetch", api_key=key, base_url=server.url), url="https://8.8.8.8/"
        )
        _, _, headers, body = server.asked[0]
        server.answer("/", " ")
        empty = await ask(
            tool("jina_fetch", api_key=key, base_url=server.url), url="https://8.8.8.8/"
        )
    assert answer.startswith("# A page\n\n# Heading\n\nSome **bold** text")
    assert body == {"url": "https://8.8.8.8/"}
    assert headers["X-Return-Format"] == "html"
    assert headers.get("Authorization") == (f"Bearer {key}" if key else None)
    assert empty == "Error: Jina returned an empty page."


@pytest.mark.parametrize("version", [1, 2])
async def test_firecrawl_searches(version: int) -> None:
    entry = {"title": "T", "url": "https://e.example/", "description": "D"}
    data: Any = {"web": [entry]} if version == 2 else [entry]
    async with web_server() as server:
        server.answer("/v2/search", {"success": True, "data": data})
        search = tool("firecrawl_search", api_key=KEY, base_url=server.url)
        answer = json.loads(await ask(search, query="parley"))
        assert server.asked[0][3] == {"query": "parley", "limit": 5}
    assert answer == [{"title": "T", "url": "https://e.example/", "snippet": "D"}]


async def test_firecrawl_reads_pages() -> None:
    async with web_server() as server:
        data = {"markdown": "**hi** " * 2000, "metadata": {"title": "Hi"}}
        server.answer("/v2/scrape", {"success": True, "data": data})
        scrape = tool("firecrawl_scrape", api_key=KEY, base_url=server.url)
        answer = await ask(scrape, url="https://8.8.8.8/")
        server.answer("/v2/scrape", {"success": True, "data": None})
        empty = await ask(scrape, url="https://8.8.8.8/")
    assert answer == "# Hi\n\n" + ("**hi** " * 2000).strip()
    assert empty == "Error: Firecrawl found no text on the page."


# --- pictures --------------------------------------------------------------------------------------------------


def pictures(server: WebServer, count: int = 8) -> None:
    server.answer("/", '<script>x = {vqd="4-123_abc"}</script>')
    results = [
        {"title": f"P{n}", "image": f"https://i.example/{n}", "thumbnail": f"https://t.example/{n}"}
        for n in range(count)
    ]
    server.answer("/i.js", {"results": [{"title": "without a picture"}, *results]}, kind="")


async def test_image_search_uses_the_page_token() -> None:
    async with web_server() as server:
        pictures(server)
        search = tool("image_search", base_url=server.url)
        answer = json.loads(
            await ask(search, query="a cat & dog", max_results=2, size="Large", layout="Wide")
        )
        paths = server.paths
    assert answer["query"] == "a cat & dog"
    assert answer["total_results"] == 2
    assert answer["results"][0] == {
        "title": "P0",
        "image_url": "https://i.example/0",
        "thumbnail_url": "https://t.example/0",
    }
    assert answer["usage_hint"]
    assert paths[0].startswith("/?q=a+cat+")
    assert "vqd=4-123_abc" in paths[1]
    assert "f=,size:Large,,,layout:Wide," in paths[1].replace("%2C", ",").replace("%3A", ":")


async def test_no_images_is_a_result_but_no_token_is_an_error() -> None:
    async with web_server() as server:
        pictures(server, count=0)
        search = tool("image_search", base_url=server.url)
        nothing = json.loads(await ask(search, query="a cat"))
        server.answer("/", "please prove that you are human")
        refused = await ask(search, query="a cat")
    assert (nothing["total_results"], nothing["results"]) == (0, [])
    assert refused.startswith("Error: DuckDuckGo blocked the search")


# --- failures --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("status", "told"),
    [
        (401, "check `api_key`"),
        (403, "denied access"),
        (429, "wait before you try again"),
        (432, "no quota left"),
        (500, "has an error"),
        (302, "rejected the request"),
        (418, "rejected the request"),
    ],
)
async def test_service_errors_do_not_quote_the_response(status: int, told: str) -> None:
    async with web_server() as server:
        headers = {"Location": "/elsewhere"} if status == 302 else {}
        server.answer("/search", f"your key {KEY} is bad", status=status, headers=headers)
        answer = await ask(tool("tavily_search", api_key=KEY, base_url=server.url), query="x")
        assert len(server.asked) == 1
    assert answer.startswith("Error: Tavily")
    assert told in answer
    assert f"(HTTP {status})" in answer
    assert KEY not in answer


@pytest.mark.parametrize("body", ["<html>", "[]", "null", '{"results": 3}', "[" * 100_000])
async def test_malformed_responses_are_handled(body: str) -> None:
    async with web_server() as server:
        server.answer("/search", body, kind="application/json")
        answer = await ask(tool("tavily_search", api_key=KEY, base_url=server.url), query="x")
    assert answer == "[]" or answer.startswith("Error: Tavily returned")


async def test_unreachable_hanging_and_flooding_services() -> None:
    async with web_server() as server:
        server.hang("/search")
        slow = tool("tavily_search", api_key=KEY, base_url=server.url, timeout=0.2)
        assert "No response from Tavily within 0.2 seconds" in await ask(slow, query="x")
        server.endless("/search", b"x" * 65_536)
        flood = tool("tavily_search", api_key=KEY, base_url=server.url, max_bytes=50_000)
        assert "more than 50000 bytes" in await ask(flood, query="x")
    gone = tool("tavily_search", api_key=KEY, base_url=server.url)
    assert (await ask(gone, query="x")).startswith("Error: No usable response from Tavily")


@pytest.mark.parametrize(
    "use", ["tavily_search", "tavily_fetch", "firecrawl_search", "firecrawl_scrape"]
)
async def test_a_missing_key_is_reported(use: str) -> None:
    built = tool(use)
    answer = await (
        ask(built, query="x") if "search" in use else ask(built, url="https://8.8.8.8/")
    )
    assert "needs a key" in answer
    assert "`api_key`" in answer


@pytest.mark.parametrize(
    "keys",
    [
        {"max_results": "many"},
        {"timeout": -1},
        {"base_url": "not a url"},
        {"api_kee": KEY},
        {"api_key": f"{KEY}\nX-Injected: 1"},
    ],
)
def test_invalid_keys_are_rejected_without_quoting(
    keys: dict[str, object],
) -> None:
    with pytest.raises(ObjectNotImportable) as caught:
        tool("tavily_search", **keys)
    assert next(iter(keys)) in caught.value.user_message
    assert KEY not in caught.value.user_message


# --- in the agent ----------------------------------------------------------------------------------------------


async def test_the_agent_searches_and_reads(tmp_path: Path) -> None:
    async with web_server() as server:
        server.answer(
            "/search", {"results": [{"title": "T", "url": f"{server.url}/p", "content": "c"}]}
        )
        server.answer("/p", PAGE)
        tools = [
            {
                "name": "web_search",
                "group": "web",
                "use": "agent.tools.web:tavily_search",
                "api_key": KEY,
                "base_url": server.url,
            },
            {
                "name": "web_fetch",
                "group": "web",
                "use": "agent.tools.web:fetch_page",
                "allow_private_hosts": HERE,
            },
        ]
        model = ScriptedChatModel.playing(
            ModelReply(calls=(ToolCall(name="web_search", args={"query": "parley"}, id="c1"),)),
            ModelReply(
                calls=(
                    ToolCall(name="web_fetch", args={"url": f"{server.url}/p"}, id="c2"),
                    ToolCall(name="web_fetch", args={"url": "http://169.254.169.254/"}, id="c3"),
                )
            ),
            "Here it is.",
        )
        with anyio.fail_after(60):
            async with open_agent(tmp_path, model, {"tools": tools}) as harness:
                messages = await harness.say("Look it up.")
    answers = [str(message.content) for message in messages if message.type == "tool"]
    assert json.loads(answers[0])[0]["snippet"] == "c"
    assert answers[1].startswith("# A page")
    assert answers[2] == "Error: Private and reserved addresses are not allowed: 169.254.169.254"
    assert messages[-1].content == "Here it is."
