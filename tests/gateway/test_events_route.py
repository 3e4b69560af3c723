"""GET /api/events: notifications of changes for open pages, over real connections."""

import json
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

import anyio
import httpx

from gateway.app import network_app
from gateway.changes import COLLECT_S, KEPT, SIGNAL
from gateway.config import load_config
from tests.eventually import eventually
from tests.gateway.composed import TOKEN, ComposedService, composed
from tests.gateway.langgraph_server import listening
from tests.gateway.test_messages_routes import message, received


@dataclass
class Reader:
    """An open page. `seen`: the events that arrived, as (event, topics, when)."""

    seen: list[tuple[str, frozenset[str], float]] = field(default_factory=list)
    last_id: str = ""

    @property
    def topics(self) -> frozenset[str]:
        return frozenset().union(*(topics for _, topics, _ in self.seen))

    @property
    def kinds(self) -> list[str]:
        return [event for event, _, _ in self.seen]

    async def read(self, client: httpx.AsyncClient) -> None:
        """Read until canceled."""
        headers = [(b"Last-Event-ID", self.last_id.encode("latin-1"))] if self.last_id else []
        async with client.stream("GET", "/api/events", headers=headers) as response:
            assert response.status_code == 200
            assert response.headers["content-type"].startswith("text/event-stream")
            event = ""
            async for line in response.aiter_lines():
                name, _, value = line.partition(": ")
                if name == "id":
                    self.last_id = value
                elif name == "event":
                    event = value
                elif name == "data":
                    topics = frozenset(json.loads(value)["topics"])
                    self.seen.append((event, topics, time.monotonic()))


@asynccontextmanager
async def served(folder: Path) -> AsyncIterator[tuple[ComposedService, httpx.AsyncClient]]:
    """Run the service, listening on a port."""
    async with composed(folder) as service:
        config = load_config(None, {"PARLEY_HOME": str(folder / "home")})
        app = network_app(service.app, config.gateway, token=TOKEN)
        async with (
            listening(app) as url,  # type: ignore[arg-type]
            httpx.AsyncClient(base_url=url, headers={"X-Api-Key": TOKEN}, timeout=60) as client,
        ):
            yield service, client


@asynccontextmanager
async def reading(client: httpx.AsyncClient, *readers: Reader) -> AsyncIterator[None]:
    """Connect readers. Inside the block, all are connected."""
    async with anyio.create_task_group() as tasks:
        for reader in readers:
            tasks.start_soon(reader.read, client)
        yield
        tasks.cancel_scope.cancel()


async def test_each_reader_gets_the_topics_and_none_without_a_token(tmp_path: Path) -> None:
    async with served(tmp_path) as (service, client):
        stranger = await client.get("/api/events", headers={"X-Api-Key": "wrong"})
        assert stranger.status_code == 401
        readers = [Reader() for _ in range(3)]
        async with reading(client, *readers):
            await eventually(lambda: all(one.last_id for one in readers))
            await received(service, message(1, "hello"))
            for one in readers:
                await eventually(lambda one=one: {"messages"} <= one.topics)  # type: ignore[misc]
        assert all(set(one.kinds) == {"change"} for one in readers)
        assert len({one.last_id.partition("-")[0] for one in readers}) == 1


async def test_changes_of_what_is_known_about_people_are_told(tmp_path: Path) -> None:
    async with served(tmp_path) as (service, client):
        reader = Reader()

        async def known() -> bool:
            return "Ann" in (await client.get("/api/people")).text

        async with reading(client, reader):
            await eventually(lambda: reader.last_id)
            await received(service, message(1, "/status"))
            await eventually(known)
            known_at = time.monotonic()
            await eventually(lambda: [one for one in reader.seen if one[2] > known_at])
            assert "people" not in reader.topics
            fact = {"content": "likes tea"}
            await client.post("/api/memory/facts?scope=user:terminal:local:u1", json=fact)
            await eventually(lambda: "people" in reader.topics)
            reader.seen.clear()
            await client.patch("/api/people/terminal/u1", json={"language": "zh"})
            await eventually(lambda: "people" in reader.topics)
            reader.seen.clear()
            await client.delete("/api/memory?scope=user:terminal:local:u1")
            await eventually(lambda: "people" in reader.topics)


async def test_a_reader_resumes_where_it_broke_off(tmp_path: Path) -> None:
    async with served(tmp_path) as (service, client):
        reader, other = Reader(), Reader()
        async with reading(client, reader):
            await eventually(lambda: reader.last_id)
        async with reading(client, other):
            await eventually(lambda: other.last_id)
            service.services.changes.note("access")
            await eventually(lambda: "access" in other.topics)
        assert reader.seen == []
        async with reading(client, reader):
            await eventually(lambda: reader.seen)
        assert reader.kinds == ["change"]
        assert "access" in reader.topics


async def test_a_reader_that_missed_too_much_starts_anew(tmp_path: Path) -> None:
    async with served(tmp_path) as (service, client):
        reader = Reader()
        async with reading(client, reader):
            await eventually(lambda: reader.last_id)
        boot = reader.last_id.partition("-")[0]
        watcher = Reader()
        async with reading(client, watcher):
            await eventually(lambda: watcher.last_id)
            for _ in range(KEPT + 2):  # like other processes, which publish twice a second
                service.services.database.signals.publish(SIGNAL, json.dumps(["messages"]))
            await eventually(lambda: int(watcher.last_id.partition("-")[2]) >= KEPT + 2)
        unknown = ("999999", "9" * 5_000, "²", "-1", "")
        for missed in (
            *(reader.last_id, "of-another-process-7", "x"),
            *(f"{boot}-{number}" for number in unknown),
        ):
            late = Reader(last_id=missed)
            async with reading(client, late):
                await eventually(lambda late=late: late.seen)  # type: ignore[misc]
            assert late.kinds == ["reset"]


async def test_many_changes_are_at_most_two_events_a_second(tmp_path: Path) -> None:
    async with served(tmp_path) as (service, client):
        reader = Reader()
        async with reading(client, reader):
            await eventually(lambda: reader.last_id)
            began = time.monotonic()
            while len(reader.seen) < 6:
                service.services.changes.note("deliveries")
                await anyio.sleep(0.001)
            took = time.monotonic() - began
    # Events are at least as far apart as the time for which changes are collected, however slow the machine is.
    assert len(reader.seen) <= took / COLLECT_S + 1
