"""The whole bus on a real journal, between a fake platform and a fake LangGraph server."""

import ssl
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

import anyio
import httpx
from aiohttp import BodyPartReader, web
from langgraph_sdk.client import LangGraphClient

from bus.config import BusConfig, ChannelPolicy, SessionConfig
from bus.context import AgentServer
from bus.messages import Attachment, InboundMessage, ReplyTarget, Sender
from bus.platform import Adapter, Disposition
from bus.runs.remote import RemoteRuns
from bus.runs.remote_files import RemoteFiles
from bus.service import Bus, run_bus
from bus.voice.config import VoiceConfig
from store.config import StoreConfig
from store.conversations import ConversationKey
from store.database import Database
from store.node_calls import open_node_calls
from tests.eventually import eventually
from tests.fakes.clock import OffsetClock
from tests.fakes.langgraph import FakeLangGraph, Script
from tests.fakes.migrated import place_database
from tests.fakes.platform import FakePlatform

OPEN = ChannelPolicy(dm_policy="open")
STEER = OPEN.model_copy(update={"session": SessionConfig(busy="steer")})
NO_TLS = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
"""A shared SSL context. Loading certificates would take each client 0.1 s."""


@dataclass
class FakeGateway:
    """Answers the REST requests of commands. A number is a status instead of a document.

    Attributes:
        asked: Method, path and query of every request.
        uploads: (thread id, name, bytes) of every uploaded file.
        refusals: Error responses to the next uploads: (status, detail).
    """

    documents: dict[str, object] = field(
        default_factory=lambda: {
            "models": {"models": [{"name": "gpt"}, {"name": "qwen"}]},
            "memory": {
                "facts": [
                    {
                        "id": "f2",
                        "number": 4,
                        "content": "sails",
                        "createdAt": "2026-03-02T10:00:00Z",
                        "source": "t1",
                        "speakerId": "ann",
                        "speaker": "Ann",
                    },
                    {
                        "id": "f1",
                        "number": 1,
                        "content": "likes tea",
                        "createdAt": "2026-03-01T10:00:00Z",
                        "source": "manual",
                        "speakerId": "",
                        "speaker": "",
                    },
                ]
            },
            "agents": {"agents": [{"name": "reviewer"}]},
            "skills": {
                "skills": [
                    {"name": "notes", "description": "Writes\nnotes", "enabled": True},
                    {"name": "old", "enabled": False},
                ]
            },
        }
    )
    url: str = ""
    asked: list[tuple[str, str, dict[str, str]]] = field(default_factory=list)
    uploads: list[tuple[str, str, bytes]] = field(default_factory=list)
    refusals: list[tuple[int, str]] = field(default_factory=list)

    async def answer(self, request: web.Request) -> web.Response:
        self.asked.append((request.method, request.match_info["what"], dict(request.query)))
        document = self.documents[request.match_info["what"].split("/")[0]]
        if isinstance(document, int):
            return web.json_response({}, status=document)
        return web.json_response(document)

    async def upload(self, request: web.Request) -> web.Response:
        if self.refusals:
            status, detail = self.refusals.pop(0)
            await request.read()
            return web.json_response({"detail": detail}, status=status)
        part = await (await request.multipart()).next()
        assert isinstance(part, BodyPartReader)
        assert part.name == "files"
        name = part.filename or ""
        content = bytes(await part.read())
        self.uploads.append((request.match_info["thread"], name, content))
        path = f"/mnt/user-data/uploads/{name}"
        kept = {"filename": name, "size": len(content), "path": path, "virtual_path": path}
        return web.json_response({"success": True, "files": [kept], "skipped_files": []})


def inbound_message(text: str, event: str, **changes: object) -> InboundMessage:
    """Return a private message. `chat`, `topic`, `user` and the fields of `InboundMessage` can be overridden."""
    chat, user = str(changes.pop("chat", "c")), str(changes.pop("user", "u"))
    fields: dict[str, object] = {
        "event_id": event,
        "message_id": event,
        "key": ConversationKey(
            channel=str(changes.pop("channel", "fake")),
            workspace="w",
            chat=chat,
            topic=str(changes.pop("topic", "")),
        ),
        "reply_target": ReplyTarget(chat=chat, reply_to=event),
        "sender": Sender(user_id=user, name=user),
        "text": text,
        "is_private": True,
        "is_addressed": True,
        **changes,
    }
    return InboundMessage(**fields)  # type: ignore[arg-type]


def attachment(name: str) -> Attachment:
    return Attachment(name=name, ref="r")


