"""A long conversation with the real lead agent: the cost of turns in time and disk space as it grows."""

import gc
import sqlite3
import statistics
import time
from contextlib import closing
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import httpx
import orjson
import yaml
from langchain.agents import create_agent
from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.sqlite.aio import AsyncSqliteSaver

from agent.models.demo import DemoChatModel
from tests.gateway.composed import composed
from tests.lab.benchmarks.figures import Figure
from tests.lab.benchmarks.service_loop import run_as_service

TURNS = 400
EARLY = range(6, 15)
LATE = range(TURNS - 9, TURNS)
SIZED_AT = 200
QUESTION = "Please tell me once more what you know of the matter, in about a hundred tokens, and leave out what I know."
"""The demo model echoes this with its hint, so an answer has a hundred tokens."""

CONFIG = {
    "models": [
        {"name": "demo", "use": "agent.models.demo:DemoChatModel", "model": "d", "delay_s": 0}
    ]
}


def run() -> list[Figure]:
    """Measure and return the figures."""
    return run_as_service(_measure)


async def _measure() -> list[Figure]:
    with TemporaryDirectory() as folder:
        home = Path(folder)
        async with composed(home, yaml.safe_dump(CONFIG)) as service:
            gc.freeze()
            times, cpus, sizes = await _talk(service.client, home / "home")
        bare = await _bare_cpu(home / "bare.db")
    early_cpu, late_cpu = (statistics.median(cpus[n] for n in turns) for turns in (EARLY, LATE))
    early, late = (statistics.median(times[n] for n in turns) for turns in (EARLY, LATE))
    return [
        Figure("thread growth: turn 400 / turn 10, time", late / early, "x"),
        Figure("thread growth: turn 400 / turn 10, CPU", late_cpu / early_cpu, "x"),
        Figure("thread growth: turn 400, CPU, bare create_agent", bare * 1000, "ms"),
        Figure("thread growth: turn 400, CPU, ours", late_cpu * 1000, "ms"),
        Figure("thread growth: turn 400, CPU, ours / bare", late_cpu / bare, "x", "<= 0.6"),
        Figure("thread growth: turn 10", early * 1000, "ms", "", "DeerFlow's lead agent 56 ms"),
        Figure("thread growth: turn 400", late * 1000, "ms"),
        Figure(
            "thread growth: database a turn, 200 turns",
            (sizes[1] - sizes[0]) / 1000 / SIZED_AT,
            "KB",
            "",
            "LangGraph's own saver 289 KB (unpruned)",
        ),
        Figure(
            "thread growth: database a turn, 400 turns",
            (sizes[2] - sizes[0]) / 1000 / TURNS,
            "KB",
            "<= 4",
        ),
    ]


async def _talk(
    client: httpx.AsyncClient, home: Path
) -> tuple[list[float], list[float], list[int]]:
    """Return each turn's wall and CPU seconds, and the bytes on disk at the start, at SIZED_AT and at the end."""
    await _turn(client, await _thread(client))
    thread_id = await _thread(client)
    times: list[float] = []
    cpus: list[float] = []
    sizes = [_size(home)]
    for number in range(TURNS):
        began, cpu = time.perf_counter(), time.process_time()
        answer = await _post(client, thread_id)
        times.append(time.perf_counter() - began)
        cpus.append(time.process_time() - cpu)
        _check(answer)
        if number + 1 in (SIZED_AT, TURNS):
            sizes.append(_size(home))
    return times, cpus, sizes


async def _bare_cpu(file: Path) -> float:
    """Return the CPU seconds of a late turn of `create_agent` with the same model and LangGraph's SQLite saver."""
    config: RunnableConfig = {"configurable": {"thread_id": "bare"}}
    async with AsyncSqliteSaver.from_conn_string(str(file)) as saver:
        agent = create_agent(DemoChatModel(model="d", delay_s=0), checkpointer=saver)
        turn = (await agent.ainvoke(_asked(), config))["messages"]
        earlier = [
            message.model_copy(update={"id": None}) for _ in range(LATE[0] - 1) for message in turn
        ]
        await agent.aupdate_state(config, {"messages": earlier})
        cpus: list[float] = []
        values: dict[str, Any] = {}
        for _ in LATE:
            cpu = time.process_time()
            values = await agent.ainvoke(_asked(), config, durability="sync")
            orjson.dumps(values, default=lambda message: message.model_dump())
            cpus.append(time.process_time() - cpu)
    if len(values["messages"]) != 2 * TURNS:
        raise RuntimeError("The bare agent's thread has a different length than ours.")
    return statistics.median(cpus)


def _asked() -> Any:  # noqa: ANN401 - LangChain's own type takes no dictionaries
    return {"messages": [{"role": "human", "content": QUESTION}]}


async def _thread(client: httpx.AsyncClient) -> str:
    thread: dict[str, Any] = (await client.post("/api/threads", json={})).json()
    return str(thread["thread_id"])


async def _turn(client: httpx.AsyncClient, thread_id: str) -> None:
    _check(await _post(client, thread_id))


async def _post(client: httpx.AsyncClient, thread_id: str) -> httpx.Response:
    body = {
        "assistant_id": "lead_agent",
        "input": {"messages": [{"role": "human", "content": QUESTION}]},
        "durability": "sync",
    }
    return await client.post(f"/api/threads/{thread_id}/runs/wait", json=body, timeout=60)


def _check(answer: httpx.Response) -> None:
    """Check the answer. This is the client's work and is not measured."""
    answer.raise_for_status()
    last = answer.json()["messages"][-1]
    if last["type"] != "ai" or "You said" not in last["content"]:
        raise RuntimeError(f"not an answer: {last}")


def _size(home: Path) -> int:
    """Return the size of the databases, bytes, after checkpointing their write-ahead logs (up to 4 MB each)."""
    for file in home.glob("*.db"):
        with closing(sqlite3.connect(file)) as connection:
            connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    return sum(file.stat().st_size for file in home.glob("*.db*"))
