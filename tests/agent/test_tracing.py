"""Runs traced to LangSmith and Langfuse: the real packages with local servers, one trace per run."""

import asyncio
import gzip
import json
from collections.abc import AsyncIterator, Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from uuid import uuid4

import anyio
import pytest
from aiohttp import web
from langgraph.checkpoint.memory import InMemorySaver
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from typing_extensions import override

from agent.config import AgentConfig
from agent.config.tracing import LANGSMITH_URL, TracingConfig, load_tracing_config
from agent.factory import open_agent_factory
from agent.services import AgentSetup
from tests.agent.agent_harness import open_agent
from tests.agent.plain_agent import THREAD
from tests.fakes.model import ModelReply, ToolCall
from tests.fakes.scripted import ScriptedChatModel, registered

LANGSMITH = {"LANGSMITH_TRACING": "true", "LANGSMITH_API_KEY": "ls-secret"}


def langfuse(url: str) -> dict[str, str]:
    """Return the variables. The package keeps one client per public key, so each server gets its own key."""
    return {
        "LANGFUSE_TRACING": "1",
        "LANGFUSE_PUBLIC_KEY": f"pk-lf-{uuid4()}",
        "LANGFUSE_SECRET_KEY": "sk-lf-secret",
        "LANGFUSE_BASE_URL": url,
    }


class Collector:
    """Receives what both packages send: LangSmith's multipart or JSON runs, and Langfuse's OpenTelemetry spans."""

    def __init__(self) -> None:
        self.runs: dict[str, dict[str, Any]] = {}
        self.spans: list[Any] = []
        self.keys: set[str] = set()
        self.url = ""

    async def info(self, _: web.Request) -> web.Response:
        config = {
            "use_multipart_endpoint": True,
            "size_limit": 100,
            "size_limit_bytes": 1_000_000,
            "scale_up_nthreads_limit": 16,
            "scale_up_qsize_trigger": 1000,
            "scale_down_nempty_trigger": 4,
        }
        return web.json_response({"version": "0.9", "batch_ingest_config": config})

    async def multipart(self, request: web.Request) -> web.Response:
        self.keys.add(request.headers.get("x-api-key", ""))
        body = await request.read()
        boundary = request.headers["content-type"].partition("boundary=")[2].strip('"').encode()
        for part in body.split(b"--" + boundary)[1:-1]:
            head, _, content = part.strip(b"\r\n").partition(b"\r\n\r\n")
            name = head.partition(b'name="')[2].partition(b'"')[0].decode()
            kind, _, rest = name.partition(".")
            ref, _, field = rest.partition(".")
            if kind not in {"post", "patch"}:
                continue
            value = json.loads(content)
            run = self.runs.setdefault(ref, {})
            run.update({field: value} if field else value)
        return web.json_response({}, status=202)

    async def otel(self, request: web.Request) -> web.Response:
        self.keys.add(request.headers.get("authorization", ""))
        body = await request.read()
        if body[:2] == b"\x1f\x8b":
            body = gzip.decompress(body)
        for resource in ExportTraceServiceRequest.FromString(body).resource_spans:
            for scope in resource.scope_spans:
                self.spans.extend(scope.spans)
        return web.Response()

    async def other(self, _: web.Request) -> web.Response:
        return web.json_response({})

    @property
    def roots(self) -> list[dict[str, Any]]:
        return [run for run in self.runs.values() if not run.get("parent_run_id")]


@asynccontextmanager
async def collecting() -> AsyncIterator[Collector]:
    collector = Collector()
    app = web.Application(client_max_size=64_000_000)
    app.router.add_get("/info", collector.info)
    app.router.add_post("/runs/multipart", collector.multipart)
    app.router.add_post("/api/public/otel/v1/traces", collector.otel)
    app.router.add_route("*", "/{rest:.*}", collector.other)
    runner = web.AppRunner(app, shutdown_timeout=0.2)
    await runner.setup()
    try:
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        collector.url = f"http://127.0.0.1:{runner.addresses[0][1]}"
        yield collector
    finally:
        await runner.cleanup()


@pytest.fixture
def model() -> Iterator[dict[str, str]]:
    look = ToolCall(name="ls", args={"path": "/mnt/user-data/workspace"}, id="c1")
    with registered(
        ScriptedChatModel.playing(ModelReply(calls=(look,)), "Nothing.", "Again.")
    ) as keys:
        yield keys


async def talk(home: Path, model: dict[str, str], tracing: TracingConfig, turns: int = 1) -> None:
    """Run turns as the runtime does. All traces have been handed over when this returns."""
    config = AgentConfig.model_validate({"models": [model], "memory": {"enabled": False}})
    site = AgentSetup(config=config, home=home, tracing=tracing)
    async with open_agent_factory(site, InMemorySaver()) as agents:
        for _ in range(turns):
            asked = {"thread_id": THREAD, "user_id": "slack:T:U"}
            graph = await agents.graph_for({"configurable": asked})
            await graph.ainvoke(
                {"messages": [("user", "look")]}, {"configurable": asked}, context=asked
            )


