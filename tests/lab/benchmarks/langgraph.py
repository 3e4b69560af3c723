"""The runs API under load, compared with the bare libraries: an instant graph on SQLite, and 500 tokens without delay.

`python -m tests.lab.benchmarks.langgraph` runs only this. The server has its own process, and only its CPU time counts.
"""

import statistics
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

import aiohttp
import anyio
import psutil

from tests.lab.benchmarks.figures import Figure, line, paired, rounds

RUNS = 480
TOKENS = 500
DRIPS = 200
STREAMS = 5
ROUNDS = rounds(5)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Load:
    """Threads with one run each: the number per second, the CPU seconds of each, and the median seconds of the run."""

    rate: float
    cpu_s: float
    p50_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class _Round:
    """The results of one server in one round.

    Attributes:
        busy: With 16 clients.
        alone: With one.
        frame_s: CPU seconds of a streamed frame.
        first_s: p99 of the seconds to the first token of 32 streams.
        slowest: Tokens a second of the slowest of them.
    """

    busy: _Load
    alone: _Load
    frame_s: float
    first_s: float
    slowest: float


PEERS = {
    "thread and run, 16 clients": "DeerFlow 34, aegra 46, langgraph dev 29-144",
    "CPU of a thread and a run": "DeerFlow 29-32, aegra 18-24, langgraph dev 5-15",
    "a run, one client, p50": "DeerFlow 28.5, aegra 26, langgraph dev 1000",
    "CPU of a token's frame": "DeerFlow 364, langgraph dev 196, aegra 142",
    "32 streams, first token, p99": "DeerFlow 758, langgraph dev 900, aegra 460",
    "32 streams, slowest": "DeerFlow 38.1, aegra 43.5, langgraph dev 47.7",
}
"""Other servers under the same load, measured for SPEC 8 at other times."""

_RUN = {"assistant_id": "instant", "input": {"n": 1}}
_STREAM = {
    "assistant_id": "many",
    "input": {"messages": [{"role": "user", "content": "hi"}]},
    "stream_mode": "messages-tuple",
}


def run() -> list[Figure]:
    """Measure and return the figures."""
    return anyio.run(_measure)


async def _measure() -> list[Figure]:
    async with served("bare") as bare, served("ours") as ours:
        pairs = [(await _round(*bare), await _round(*ours)) for _ in range(ROUNDS)]
    return [
        *_figures(pairs, "thread and run, 16 clients", "runs/s", ">= 1.3", lambda r: r.busy.rate),
        *_figures(pairs, "CPU of a thread and a run", "ms", "", lambda r: r.busy.cpu_s * 1e3),
        *_figures(pairs, "a run, one client, p50", "ms", "<= 1.3", lambda r: r.alone.p50_s * 1e3),
        *_figures(pairs, "CPU of a token's frame", "us", "<= 0.9", lambda r: r.frame_s * 1e6),
        *_figures(pairs, "32 streams, first token, p99", "ms", "<= 1.0", lambda r: r.first_s * 1e3),
        *_figures(pairs, "32 streams, slowest", "tok/s", ">= 1.0", lambda r: r.slowest),
    ]


def _figures(
    pairs: list[tuple[_Round, _Round]],
    what: str,
    unit: str,
    bar: str,
    value: Callable[[_Round], float],
) -> list[Figure]:
    values = [(value(bare), value(ours)) for bare, ours in pairs]
    return paired(f"runs API: {what}", unit, bar, values, peers=PEERS[what])


