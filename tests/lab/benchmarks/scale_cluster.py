"""Nodes as real processes on one database, for the benchmarks of several nodes."""

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import anyio
import psutil

from tests.fakes.model import FakeModelServer
from tests.fakes.postgres import PostgresServer
from tests.journeys.service import Service, with_model
from tests.lab.benchmarks.turns import Platform

NODES = 2


class Cluster:
    """Nodes with the same configuration, each with its own folder.

    Args:
        folder: Contains their folders.
        config: Their configuration.

    Attributes:
        nodes: The running nodes, oldest first.
    """

    def __init__(self, folder: Path, config: Mapping[str, Any]) -> None:
        self.nodes: list[Service] = []
        self._folder = folder
        self._config = config
        self._started = 0

    async def add(self) -> None:
        """Start a node, and wait until it is connected."""
        self._started += 1
        folder = anyio.Path(self._folder / f"node {self._started}")
        await folder.mkdir()
        node = Service(Path(folder), self._config)
        self.nodes.append(node)
        await node.start()
        await node.until_connected("telegram")

    async def replace(self) -> None:
        """Start a node, then stop the oldest. Raises ValueError if it does not exit with code 0."""
        await self.add()
        if code := await self.nodes.pop(0).stop():
            raise ValueError(f"a stopped node exited with code {code}")

    async def close(self) -> None:
        """Kill all nodes."""
        for node in self.nodes:
            if node.running:
                await node.kill()

    def cpu_s(self) -> float:
        """Return the CPU seconds that the current nodes have used."""
        return sum(cpu_s(psutil.Process(node.pid)) for node in self.nodes)


@asynccontextmanager
async def running_cluster(
    platform: Platform, model: FakeModelServer, url: str | None
) -> AsyncIterator[Cluster]:
    """Run `NODES` nodes on a PostgreSQL database. None = one node on SQLite."""
    # While there is only one node, it runs all agents.
    channels = {platform.name: platform.channel(), "max_concurrent_runs": 100}
    config = {**with_model(model.base_url), "channels": channels}
    if url is not None:
        config["database"] = {"url": url}
    with TemporaryDirectory() as folder:
        cluster = Cluster(Path(folder), config)
        try:
            for _ in range(1 if url is None else NODES):
                await cluster.add()
            await platform.ask(999, "are you there")
            yield cluster
        finally:
            with anyio.CancelScope(shield=True):
                await cluster.close()


def server_cpu_s(server: PostgresServer) -> float:
    """Return the CPU seconds of PostgreSQL's processes, including the ones that have ended."""
    data = Path(server.control[server.control.index("-D") + 1])
    main = psutil.Process(int((data / "postmaster.pid").read_text().split("\n", 1)[0]))
    ended = main.cpu_times()
    children = 0.0
    for child in main.children():
        with suppress(psutil.NoSuchProcess):  # the worker has just ended
            children += cpu_s(child)
    return cpu_s(main) + ended.children_user + ended.children_system + children


def cpu_s(process: psutil.Process) -> float:
    used = process.cpu_times()
    return used.user + used.system