async def test_langsmith_gets_one_trace_a_run(tmp_path: Path, model: dict[str, str]) -> None:
    async with collecting() as collector:
        tracing = load_tracing_config({**LANGSMITH, "LANGSMITH_ENDPOINT": collector.url})
        await talk(tmp_path, model, tracing, turns=2)
        assert len(collector.roots) == 2
        kinds = {(run["run_type"], run["name"]) for run in collector.runs.values()}
        assert ("tool", "ls") in kinds
        assert any(kind == "llm" for kind, _ in kinds)
        assert {run["session_name"] for run in collector.roots} == {"parley"}
        assert collector.keys == {"ls-secret"}
        metadata = collector.roots[0]["extra"]["metadata"]
        assert metadata["langfuse_session_id"] == THREAD


async def test_langfuse_gets_one_trace_a_run(tmp_path: Path, model: dict[str, str]) -> None:
    async with collecting() as collector:
        tracing = load_tracing_config(langfuse(collector.url))
        await talk(tmp_path, model, tracing, turns=2)
        assert len({span.trace_id for span in collector.spans}) == 2
        assert "ls" in {span.name for span in collector.spans}
        attributes = {a.key: a.value for span in collector.spans for a in span.attributes}
        assert attributes["session.id"].string_value == THREAD
        assert attributes["user.id"].string_value == "slack:T:U"


async def test_both_at_once(tmp_path: Path, model: dict[str, str]) -> None:
    async with collecting() as collector:
        both = {
            **LANGSMITH,
            **langfuse(collector.url),
            "LANGSMITH_ENDPOINT": collector.url,
        }
        await talk(tmp_path, model, load_tracing_config(both))
        assert len(collector.roots) == 1
        assert len({span.trace_id for span in collector.spans}) == 1


async def test_off_by_default(tmp_path: Path, model: dict[str, str]) -> None:
    async with collecting() as collector:
        await talk(tmp_path, model, load_tracing_config({"LANGSMITH_ENDPOINT": collector.url}))
        assert (collector.runs, collector.spans) == ({}, [])


async def test_a_service_that_does_not_answer_harms_no_run_and_no_stop(
    tmp_path: Path, model: dict[str, str]
) -> None:
    tracing = load_tracing_config(langfuse("http://127.0.0.1:9"))
    with anyio.fail_after(30):
        await talk(tmp_path, model, tracing)


@pytest.mark.parametrize(
    ("environment", "named"),
    [
        ({"LANGSMITH_TRACING": "true"}, "LANGSMITH_API_KEY"),
        ({"LANGCHAIN_TRACING_V2": "on"}, "LANGSMITH_API_KEY"),
        ({**LANGSMITH, "LANGSMITH_ENDPOINT": "nowhere"}, "LANGSMITH_ENDPOINT must start"),
        (langfuse("nowhere"), "LANGFUSE_BASE_URL must start"),
        ({"LANGFUSE_TRACING": "yes"}, "LANGFUSE_PUBLIC_KEY"),
        ({"LANGFUSE_TRACING": "yes", "LANGFUSE_PUBLIC_KEY": "pk"}, "LANGFUSE_SECRET_KEY"),
    ],
)
def test_without_credentials_it_says_what_is_missing(
    environment: dict[str, str], named: str
) -> None:
    with pytest.raises(ValueError, match=named):
        load_tracing_config(environment)


def test_the_first_switch_that_is_set_decides() -> None:
    off = {"LANGSMITH_TRACING": "false", "LANGCHAIN_TRACING_V2": "true"}
    assert load_tracing_config(off) == TracingConfig()
    on = load_tracing_config(
        {"LANGCHAIN_TRACING": "1", "LANGCHAIN_API_KEY": "k", "LANGCHAIN_PROJECT": "p"}
    )
    assert on.langsmith is not None
    assert (on.langsmith.project, on.langsmith.endpoint) == ("p", LANGSMITH_URL)
    secret = load_tracing_config(LANGSMITH)
    assert "ls-secret" not in repr(secret)


async def test_a_turn_without_tracing_uses_no_extra_thread(tmp_path: Path) -> None:
    model = ScriptedChatModel.playing("Hello.")
    hops: list[str] = []
    loop = asyncio.get_running_loop()
    loop.set_default_executor(_Counting(hops))
    async with open_agent(tmp_path, model) as harness:
        assert (await harness.say("hi"))[-1].text == "Hello."
    assert [hop for hop in hops if hop.startswith("langsmith")] == []


class _Counting(ThreadPoolExecutor):
    """Records which packages send work to the loop's default worker threads."""

    def __init__(self, hops: list[str]) -> None:
        super().__init__()
        self._hops = hops

    @override
    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        done = getattr(fn, "args", None) or (fn,)
        self._hops.append(str(getattr(done[0], "__module__", "")))
        return super().submit(fn, *args, **kwargs)
