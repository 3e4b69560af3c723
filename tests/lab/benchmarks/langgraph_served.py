"""The servers for tests/lab/benchmarks/langgraph.py: Parley's, and a minimal one with FastAPI and LangGraph.

Run as `python -m tests.lab.benchmarks.langgraph_served ours|bare FOLDER [URL]`. It prints its port. URL is the
database's.
"""

import gc
import socket
import sys
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any, cast
from uuid import uuid4

import anyio
import orjson
import uvicorn
from fastapi import FastAPI, Request, Response
from fastapi.responses import StreamingResponse
from langchain_core.messages import AIMessage, BaseMessage
from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.sqlite.aio import AsyncSqliteSaver
from langgraph.graph import START, MessagesState, StateGraph

from gateway.runtime.assistants import GraphSource
from gateway.runtime.execution import Graph
from gateway.runtime.runs import RunManager
from store.checkpoints import open_checkpointer
from store.config import StoreConfig
from store.database import Database
from tests.fakes.graphs import Graphs
from tests.gateway.langgraph_server import build_app, services_for
from tests.lab.benchmarks.service_loop import run_as_service

WAITS = "waits"
"""A graph whose runs only wait a second."""


@asynccontextmanager
async def ours(folder: Path, store: StoreConfig) -> AsyncIterator[FastAPI]:
    """Parley's routers, runtime and store."""
    sources: dict[str, GraphSource] = {**Graphs().sources, WAITS: _waits}
    async with AsyncExitStack() as stack:
        database = await stack.enter_async_context(Database.open(store, folder))
        checkpointer = await stack.enter_async_context(open_checkpointer(folder, database))
        runs = await stack.enter_async_context(RunManager(database, sources, checkpointer))
        yield build_app(await services_for(stack, folder, database, runs))


async def _waits(_: RunnableConfig) -> Graph:
    async def wait(state: MessagesState) -> MessagesState:
        await anyio.sleep(1)
        return {"messages": [AIMessage("ok")]}

    return StateGraph(MessagesState).add_node("wait", wait).add_edge(START, "wait").compile()


@asynccontextmanager
async def bare(folder: Path) -> AsyncIterator[FastAPI]:
    """A graph behind FastAPI with LangGraph's own saver: no rows, no events, no ids, no joins."""
    async with AsyncSqliteSaver.from_conn_string(str(folder / "bare.db")) as saver:
        await saver.setup()
        await saver.conn.execute("PRAGMA synchronous=NORMAL")
        graphs = {name: await source({}) for name, source in Graphs().sources.items()}
        for graph in graphs.values():
            graph.checkpointer = saver
        yield _bare_app(graphs)


def _bare_app(graphs: dict[str, Graph]) -> FastAPI:
    app = FastAPI()

    @app.post("/api/threads", response_model=None)
    async def create() -> Response:
        return _json({"thread_id": str(uuid4())})

    @app.post("/api/threads/{thread_id}/runs/wait", response_model=None)
    async def wait(request: Request, thread_id: str) -> Response:
        body = orjson.loads(await request.body())
        config: Any = {"configurable": {"thread_id": thread_id}}
        return _json(await graphs[body["assistant_id"]].ainvoke(body["input"], config))

    @app.post("/api/threads/{thread_id}/runs/stream", response_model=None)
    async def stream(request: Request, thread_id: str) -> Response:
        body = orjson.loads(await request.body())
        config: Any = {"configurable": {"thread_id": thread_id}}

        async def frames() -> AsyncIterator[bytes]:
            chunks = graphs[body["assistant_id"]].astream(
                body["input"], config, stream_mode="messages"
            )
            async for chunk in chunks:
                message, metadata = cast("tuple[BaseMessage, dict[str, Any]]", chunk)
                data = orjson.dumps([message.model_dump(), metadata], default=str)
                yield b"event: messages\ndata: %b\n\n" % data

        return StreamingResponse(frames(), media_type="text/event-stream")

    return app


def _json(value: object) -> Response:
    return Response(orjson.dumps(value, default=str), media_type="application/json")


async def serve(kind: str, folder: Path, store: StoreConfig) -> None:
    """Serve until killed."""
    # The protocol is explicit because asyncio disables Nagle's algorithm only then.
    with socket.socket(proto=socket.IPPROTO_TCP) as listener:
        listener.bind(("127.0.0.1", 0))
        async with ours(folder, store) if kind == "ours" else bare(folder) as app:
            if kind == "ours":
                gc.freeze()  # The same as in the service.
            config = uvicorn.Config(
                app, log_level="error", access_log=False, lifespan="off", ws="none"
            )
            print(listener.getsockname()[1], flush=True)
            await uvicorn.Server(config).serve(sockets=[listener])


if __name__ == "__main__":
    run = run_as_service if sys.argv[1] == "ours" else anyio.run
    store = StoreConfig(url=sys.argv[3]) if len(sys.argv) > 3 else StoreConfig()
    run(serve, sys.argv[1], Path(sys.argv[2]), store)
