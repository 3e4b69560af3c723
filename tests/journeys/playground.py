"""`parley playground` as a child process, and its page in a browser."""

import os
import re
import signal
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from subprocess import STDOUT
from typing import Any

import anyio
import anyio.abc
import httpx

from tests.eventually import eventually
from tests.fork_server import forking_parley
from tests.journeys.service import ROOT

LINK = re.compile(r"(http://\S+)/\?token=(\S+)")
START_WITHIN_S = 90.0


@dataclass(frozen=True)
class RunningPlayground:
    """A playground whose service is connected."""

    link: str
    client: httpx.AsyncClient
    process: anyio.abc.Process

    async def state(self) -> dict[str, Any]:
        """Return all that the page shows."""
        return dict((await self.client.get("/api/state")).json())

    async def act(self, **action: object) -> httpx.Response:
        """Send an action of the page."""
        return await self.client.post("/api/actions", json=action)

    async def until_connected(self) -> None:
        """Wait until the service has connected to all platforms."""

        async def connected() -> int:
            channels = (await self.state())["service"]["channels"]
            states = [channels.get(name) for name in ("slack", "telegram", "feishu")]
            return states.count("connected")

        await eventually(connected, lambda number: number == 3, within_s=START_WITHIN_S)

    async def texts(self, place: str) -> list[str]:
        """Return the bot's messages in a place."""
        messages = (await self.state())["seen"][place]["messages"]
        return [str(one["body"]) for one in messages if one["author"] == "parley"]

    async def wait_for(self, place: str, part: str) -> list[str]:
        """Wait until the bot has sent this text in a place."""
        return await eventually(
            lambda: self.texts(place), lambda found: any(part in one for one in found)
        )


def environment(folder: Path, more: Mapping[str, str] | None = None) -> dict[str, str]:
    """Return the environment of a command that uses a data folder below `folder`."""
    return {
        "PATH": os.environ["PATH"],
        "HOME": str(folder),
        "PARLEY_HOME": str(folder / "home"),
        "PYTHONSAFEPATH": "1",
        "PYTHONPATH": str(ROOT),
        "PYTHONUNBUFFERED": "1",
        **(more or {}),
    }


async def read_link(process: anyio.abc.Process) -> str:
    """Return the link that a playground prints."""
    said = ""
    assert process.stdout is not None
    with anyio.fail_after(START_WITHIN_S):
        async for piece in process.stdout:
            said += piece.decode()
            if found := LINK.search(said):
                return found[0]
    raise AssertionError(f"no link: {said}")


@asynccontextmanager
async def playground(folder: Path, *arguments: str) -> AsyncIterator[RunningPlayground]:
    """Start a playground, wait until its service is connected, and stop it."""
    command = forking_parley(folder, "playground", *arguments)
    process = await anyio.open_process(command, env=environment(folder), cwd=folder, stderr=STDOUT)
    try:
        link = await read_link(process)
        base, token = LINK.fullmatch(link).groups()  # type: ignore[union-attr]
        headers = {"Authorization": f"Bearer {token}"}
        async with httpx.AsyncClient(
            base_url=base, headers=headers, timeout=30, trust_env=False
        ) as client:
            running = RunningPlayground(link, client, process)
            await running.until_connected()
            yield running
    finally:
        with anyio.CancelScope(shield=True):
            if process.returncode is None:
                process.send_signal(signal.SIGTERM)
            code = await process.wait()
    assert code == 0


async def run_command(folder: Path, *arguments: str) -> tuple[int, str]:
    """Run another command. Return its exit code and output."""
    command = forking_parley(folder, *arguments)
    done = await anyio.run_process(
        command, env=environment(folder), cwd=folder, stderr=STDOUT, check=False
    )
    return done.returncode, done.stdout.decode()
