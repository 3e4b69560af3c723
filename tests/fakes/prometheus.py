"""Prometheus with the alerts in deploy/monitoring, on a port of the loopback interface."""

import json
import shutil
import subprocess
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import httpx

from tests.ports import free_port

MONITORING = Path(__file__).parents[2] / "deploy" / "monitoring"
ALERTS = MONITORING / "alerts.yaml"
PROGRAM = shutil.which("prometheus")
PROMTOOL = shutil.which("promtool")
MISSING = "Prometheus is not installed (Debian, Ubuntu: apt-get install prometheus)"


class Prometheus:
    """A running Prometheus."""

    def __init__(self, client: httpx.AsyncClient) -> None:
        self._client = client

    async def ask(self, path: str, **query: str) -> Any:  # noqa: ANN401 - its JSON
        """Return the data of a response; None while it is not ready.

        Raises:
            AssertionError: It refuses the request, for example an invalid PromQL query.
        """
        try:
            answer = await self._client.get(f"/api/v1/{path}", params=query)
        except httpx.TransportError:
            return None
        if answer.status_code == httpx.codes.SERVICE_UNAVAILABLE:
            return None
        assert answer.status_code == httpx.codes.OK, f"{query}: {answer.text}"
        return answer.json()["data"]

    async def query(self, expression: str) -> list[Any]:
        """Return the current samples of an expression."""
        data = await self.ask("query", query=expression)
        return list(data["result"]) if data is not None else []


@asynccontextmanager
async def prometheus(folder: Path, *, target: str, token: str) -> AsyncIterator[Prometheus]:
    """Run Prometheus, which reads the metrics of `target` (host:port) each second."""
    assert PROGRAM is not None, MISSING
    (folder / "token").write_text(token)
    job = {
        "job_name": "parley",
        "authorization": {"credentials_file": str(folder / "token")},
        "static_configs": [{"targets": [target]}],
    }
    config = {
        "global": {"scrape_interval": "1s", "evaluation_interval": "1s"},
        "rule_files": [str(ALERTS)],
        "scrape_configs": [job],
    }
    (folder / "prometheus.json").write_text(json.dumps(config))  # JSON is YAML
    address = f"127.0.0.1:{free_port()}"
    process = await anyio.open_process(
        [
            PROGRAM,
            f"--config.file={folder}/prometheus.json",
            f"--storage.tsdb.path={folder}/data",
            f"--web.listen-address={address}",
        ],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        async with httpx.AsyncClient(base_url=f"http://{address}", timeout=10) as client:
            yield Prometheus(client)
    finally:
        process.terminate()
        with anyio.CancelScope(shield=True):
            await process.wait()
