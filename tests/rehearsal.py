"""A service that answers a message on each platform, in the process from which the services of tests are forked.

Much is built on first use: pydantic's validators, isinstance caches, modules that packages import late. That takes 40%
of the CPU time of a service that answers six messages, so it is done once here. The service leaves no thread, file,
limit or handler behind.
"""

import logging
import resource
import socket
import tempfile
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path

import anyio
import httpx
import yaml
from fastapi import FastAPI

from gateway.app import network_app
from gateway.compose import open_app
from gateway.config import Config, load_config
from gateway.serving.event_loop import FairEventLoop
from gateway.serving.server import HttpServer
from tests.eventually import WITHIN_S
from tests.fakes.migrated import place_database
from tests.fakes.model import FakeModelServer
from tests.journeys.service import with_model
from tests.people.platforms import PlatformServers

READINESS = "/health/ready"
PAGES = ("/health", READINESS, "/api/models", "/api/channels", "/api/channels/outbox")
"""The requests that most tests send to a service."""


def rehearse() -> None:
    """Run the rehearsal. Raises if the service does not answer."""
    with _kept_settings(), tempfile.TemporaryDirectory(prefix="parley-rehearsal-") as folder:
        options = {"loop_factory": FairEventLoop}
        anyio.run(_rehearse, Path(folder), backend_options=options)


@contextmanager
def _kept_settings() -> Iterator[None]:
    """Restore the process settings that a service changes, and log nothing."""
    files, level = resource.getrlimit(resource.RLIMIT_NOFILE), logging.root.manager.disable
    logging.disable()
    try:
        yield
    finally:
        for thread in threading.enumerate():
            if thread.name.startswith("AnyIO worker"):
                thread.join(WITHIN_S)  # It was told to stop when the event loop ended.
        logging.disable(level)
        resource.setrlimit(resource.RLIMIT_NOFILE, files)


async def _rehearse(folder: Path) -> None:
    async with PlatformServers() as platforms, FakeModelServer() as model:
        settings = {"config_version": 1, "channels": platforms.channels}
        file = folder / "config.yaml"
        file.write_text(yaml.safe_dump({**settings, **with_model(model.base_url)}))
        config = load_config(str(file), {"PARLEY_HOME": str(folder / "home")})
        place_database(config.home)
        async with open_app(config) as app, _served(app, config) as port:
            await _ask(port)
            for user in platforms.users:
                await user.send("hello")
            for user in platforms.users:
                await user.expect_messages("You said: hello")


@asynccontextmanager
async def _served(app: FastAPI, config: Config) -> AsyncIterator[int]:
    """Serve the application on a port, as `parley serve` does; yield the port."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.setblocking(False)
        server = HttpServer(network_app(app, config.gateway, token=None), listener)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(server.run_until_stopped)
            await server.ready.wait()
            yield listener.getsockname()[1]
            server.stop()


async def _ask(port: int) -> None:
    url = f"http://127.0.0.1:{port}"
    async with httpx.AsyncClient(base_url=url, timeout=WITHIN_S) as client:
        for page in PAGES:
            answer = await client.get(page)
            # On a busy machine, the service may not be ready yet.
            assert answer.is_success or page == READINESS, answer.text
        found = await client.post("/api/threads/search", json={"limit": 100})
        found.raise_for_status()