@dataclass
class BusHarness:
    """A running bus, and the fakes around it."""

    bus: Bus
    platform: FakePlatform
    server: FakeLangGraph
    gateway: FakeGateway
    database: Database
    clock: OffsetClock
    sent: int = 0

    async def send(self, text: str, **changes: object) -> Disposition:
        self.sent += 1
        event = str(changes.pop("event", f"e{self.sent}"))
        return await self.bus.intake.receive(inbound_message(text, event, **changes))

    async def expect_replies(self, *texts: str) -> None:
        """Wait until people see exactly these texts, in any order of the conversations."""
        await eventually(lambda: sorted(self.platform.texts) == sorted(texts))

    async def wait_for_runs(self, count: int) -> None:
        """Wait until this many runs were started."""
        await eventually(lambda: len(self.server.runs) >= count)

    def hold_next_run(self, *words: str) -> anyio.Event:
        """Let the next run answer with these words once the returned event is set."""
        gate = anyio.Event()
        self.server.scripts.append(Script(words=words, gate=gate))
        return gate

    async def unfinished_events(self) -> list[str]:
        return [row.event_id for row in await self.bus.inbox.list_unfinished()]

    async def wait_until_finished(self) -> None:
        """Wait until no message is left to answer."""
        await eventually(self.unfinished_events, lambda events: not events)

    def thread_messages(self) -> list[str]:
        """The texts of the server's only thread."""
        [messages] = self.server.threads.values()
        return [str(message["content"]) for message in messages]

    def prompts(self) -> list[str]:
        """The agent's input of each run."""
        return [run.body["input"]["messages"][0]["content"] for run in self.server.runs]


@asynccontextmanager
async def running_bus(
    home: Path,
    *,
    platform: FakePlatform | None = None,
    server: FakeLangGraph | None = None,
    policy: ChannelPolicy = OPEN,
    config: BusConfig | None = None,
    others: Mapping[str, Adapter] | None = None,
    wrap: Callable[[Database], Database] | None = None,
    store: StoreConfig | None = None,
    graphs: frozenset[str] = frozenset(),
    voice: VoiceConfig | None = None,
    clock: OffsetClock | None = None,
) -> AsyncIterator[BusHarness]:
    """Run a bus. Pass a running `server` to keep it across restarts of the bus.

    `wrap` wraps the bus's database.
    """
    platform = platform or FakePlatform()
    clock, rest = clock or OffsetClock(), FakeGateway()
    async with (
        _served(server) as langgraph,
        _gateway(rest),
        Database.open(store or StoreConfig(), place_database(home)) as database,
    ):
        adapters: dict[str, Adapter] = {platform.name: platform, **(others or {})}
        async with (
            httpx.AsyncClient(base_url=langgraph.url, verify=NO_TLS, timeout=30) as wire,
            httpx.AsyncClient(base_url=rest.url, verify=NO_TLS) as gateway,
            open_node_calls(wrap(database) if wrap else database) as calls,
            run_bus(
                config=config or BusConfig(drain_s=0.2),
                policies=dict.fromkeys(adapters, policy),
                adapters=adapters,
                server=AgentServer(
                    runs=RemoteRuns(LangGraphClient(wire)),
                    files=RemoteFiles(gateway),
                    gateway=gateway,
                    graphs=graphs,
                ),
                calls=calls,
                voice=voice or VoiceConfig(),
                now=clock,
            ) as bus,
        ):
            yield BusHarness(bus, platform, langgraph, rest, database, clock)


@asynccontextmanager
async def running_steered_bus(
    home: Path,
    platform: FakePlatform | None = None,
    server: FakeLangGraph | None = None,
    policy: ChannelPolicy = STEER,
    voice: VoiceConfig | None = None,
) -> AsyncIterator[BusHarness]:
    """Run a bus whose server can inject messages into running runs."""
    async with running_bus(
        home, platform=platform, server=server, policy=policy, voice=voice
    ) as harness:
        harness.server.accepts_injection = True
        yield harness


@asynccontextmanager
async def _served(server: FakeLangGraph | None) -> AsyncIterator[FakeLangGraph]:
    if server is not None:
        yield server
        return
    async with FakeLangGraph() as own:
        yield own


@asynccontextmanager
async def _gateway(rest: FakeGateway) -> AsyncIterator[None]:
    app = web.Application()
    app.add_routes(
        [
            web.route("*", "/api/{what}", rest.answer),
            web.delete("/api/{what:memory/facts/[^/]+}", rest.answer),
            web.post("/api/threads/{thread}/uploads", rest.upload),
        ]
    )
    runner = web.AppRunner(app)
    await runner.setup()
    try:
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        host, port = runner.addresses[0][:2]
        rest.url = f"http://{host}:{port}/api"
        yield
    finally:
        await runner.cleanup()
