"""The runs API of nodes on PostgreSQL: the cost of runs that mostly wait, and the delay at another node."""

import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import aiohttp
import anyio
from langchain_core.messages import AIMessage
from langchain_core.runnables import RunnableConfig
from langgraph.config import get_stream_writer
from langgraph.graph import START, MessagesState, StateGraph

from gateway.runtime.execution import Graph
from tests.fakes.postgres import PostgresServer
from tests.gateway.langgraph_server import ApiServer, serving
from tests.lab.benchmarks.figures import Figure, percentile
from tests.lab.benchmarks.langgraph import create_thread, served
from tests.lab.benchmarks.langgraph_served import WAITS
from tests.lab.benchmarks.scale_cluster import cpu_s, server_cpu_s
from tests.lab.benchmarks.service_loop import run_as_service

ASSISTANT = "lead_agent"
RUNS = 600
AT_ONCE = 100
STREAMS = 10
PARTS = 100
PART_S = 0.02
"""Seconds between events of a run, like the words of a fast model."""


def measure(server: PostgresServer) -> list[Figure]:
    """Measure and return the figures."""
    return run_as_service(partial(_measure, server))


async def _measure(server: PostgresServer) -> list[Figure]:
    return [*await _waiting_runs(server), *await _streams(server)]


async def _waiting_runs(server: PostgresServer) -> list[Figure]:
    """Execute runs of one second each on a server, `AT_ONCE` at a time. Their clients wait for them."""
    with server.database() as url:
        async with served("ours", url) as (session, process):
            await _execute(session, AT_ONCE)
            own, theirs = cpu_s(process), server_cpu_s(server)
            await _execute(session, RUNS)
            own, theirs = cpu_s(process) - own, server_cpu_s(server) - theirs
    name = "nodes: runs of 1 s per CPU second"
    peers = "LangGraph Platform publishes 25"
    return [
        Figure(f"{name}, PostgreSQL's included", RUNS / (own + theirs), "/s", ">= 100", peers),
        Figure(f"{name}, without PostgreSQL's", RUNS / own, "/s"),
    ]


async def _execute(session: aiohttp.ClientSession, count: int) -> None:
    async def follow(numbers: range) -> None:
        for _ in numbers:
            thread = await create_thread(session)
            body = {"assistant_id": WAITS, "input": _said("hi")}
            async with session.post(f"/api/threads/{thread}/runs/wait", json=body) as response:
                answer = await response.json()
                if answer["messages"][-1]["content"] != "ok":
                    raise ValueError(f"a run failed: {answer}")

    async with anyio.create_task_group() as tasks:
        for client in range(AT_ONCE):
            tasks.start_soon(follow, range(client, count, AT_ONCE))


async def _streams(server: PostgresServer) -> list[Figure]:
    """Follow runs at the node that executes them and at another one."""

    async def speak(state: MessagesState) -> MessagesState:
        write = get_stream_writer()
        for number in range(PARTS):
            await anyio.sleep(PART_S)
            write(number)
        return {"messages": [AIMessage("ok")]}

    here: dict[tuple[str, Any], float] = {}
    there: dict[tuple[str, Any], float] = {}
    with server.database() as url:
        async with _node(url, speak) as one, _node(url, speak) as other:

            async def follow(thread: str, run: str) -> None:
                async with anyio.create_task_group() as tasks:
                    tasks.start_soon(_note, one, thread, run, here)
                    tasks.start_soon(_note, other, thread, run, there)

            async with anyio.create_task_group() as tasks:
                for _ in range(STREAMS):
                    thread = (await one.sdk.threads.create())["thread_id"]
                    run = await one.sdk.runs.create(
                        thread, ASSISTANT, input=_said("hi"), stream_mode=["custom"]
                    )
                    tasks.start_soon(follow, thread, run["run_id"])
    # The first events may be older than their reader.
    added = [(there[key] - at) * 1000 for key, at in here.items() if key[1] >= PARTS // 4]
    if len(there) != STREAMS * PARTS:
        raise ValueError(f"{len(there)} of {STREAMS * PARTS} events arrived at the other node")
    name = f"nodes: {STREAMS / PART_S:.0f} events/s, at another node later by"
    return [
        Figure(f"{name}, p50", percentile(added, 0.5), "ms"),
        Figure(f"{name}, p99", percentile(added, 0.99), "ms", "< 50"),
    ]


async def _note(api: ApiServer, thread: str, run: str, seen: dict[tuple[str, Any], float]) -> None:
    """Follow a run, and record when each of its events arrived."""
    async for part in api.sdk.runs.join_stream(thread, run, stream_mode=["custom"]):
        if part.event == "custom":
            seen[run, part.data] = time.perf_counter()


@asynccontextmanager
async def _node(url: str, step: Any) -> AsyncIterator[ApiServer]:  # noqa: ANN401 - a node of a graph
    """Serve a graph of one step from a node of a database, over TCP."""
    builder = StateGraph(MessagesState)
    builder.add_node("step", step)
    builder.add_edge(START, "step")
    graph = builder.compile()

    async def source(_config: RunnableConfig) -> Graph:
        return graph

    with TemporaryDirectory() as folder:
        async with serving(
            Path(folder), way="tcp", sources={ASSISTANT: source}, database_url=url
        ) as api:
            yield api


def _said(text: str) -> dict[str, Any]:
    return {"messages": [{"role": "human", "content": text}]}
