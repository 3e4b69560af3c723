"""Two nodes without their database, for a short while or, with PARLEY_TEST_LONG=1, for 60 seconds.

Nothing is lost, and no action is needed.
"""

import os
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import anyio
import anyio.to_thread
import httpx
import psycopg
import pytest

from gateway.playground.slack.server import FakeSlack
from tests.eventually import eventually
from tests.fakes.postgres import MISSING, PostgresServer
from tests.fakes.postgres_proxy import PostgresProxy
from tests.journeys.nodes import slow_model, two_nodes, write_all
from tests.journeys.service import Service, with_model
from tests.people.platforms import PlatformServers

LONG = os.environ.get("PARLEY_TEST_LONG") == "1"

OUTAGE_S = 60.0 if LONG else 0.0
"""How long the outage lasts after both nodes have noticed it, seconds."""

RETRIES_S = (0.1, 60.0, 300.0) if LONG else (0.5,) * 600
"""Slack's pauses before it sends an event again, seconds. They are shorter for the short outage."""

AGAIN_WITHIN_S = 400.0 if LONG else 60.0


@dataclass
class Outage:
    """A database that can go away and come back.

    Attributes:
        url: URL of the database for the nodes.
        begin, end: Blocking functions that begin and end the outage.
    """

    url: str
    begin: Callable[[], None]
    end: Callable[[], None]


@contextmanager
def packets_dropped(server: PostgresServer) -> Iterator[Outage]:
    """The network forwards nothing and closes nothing."""
    with server.database() as url, PostgresProxy(url) as proxy:
        yield Outage(proxy.url, proxy.hold, proxy.release)


@contextmanager
def stopped(server: PostgresServer) -> Iterator[Outage]:
    with server.database() as url:
        yield Outage(url, server.stop, server.start)


@contextmanager
def failed_over(server: PostgresServer) -> Iterator[Outage]:
    """The primary is gone. Its replica is read-only until it is promoted. Committed messages are in both."""
    with server.database() as url, server.replica() as replica:
        host = replica.url.split("@")[1].split("/")[0]
        _require_replica(server, "'*'")
        try:
            yield Outage(url.replace("@", f"@{host},"), server.stop, replica.promote)
        finally:
            server.start()
            _require_replica(server, "''")


def _require_replica(server: PostgresServer, names: str) -> None:
    """Let commits wait for the replicas with these names."""
    with psycopg.connect(server.url, autocommit=True) as connection:
        connection.execute("SET synchronous_commit = local")
        connection.execute(f"ALTER SYSTEM SET synchronous_standby_names = {names}".encode())
        connection.execute("SELECT pg_reload_conf()")


async def is_ready(node: Service) -> bool:
    """Return whether a node can use its database. If packets are dropped, the node responds late or not at all."""
    try:
        async with httpx.AsyncClient(base_url=node.url, timeout=2) as client:
            return (await client.get("/health/ready")).status_code == 200
    except httpx.TransportError:
        return False


@pytest.mark.timeout(600 if LONG else 300)
@pytest.mark.parametrize("breaks", [packets_dropped, stopped, failed_over])
async def test_messages_before_in_and_after_an_outage_are_answered(
    tmp_path: Path,
    postgres: PostgresServer | None,
    breaks: Callable[[PostgresServer], AbstractContextManager[Outage]],
) -> None:
    if postgres is None or not postgres.control:
        pytest.skip(MISSING)
    platforms = PlatformServers()
    platforms.slack = FakeSlack(ack_window_s=3.0, retries_s=RETRIES_S)
    async with platforms, slow_model() as model:
        with breaks(postgres) as outage:
            config = {
                **with_model(model.base_url), "channels": platforms.channels, "database": {"url": outage.url},
            }  # fmt: skip
            async with two_nodes(tmp_path, config) as nodes:
                await write_all(platforms, model)
                await anyio.to_thread.run_sync(outage.begin)
                try:
                    for user in platforms.users:
                        await user.send(f"is it away, {user.name}?")
                    for node in nodes:
                        await eventually(partial(is_ready, node), lambda ready: not ready)
                    await anyio.sleep(OUTAGE_S)
                finally:
                    await anyio.to_thread.run_sync(outage.end)
                for user in platforms.users:
                    texts = [f"hi from {user.name}", f"is it away, {user.name}?"]
                    answers = [f"You said: {text}" for text in texts]
                    await user.expect_messages(*answers, within_s=AGAIN_WITHIN_S)
                    await user.send(f"welcome, {user.name}")
                    await user.expect_messages(*answers, f"You said: welcome, {user.name}")
                    assert user.misplaced_messages() == []
                for node in nodes:
                    assert await node.stop() == 0
        assert platforms.violations == []
