"""Memory of the running service for each used conversation and each open stream."""

import os
import resource
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

import anyio
import httpx
import psutil

from tests.eventually import eventually
from tests.fakes.model import FakeModelServer, ModelReply
from tests.journeys.service import Service, with_model
from tests.lab.benchmarks.figures import QUICK, Figure

CONVERSATIONS = 1000 if os.environ.get(QUICK) else 10_000
WARM = 300
"""Conversations before the first measurement, which fill pools and caches."""

AT_ONCE = 8
STREAMS, WARM_STREAMS = 1000, 250
RUNS = 700
"""Together with the earlier ones, fewer than 1,000, because openai's client does not open more connections."""

SETTLE_S = 3.0
FORGET_S = 90.0
"""Finished runs are kept for a minute, so that clients can join them. Memory extraction waits until a conversation is
quiet.
"""

WITHIN_S = 600.0
ANSWER = '"final":true'
CONFIG = {
    "gateway": {"connections": {"max_total": 4000, "max_per_client": 4000}},
    "channels": {"rate_limit": {"messages": 0}},
    "memory": {"debounce_seconds": 30},
}


def run() -> list[Figure]:
    """Measure and return the figures."""
    return anyio.run(_measure)


async def _measure() -> list[Figure]:
    # The client also needs file descriptors for many idle streams.
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    grown = await _touch()
    idle, running = await _open_streams()
    return [
        Figure(f"memory: {CONVERSATIONS} conversations touched", grown / 1e6, "MB", "< 20"),
        Figure(f"memory: an open stream of a thread, {STREAMS} at once", idle / 1e3, "kB", "< 60"),
        Figure(f"memory: a running run and its stream, {RUNS} at once", running / 1e3, "kB"),
    ]


@asynccontextmanager
async def _serving(model: FakeModelServer) -> AsyncIterator[tuple[Service, httpx.AsyncClient]]:
    with TemporaryDirectory() as folder:
        service = Service(Path(folder), {**with_model(model.base_url), **CONFIG})
        await service.start()
        try:
            async with service.client() as known:
                limits = httpx.Limits(max_connections=None)
                async with httpx.AsyncClient(
                    base_url=service.url, headers=known.headers, timeout=WITHIN_S, limits=limits
                ) as client:
                    yield service, client
        finally:
            await service.kill()


async def _touch() -> float:
    """Return how much the service grows when this many conversations get an answer, bytes."""
    async with FakeModelServer() as model, _serving(model) as (service, client):
        await _ask_all(client, range(WARM))
        before = await _settled(service, FORGET_S)
        await _ask_all(client, range(WARM, WARM + CONVERSATIONS))
        return await _settled(service, FORGET_S) - before


async def _ask_all(client: httpx.AsyncClient, numbers: range) -> None:
    limiter = anyio.CapacityLimiter(AT_ONCE)

    async def ask(number: int) -> None:
        async with limiter:
            path = f"/api/channels/terminal/c{number}"
            async with client.stream("GET", f"{path}/events") as events:
                lines = events.aiter_lines()
                sent = await client.post(f"{path}/messages", json={"text": "hello"})
                sent.raise_for_status()
                async for line in lines:
                    if ANSWER in line:
                        return

    async with anyio.create_task_group() as tasks:
        for number in numbers:
            tasks.start_soon(ask, number)


async def _open_quiet(stack: AsyncExitStack, client: httpx.AsyncClient, count: int) -> None:
    for _ in range(count):
        path = f"/api/threads/{await _new_thread(client)}/stream"
        answer = await stack.enter_async_context(client.stream("GET", path))
        answer.raise_for_status()


async def _open_runs(
    stack: AsyncExitStack, client: httpx.AsyncClient, model: FakeModelServer, count: int
) -> None:
    body = {
        "assistant_id": "lead_agent",
        "input": {"messages": [{"role": "human", "content": "hello"}]},
        "stream_mode": ["messages-tuple"],
    }
    asked = len(model.requests) + count
    for _ in range(count):
        path = f"/api/threads/{await _new_thread(client)}/runs/stream"
        answer = await stack.enter_async_context(client.stream("POST", path, json=body))
        answer.raise_for_status()
    await eventually(lambda: len(model.requests) >= asked, within_s=WITHIN_S)


async def _new_thread(client: httpx.AsyncClient) -> str:
    return str((await client.post("/api/threads", json={})).json()["thread_id"])


async def _settled(service: Service, rest_s: float = SETTLE_S) -> float:
    """Return the resident bytes of the service once it is idle."""
    await anyio.sleep(rest_s)
    return float(psutil.Process(service.pid).memory_info().rss)


async def _open_streams() -> tuple[float, float]:
    """Return the bytes of one open stream of a quiet thread, and of one run that waits for its model."""
    async with (
        FakeModelServer(answer=lambda _: ModelReply(text="one two", hang_after=1)) as model,
        _serving(model) as (service, client),
    ):
        async with AsyncExitStack() as stack:
            await _open_quiet(stack, client, WARM_STREAMS)
            before = await _settled(service)
            await _open_quiet(stack, client, STREAMS)
            idle = (await _settled(service) - before) / STREAMS
        async with AsyncExitStack() as stack:
            await _open_runs(stack, client, model, WARM_STREAMS)
            before = await _settled(service)
            await _open_runs(stack, client, model, RUNS)
            return idle, (await _settled(service) - before) / RUNS
