"""Two `parley serve` processes on one PostgreSQL database, and people who wait for answers from either of them."""

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import psycopg

from tests.eventually import eventually
from tests.fakes.model import FakeModelServer
from tests.fakes.model_switches import ModelSwitches
from tests.journeys.service import Service, serving
from tests.people.platforms import PlatformServers

PLATFORMS = ("slack", "telegram", "feishu")


@asynccontextmanager
async def two_nodes(
    folder: Path, config: Mapping[str, Any], other: Mapping[str, Any] | None = None
) -> AsyncIterator[tuple[Service, Service]]:
    """Run two services that are connected to all platforms and take work. `other`: configuration of the second one."""
    await anyio.Path(folder / "second").mkdir()
    async with (
        serving(folder, config, *PLATFORMS) as first,
        serving(folder / "second", other or config, *PLATFORMS) as second,
    ):
        url = config["database"]["url"]
        await eventually(lambda: count_ready(url), lambda count: count == 2)
        yield first, second


def count_ready(url: str) -> int:
    """Return the number of nodes that take work."""
    with psycopg.connect(url) as connection:
        ready = "SELECT number FROM node WHERE is_ready = 1 AND ended_at IS NULL"
        return len(connection.execute(ready).fetchall())


def slow_model() -> FakeModelServer:
    """Return a model whose answers take some three seconds."""
    return FakeModelServer(ModelSwitches(token_delay_s=0.5))


async def write_all(platforms: PlatformServers, model: FakeModelServer) -> None:
    """Let all people write and wait for their answers."""
    for user in platforms.users:
        await user.send(f"hi from {user.name}")
    await model.until(lambda m: len(m.requests) == len(platforms.users))


async def answers_go_on(platforms: PlatformServers) -> None:
    """Check that each person got one answer and gets exactly one more for a new message."""
    for user in platforms.users:
        await user.expect_messages(f"You said: hi from {user.name}")
    for user in platforms.users:
        await user.send(f"again from {user.name}")
    for user in platforms.users:
        await user.expect_messages(
            f"You said: hi from {user.name}", f"You said: again from {user.name}"
        )
        assert user.misplaced_messages() == []