async def _round(session: aiohttp.ClientSession, process: psutil.Process) -> _Round:
    busy = await _runs(session, process, clients=16, count=RUNS)
    alone = await _runs(session, process, clients=1, count=RUNS // 8)
    frame_s = await _streams(session, process)
    first_s, slowest = await _drips(session)
    return _Round(busy=busy, alone=alone, frame_s=frame_s, first_s=first_s, slowest=slowest)


@asynccontextmanager
async def served(
    kind: str, *arguments: str
) -> AsyncIterator[tuple[aiohttp.ClientSession, psutil.Process]]:
    """Run a server (tests/lab/benchmarks/langgraph_served.py). Yield a client and the server's process."""
    with TemporaryDirectory() as folder:
        command = [
            sys.executable,
            "-m",
            "tests.lab.benchmarks.langgraph_served",
            kind,
            folder,
            *arguments,
        ]
        root = Path(__file__).parents[3]
        process = await anyio.open_process(command, stdout=subprocess.PIPE, stderr=None, cwd=root)
        try:
            if process.stdout is None:
                raise RuntimeError("The server's output was not captured.")
            with anyio.fail_after(30):
                port = int(await process.stdout.receive())
            url = f"http://127.0.0.1:{port}"
            async with aiohttp.ClientSession(base_url=url) as session:
                await _until_up(session)
                yield session, psutil.Process(process.pid)
        finally:
            process.terminate()
            with anyio.move_on_after(10, shield=True):
                await process.wait()
            await process.aclose()


async def _until_up(session: aiohttp.ClientSession) -> None:
    with anyio.fail_after(30):
        while True:
            try:
                await create_thread(session)
            except aiohttp.ClientConnectionError:
                await anyio.sleep(0.05)
            else:
                return


async def create_thread(session: aiohttp.ClientSession) -> str:
    """Create a thread, and return its id."""
    async with session.post("/api/threads", json={}) as response:
        thread_id: str = (await response.json())["thread_id"]
        return thread_id


async def _runs(
    session: aiohttp.ClientSession, process: psutil.Process, *, clients: int, count: int
) -> _Load:
    times: list[float] = []

    async def client() -> None:
        for _ in range(count // clients):
            thread_id = await create_thread(session)
            start = time.perf_counter()
            async with session.post(f"/api/threads/{thread_id}/runs/wait", json=_RUN) as response:
                if (await response.json())["n"] != 2:
                    raise RuntimeError("wrong answer")
            times.append(time.perf_counter() - start)

    before, begun = _cpu(process), time.perf_counter()
    async with anyio.create_task_group() as tasks:
        for _ in range(clients):
            tasks.start_soon(client)
    took = time.perf_counter() - begun
    return _Load(
        rate=len(times) / took,
        cpu_s=(_cpu(process) - before) / len(times),
        p50_s=statistics.median(times),
    )


async def _streams(session: aiohttp.ClientSession, process: psutil.Process) -> float:
    """Return the server's CPU seconds for one frame."""
    frames = 0
    before = _cpu(process)
    for _ in range(STREAMS):
        thread_id = await create_thread(session)
        url = f"/api/threads/{thread_id}/runs/stream"
        async with session.post(url, json=_STREAM) as response:
            whole = await response.read()
        said = whole.count(b"event: messages\n")
        if said < TOKENS:
            raise RuntimeError(f"{said} frames instead of {TOKENS}")
        frames += said
    return (_cpu(process) - before) / frames


async def _drips(session: aiohttp.ClientSession) -> tuple[float, float]:
    """Return p99 of the seconds to the first token, and the rate of the slowest of 32 streams."""
    firsts: list[float] = []
    rates: list[float] = []

    async def client() -> None:
        thread_id = await create_thread(session)
        url, body = f"/api/threads/{thread_id}/runs/stream", {**_STREAM, "assistant_id": "drip"}
        start = time.perf_counter()
        first = 0.0
        async with session.post(url, json=body) as response:
            async for chunk in response.content.iter_any():
                if not first and b"event: messages" in chunk:
                    first = time.perf_counter()
        firsts.append(first - start)
        rates.append(DRIPS / (time.perf_counter() - start))

    async with anyio.create_task_group() as tasks:
        for _ in range(32):
            tasks.start_soon(client)
    return sorted(firsts)[-1], min(rates)


def _cpu(process: psutil.Process) -> float:
    spent = process.cpu_times()
    return float(spent.user + spent.system)


if __name__ == "__main__":
    for figure in run():
        print(line(figure))
