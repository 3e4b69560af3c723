"""The runs API with small graphs, served over TCP or in process, for the stock SDK."""

import socket
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any, Literal

import anyio
import httpx
import uvicorn
from fastapi import APIRouter, FastAPI
from langgraph_sdk.client import LangGraphClient
from starlette.routing import BaseRoute
from typing_extensions import override

from agent.factory import open_agent_factory
from agent.network.url_guard import UrlGuard
from agent.services import AgentSetup
from gateway.app import Application
from gateway.audit import AuditLog
from gateway.changes import ChangeFeed
from gateway.config import load_config
from gateway.figures import Figures
from gateway.langgraph import langgraph_routers
from gateway.request_stats import RequestStats
from gateway.runtime.assistants import GraphSource
from gateway.runtime.cluster_runs import open_cluster_runs
from gateway.runtime.runs import RunManager, RuntimeSettings
from gateway.runtime.webhooks import RunWebhooks
from gateway.services import Services
from gateway.watchdog import Watchdog
from store.api_tokens import ApiTokenStore
from store.checkpoints import CheckpointSaver, open_checkpointer
from store.config import StoreConfig
from store.console_sessions import ConsoleSessionStore
from store.database import Database
from store.figures import FigureStore
from store.node_calls import open_node_calls
from tests.asgi import StreamingASGITransport
from tests.fakes.graphs import Graphs
from tests.fakes.migrated import place_database

Way = Literal["tcp", "process"]
PREFIXES = ("/api", "/api/langgraph")
WEBHOOK_KEY = b"the key of the signatures"


@dataclass(frozen=True, kw_only=True)
class ApiServer:
    """A running API and its clients."""

    sdk: Any  # A LangGraphClient. Tests also send data that its types forbid.
    http: httpx.AsyncClient
    runs: RunManager
    graphs: Graphs
    checkpointer: CheckpointSaver
    database: Database
    url: str
    app: Application


def build_app(services: Services) -> Application:
    """Return an application with only the LangGraph routers, mounted as the gateway mounts them."""
    return Application(services, routes=shared_routes())


@cache
def shared_routes() -> list[BaseRoute]:
    root = APIRouter()
    for prefix in PREFIXES:
        for router in langgraph_routers():
            root.include_router(router, prefix=prefix)
    return root.routes


@asynccontextmanager
async def serving(
    home: Path,
    *,
    way: Way = "process",
    prefix: str = "/api",
    heartbeat_s: float = 5.0,
    settings: RuntimeSettings | None = None,
    max_searched_threads: int = 5000,
    sources: Mapping[str, GraphSource] | None = None,
    database_url: str = "",
) -> AsyncIterator[ApiServer]:
    """Serve the API from a data folder, or as a node of a PostgreSQL database, with the test graphs or others."""
    graphs = Graphs()
    async with AsyncExitStack() as stack:
        store = StoreConfig(url=database_url) if database_url else StoreConfig()
        database = await stack.enter_async_context(Database.open(store, place_database(home)))
        checkpointer = await stack.enter_async_context(open_checkpointer(home, database))
        runs = await stack.enter_async_context(
            RunManager(
                database,
                graphs.sources if sources is None else sources,
                checkpointer,
                settings=settings,
                webhooks=RunWebhooks(
                    UrlGuard(allow_private_hosts=["127.0.0.1"]), lambda: WEBHOOK_KEY, pause_s=0.01
                ),
            )
        )
        app = build_app(
            replace(
                await services_for(stack, home, database, runs),
                heartbeat_s=heartbeat_s,
                max_searched_threads=max_searched_threads,
            )
        )
        app.state.services.serve_calls()
        if way == "tcp":
            url = await stack.enter_async_context(listening(app)) + prefix
            client = httpx.AsyncClient(base_url=url, timeout=20.0, trust_env=False)
        else:
            url = f"http://parley.internal{prefix}"
            transport = StreamingASGITransport(app)
            client = httpx.AsyncClient(transport=transport, base_url=url, timeout=20.0)
        http = await stack.enter_async_context(client)
        yield ApiServer(
            sdk=LangGraphClient(http),
            http=http,
            runs=runs,
            graphs=graphs,
            checkpointer=checkpointer,
            database=database,
            url=url,
            app=app,
        )


async def services_for(
    stack: AsyncExitStack, home: Path, database: Database, runs: RunManager
) -> Services:
    """Return services with the given runs and the built-in agent."""
    config = load_config(None, {"PARLEY_HOME": str(home)})
    setup = AgentSetup(config=config.agent, home=home)
    calls = await stack.enter_async_context(open_node_calls(database))
    return Services(
        node_calls=calls,
        config=config,
        database=database,
        agents=await stack.enter_async_context(open_agent_factory(setup)),
        runs=runs,
        cluster_runs=await stack.enter_async_context(open_cluster_runs(runs, calls)),
        stats=RequestStats(),
        audit=AuditLog(config.audit_file),
        watchdog=Watchdog(0),
        tokens=ApiTokenStore(database),
        sessions=ConsoleSessionStore(database),
        changes=ChangeFeed(database.signals),
        figures=Figures(FigureStore(database)),
    )


@asynccontextmanager
async def listening(app: FastAPI) -> AsyncIterator[str]:
    with socket.socket(proto=socket.IPPROTO_TCP) as listener:
        listener.bind(("127.0.0.1", 0))
        config = uvicorn.Config(app, log_level="warning", lifespan="off", ws="websockets-sansio")
        server = _Server(config)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(lambda: server.serve(sockets=[listener]))
            with anyio.fail_after(20):
                await server.ready.wait()
            try:
                yield f"http://127.0.0.1:{listener.getsockname()[1]}"
            finally:
                server.should_exit = server.force_exit = True


class _Server(uvicorn.Server):
    """A server that signals when it listens."""

    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self.ready = anyio.Event()

    @override
    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self.ready.set()
