"""LangGraph's own server, as a child process: `langgraph dev` with the agent that langgraph.json names."""

import os
import signal
import subprocess
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import httpx
import yaml
from anyio.abc import Process

from tests.journeys.service import ROOT
from tests.ports import free_port

PROGRAM = ROOT / ".venv-peers" / "bin" / "langgraph"
START_WITHIN_S = 60.0


@asynccontextmanager
async def langgraph_dev(
    folder: Path,
    config: Mapping[str, Any],
    environment: Mapping[str, str],
    *,
    graphs: Path = ROOT / "langgraph.json",
) -> AsyncIterator[str]:
    """Run the server with its own configuration and data folder. Yield its URL. `graphs`: its langgraph.json."""
    file = folder / "config.yaml"
    file.write_text(yaml.safe_dump({"config_version": 1, **config}))
    port = free_port()
    program = [PROGRAM, "dev", "--config", graphs, "--no-browser", "--no-reload"]
    program += ["--host", "127.0.0.1", "--port", str(port), "--n-jobs-per-worker", "8"]
    with (folder / "server.log").open("wb") as log:
        process = await anyio.open_process(
            [str(part) for part in program],
            stdout=log,
            stderr=subprocess.STDOUT,
            env={**_ALONE, **environment, "PARLEY_CONFIG": str(file)},
            cwd=folder,
        )
    try:
        await _until_up(process, f"http://127.0.0.1:{port}", folder / "server.log")
        yield f"http://127.0.0.1:{port}"
    finally:
        with anyio.CancelScope(shield=True):
            process.send_signal(signal.SIGKILL)
            await process.wait()


_ALONE = {
    "PATH": os.environ["PATH"],
    "PYTHONPATH": str(ROOT),
    # The server sends neither traces nor usage statistics.
    "LANGSMITH_TRACING": "false",
    "LANGCHAIN_TRACING_V2": "false",
    "LANGGRAPH_CLI_NO_ANALYTICS": "1",
}


async def _until_up(process: Process, url: str, log: Path) -> None:
    with anyio.fail_after(START_WITHIN_S):
        async with httpx.AsyncClient(base_url=url, timeout=5) as client:
            while True:
                assert process.returncode is None, _ending(log)
                try:
                    if (await client.get("/ok")).status_code == httpx.codes.OK:
                        return
                except httpx.TransportError:
                    pass
                await anyio.sleep(0.1)


def _ending(log: Path) -> str:
    return f"langgraph dev ended:\n{log.read_text()[-3000:]}"
