"""The agent on somebody else's LangGraph Server: what `langgraph.json` names. Parley's own service knows nothing of it.

`app` opens the agent's systems once, as long as that server runs; `make_graph` gives it the graph for a run. The server
brings its own checkpointer and store. Both are names in a module because that is how the server finds them.
"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from langchain_core.runnables import RunnableConfig
from starlette.applications import Starlette

from agent.lead import LeadAgents, LeadGraph, open_agents
from gateway.config import load
from gateway.embedded import site_of


@asynccontextmanager
async def lifespan(_server: Starlette) -> AsyncIterator[None]:
    """Open the agent that config.yaml describes. Raises ConfigError, AgentError."""
    async with _opened() as agents:
        app.state.agents = agents
        try:
            yield
        finally:
            del app.state.agents


app = Starlette(lifespan=lifespan)


@asynccontextmanager
async def make_graph(config: RunnableConfig) -> AsyncIterator[LeadGraph]:
    """Give the graph for a run's options.

    Where no server keeps the systems open they are opened for this one use, which takes about a tenth of a second.

    Raises:
        AgentError: The options name what cannot be used.
    """
    agents: LeadAgents | None = getattr(app.state, "agents", None)
    if agents is not None:
        yield await agents.graph(config)
        return
    async with _opened() as alone:
        yield await alone.graph(config)


@asynccontextmanager
async def _opened() -> AsyncIterator[LeadAgents]:
    async with open_agents(site_of(load())) as agents:
        yield agents
