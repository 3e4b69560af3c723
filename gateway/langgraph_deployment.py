"""The agent on a LangGraph Server, as named in `langgraph.json`. Parley's own service does not use this module.

`app` opens the agent's services for as long as the server runs; `make_graph` returns the graph for a run. The server
has its own checkpointer and store. It finds `app` and `make_graph` by name in this module.

The server also gets the agent's routes under /api, protected by the admin token: uploads, artifacts, memory, skills
and models. Bots reach them with `channels.gateway_url`.
"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import anyio.to_thread
from fastapi import FastAPI
from langchain_core.runnables import RunnableConfig
from starlette.applications import Starlette
from starlette.routing import Mount
from starlette.types import ASGIApp, Receive, Scope, Send

from agent.factory import AgentFactory, AgentGraph, open_agent_factory
from agent.services import AgentServices
from gateway import errors
from gateway.agent_setup import agent_setup_from_config
from gateway.app import ErrorMiddleware
from gateway.auth import AccessMiddleware, load_admin_token
from gateway.config import Config, load_config, prepare_process_for_agent
from gateway.routes import agents as custom_agents
from gateway.routes import artifacts, mcp, memory, models, skills, suggestions, uploads

REST_ROUTES = (custom_agents, artifacts, mcp, memory, models, skills, suggestions, uploads)
"""Routes that need only the agent."""


@asynccontextmanager
async def lifespan(_server: Starlette) -> AsyncIterator[None]:
    """Open the agent of config.yaml. Raises ConfigError, AgentError."""
    config = await anyio.to_thread.run_sync(_load_config)
    async with open_agent_factory(agent_setup_from_config(config)) as agents:
        app.state.agents = agents
        app.state.rest = await anyio.to_thread.run_sync(build_rest_app, config, agents.services)
        try:
            yield
        finally:
            del app.state.agents, app.state.rest


def build_rest_app(config: Config, agent_services: AgentServices) -> ASGIApp:
    """Return the agent's routes with access control, for mounting at /api."""
    inner = FastAPI(docs_url=None, redoc_url=None, openapi_url=None)
    inner.state.agent_services = agent_services
    inner.add_middleware(ErrorMiddleware)
    errors.install_error_handlers(inner)
    for module in REST_ROUTES:
        inner.include_router(module.router)
    token = load_admin_token(config)
    return AccessMiddleware(
        inner,
        token=token.value if token else None,
        hosts=(config.gateway.host, *config.gateway.allowed_hosts),
        origins=config.gateway.cors_origins,
        rates=config.gateway.rate_limit,
    )


async def serve_rest(scope: Scope, receive: Receive, send: Send) -> None:
    """Handle one request for the agent's routes."""
    await app.state.rest(scope, receive, send)


app = Starlette(routes=[Mount("/api", app=serve_rest)], lifespan=lifespan)


@asynccontextmanager
async def make_graph(config: RunnableConfig) -> AsyncIterator[AgentGraph]:
    """Yield the graph for a run's options.

    Without a server that keeps the services open, open them for this use, which takes about a tenth of a second.

    Raises:
        AgentError: The options name something that cannot be used.
    """
    agents: AgentFactory | None = getattr(app.state, "agents", None)
    if agents is not None:
        yield await agents.graph_for(config)
        return
    async with open_agent_factory(
        agent_setup_from_config(await anyio.to_thread.run_sync(_load_config))
    ) as alone:
        yield await alone.graph_for(config)


def _load_config() -> Config:
    config = load_config()
    prepare_process_for_agent(config)
    return config
