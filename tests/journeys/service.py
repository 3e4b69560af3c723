"""The real `parley serve` as a child process, configured for the fake platforms and the fake model server."""

import os
import signal
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

import anyio
import anyio.to_thread
import httpx
import yaml
from anyio.abc import Process

from tests.eventually import eventually
from tests.fakes.migrated import place_database
from tests.fork_server import ParleyProcess, is_test_suite, run_parley, start_parley
from tests.ports import free_port

ROOT = Path(__file__).parents[2]
START_WITHIN_S = 60.0
STOP_WITHIN_S = 12.0


class Service:
    """One data folder and configuration, with a `parley serve` that can be started, killed and stopped.

    `fork`: see tests/fork_server.py.
    """

    def __init__(
        self,
        folder: Path,
        config: Mapping[str, Any],
        environment: Mapping[str, str] | None = None,
        *,
        fork: bool | None = None,
    ) -> None:
        self._fork = fork
        self.home = folder / "home"
        shared = config.get("storage", {}).get("url")
        if shared and shared.startswith("s3:"):
            self.files = self.home / "files"
        else:
            self.files = Path(shared.removeprefix("file://")) if shared else self.home
        self.config = folder / "config.yaml"
        self.log = folder / "service.log"
        gateway = {"port": free_port(), **config.get("gateway", {})}
        self.port = int(gateway["port"])
        whole = {"config_version": 1, **config, "gateway": gateway}
        self._sections = set(whole)
        self.config.write_text(yaml.safe_dump(whole, allow_unicode=True))
        self._environment = {
            "PATH": os.environ["PATH"],
            "HOME": str(folder),
            "PARLEY_HOME": str(self.home),
            "PYTHONSAFEPATH": "1",
            "PYTHONPATH": str(ROOT),
            "PYTHONUNBUFFERED": "1",
            **_authority(),
            **(environment or {}),
        }
        self._process: Process | ParleyProcess | None = None

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def client(self) -> httpx.AsyncClient:
        """Return an operator's client for the REST API."""
        token = (self.files / "admin_token").read_text().strip()
        return httpx.AsyncClient(
            base_url=self.url, headers={"Authorization": f"Bearer {token}"}, timeout=10
        )

    async def command(self, *arguments: str, stdin: str = "") -> tuple[int, str, str]:
        """Run another `parley` command while the service runs. Return exit code, stdout and stderr."""
        arguments = (*arguments, "--config", str(self.config))
        run = partial(run_parley, arguments, self._environment, self.home.parent, stdin.encode())
        done = await anyio.to_thread.run_sync(run, abandon_on_cancel=True)
        return done.returncode, done.stdout.decode(), done.stderr.decode()

    async def start(self) -> None:
        """Start the service and wait until it is healthy."""
        await self.launch()
        await self.until_healthy()

    async def launch(self) -> None:
        """Start the process. A forked one has its tables already, unless the configuration names a database."""
        if self._fork is not False and "database" not in self._sections:
            place_database(self.home)
        arguments = ("serve", "--config", str(self.config))
        with self.log.open("ab") as log:
            self._process = await start_parley(
                arguments, self._environment, self.home.parent, log, fork=self._fork
            )

    async def kill(self) -> None:
        """Kill the process (SIGKILL)."""
        await self._end(signal.SIGKILL)

    async def stop(self) -> int:
        """Stop the process (SIGTERM). Return the exit code."""
        return await self._end(signal.SIGTERM)

    async def _end(self, how: signal.Signals) -> int:
        self.send(how)
        return await self.ended()

    def send(self, how: signal.Signals) -> None:
        """Send a signal to the process."""
        assert self._process is not None, "not started"
        self._process.send_signal(how)

    async def ended(self, within_s: float = STOP_WITHIN_S) -> int:
        """Wait until the process has ended. Return its exit code. Raises TimeoutError."""
        assert self._process is not None, "not started"
        with anyio.fail_after(within_s):
            return await self._process.wait()

    @property
    def pid(self) -> int:
        """The process ID of the running service."""
        assert self._process is not None, "not started"
        return self._process.pid

    @property
    def running(self) -> bool:
        return self._process is not None and self._process.returncode is None

    async def has_started(self) -> bool:
        """Return whether it responds to requests now."""
        async with httpx.AsyncClient(base_url=self.url, timeout=5) as client:
            return await _has_started(client)

    async def until_alive(self) -> None:
        """Wait until GET /health responds with 200, even if the service is still starting.

        Raises AssertionError if the process ends.
        """
        await self._until(_is_healthy)

    async def until_healthy(self) -> None:
        """Wait until GET /health responds with 200 and the service has started.

        Raises AssertionError if the process ends.
        """
        await self._until(_has_started)

    async def _until(self, condition: Callable[[httpx.AsyncClient], Awaitable[bool]]) -> None:
        with anyio.fail_after(START_WITHIN_S):
            async with httpx.AsyncClient(base_url=self.url, timeout=5) as client:
                while not await condition(client):
                    assert self.running, f"parley serve ended:\n{self.log.read_text()[-3000:]}"
                    await anyio.sleep(0.02)

    async def until_connected(self, *channels: str) -> None:
        """Wait until the channels report that they are connected."""
        async with self.client() as client:

            async def states() -> dict[str, Any]:
                return dict((await client.get("/api/channels")).json()["channels"])

            await eventually(
                states,
                lambda known: all(known[name]["running"] for name in channels),
                within_s=START_WITHIN_S,
            )

    async def until_recorded(self) -> None:
        """Wait until the service knows that all visible messages have arrived.

        A kill before that makes their delivery uncertain.
        """
        async with self.client() as client:

            async def rows() -> list[dict[str, Any]]:
                return list((await client.get("/api/channels/outbox")).json()["rows"])

            await eventually(
                rows,
                lambda found: not any(row["state"] in ("pending", "sending") for row in found),
                within_s=START_WITHIN_S,
            )


def _authority() -> dict[str, str]:
    """Make a service trust only the tests' certificate (tests/conftest.py), because loading all certificates takes
    time."""
    return {"SSL_CERT_FILE": os.environ["SSL_CERT_FILE"]} if is_test_suite() else {}


async def _is_healthy(client: httpx.AsyncClient) -> bool:
    try:
        return (await client.get("/health")).status_code == 200
    except httpx.TransportError:
        return False


async def _has_started(client: httpx.AsyncClient) -> bool:
    """Request a page that needs a token. Requests wait while the service starts."""
    try:
        return (await client.get("/api/models")).status_code in (200, 401)
    except httpx.TransportError:
        return False


@asynccontextmanager
async def serving(
    folder: Path,
    config: Mapping[str, Any],
    *channels: str,
    environment: Mapping[str, str] | None = None,
    fork: bool | None = None,
) -> AsyncIterator[Service]:
    """Start a service and wait for its channels. End it in whatever state the test leaves it."""
    service = Service(folder, config, environment, fork=fork)
    await service.start()
    try:
        await service.until_connected(*channels)
        yield service
    finally:
        if service.running:
            with anyio.CancelScope(shield=True):
                await service.kill()


def with_model(url: str) -> dict[str, Any]:
    """Return the `models` section for an OpenAI-compatible server. Memory calls it only when the service stops."""
    model = {
        "name": "fake",
        "use": "langchain_openai:ChatOpenAI",
        "model": "fake-1",
        "api_key": "sk-test",
        "base_url": url,
    }
    return {"models": [model], "memory": {"debounce_seconds": 300}}
