"""The HTTP application: routers, middleware order, error table. No state of its own."""

from collections.abc import Iterable

from fastapi import APIRouter, FastAPI
from starlette.middleware.cors import CORSMiddleware
from starlette.types import ASGIApp

from gateway import errors
from gateway.auth import Guard
from gateway.config import GatewayConfig
from gateway.routes import artifacts, channels, health, memory, models, terminal
from gateway.services import Services

IN_PROCESS_URL = "http://parley.internal"
"""What clients inside the process call the gateway; no network is involved."""

EXPOSED_HEADERS = ("Content-Location", "Location", "X-Pagination-Total")
"""What a web page may read: the LangGraph SDK for browsers needs them."""


def build_app(services: Services, langgraph: Iterable[APIRouter]) -> FastAPI:
    """Return the application for requests inside the process; nobody is asked for a token.

    Args:
        services: The running parts; the composition root may replace `app.state.services` later.
        langgraph: The routers of the LangGraph-compatible API, served below /api and /api/langgraph.
    """
    app = FastAPI(title="Parley", docs_url=None, redoc_url=None, openapi_url="/api/openapi.json")
    app.router.redirect_slashes = False
    app.state.services = services
    errors.install(app)
    app.include_router(health.router)
    for module in (artifacts, terminal, channels, memory, models):
        app.include_router(module.router, prefix="/api")
    for router in langgraph:
        app.include_router(router, prefix="/api")
        app.include_router(router, prefix="/api/langgraph", include_in_schema=False)
    return app


def guarded(app: ASGIApp, config: GatewayConfig, *, token: str | None) -> ASGIApp:
    """Return the application for the network: behind the guard, with CORS where pages are allowed."""
    inner: ASGIApp = Guard(
        app,
        token=token,
        hosts=(config.host, *config.allowed_hosts),
        origins=config.cors_origins,
    )
    if not config.cors_origins:
        return inner
    return CORSMiddleware(
        inner,
        allow_origins=config.cors_origins,
        allow_methods=["*"],
        allow_headers=["*"],
        expose_headers=EXPOSED_HEADERS,
        max_age=600,
    )
