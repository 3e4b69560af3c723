"""The HTTP application: routers, middleware and error handlers."""

import logging
from collections.abc import Awaitable, Iterable
from functools import cache
from typing import Any

from fastapi import APIRouter, FastAPI
from starlette.middleware.cors import CORSMiddleware
from starlette.requests import ClientDisconnect
from starlette.routing import BaseRoute, Match
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from typing_extensions import override

from bots.common.webhooks import webhook_path
from gateway import errors
from gateway.api_tokens import ApiTokenLookup
from gateway.auth import OPEN_PATHS, AccessMiddleware
from gateway.gateway_config import GatewayConfig
from gateway.langgraph import langgraph_routers
from gateway.langgraph.direct_routes import DirectRoutes
from gateway.middleware import RequestMiddleware
from gateway.openapi import COMMON_RESPONSES, error_responses, install_openapi
from gateway.proxies import ProxyMiddleware
from gateway.routes import (
    agents,
    api_description,
    artifacts,
    audit,
    broadcasts,
    channels,
    configuration,
    conversations,
    deliveries,
    events,
    guardrails,
    health,
    hooks,
    logs,
    markdown,
    mcp,
    memory,
    messages,
    metrics,
    model_details,
    models,
    notifications,
    overview,
    people,
    prompt,
    schedules,
    sessions,
    skills,
    slack_install,
    suggestions,
    takeovers,
    terminal,
    tokens,
    tools,
    uploads,
    usage,
    webhooks,
)
from gateway.routes.console import mount_console
from gateway.routes.documentation import mount_documentation
from gateway.services import Services
from gateway.sessions import SessionLookup
from gateway.version import get_version
from store.api_tokens import token_digest

log = logging.getLogger(__name__)

INTERNAL_URL = "http://parley.internal"
"""Base URL of the gateway for clients inside the process; no network is involved."""

EXPOSED_HEADERS = (
    "Content-Location",
    "Location",
    "Retry-After",
    "X-Pagination-Next",
    "X-Pagination-Total",
    "X-Request-Id",
)
"""Response headers that web pages may read; LangGraph's JavaScript SDK needs them."""


class ErrorMiddleware:
    """Logs unexpected exceptions and responds with 500."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        has_started = False

        def noted(message: Message) -> Awaitable[None]:
            nonlocal has_started
            has_started = True
            return send(message)

        try:
            await self._app(scope, receive, noted)
        except ClientDisconnect:
            # The client disconnected while sending its body. Nobody reads a response, and a traceback would only fill
            # the log.
            log.debug(
                "the client of %s %s disconnected", scope.get("method", ""), scope.get("path", "")
            )
        except Exception:
            log.exception("%s %s failed", scope.get("method", ""), scope.get("path", ""))
            if has_started:
                raise
            await errors.send_internal_error(scope, receive, send)


PREPARED_PATH = "/api/threads/any/runs"
"""Path of the first request of a continued turn."""

LANGGRAPH_PREFIXES = ("/api", "/api/langgraph")
"""Path prefixes of the LangGraph API. Only the first one is in the OpenAPI document."""


class Application(FastAPI):
    """FastAPI with a shorter way to the LangGraph API's simple endpoints (`gateway/langgraph/direct_routes.py`).

    Args:
        services: The services; the composition root may replace `app.state.services` later.
        options: Options of FastAPI.
    """

    def __init__(self, services: Services, **options: Any) -> None:  # noqa: ANN401 - FastAPI's
        super().__init__(**options)
        self.router.redirect_slashes = False
        self.state.services = services
        self.state.agent_services = services.agent_services
        self.add_middleware(ErrorMiddleware)
        errors.install_error_handlers(self)
        self._direct = direct_routes()

    @override
    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        endpoint = self._direct.find(scope)
        if endpoint is None:
            await super().__call__(scope, receive, send)
            return
        scope["app"] = self
        await ErrorMiddleware(endpoint)(scope, receive, send)

    def prepare(self) -> None:
        """Build FastAPI's routers now, which takes 0.2 s of CPU, instead of during the first turn.

        Thread-safe.
        """
        scope = {"type": "http", "method": "GET", "path": PREPARED_PATH}
        for route in self.router.routes:
            if route.matches(scope)[0] is Match.FULL:
                return


@cache
def direct_routes() -> DirectRoutes:
    """Return the direct routes, which all applications of this process share."""
    return DirectRoutes(langgraph_routers(), LANGGRAPH_PREFIXES)


@cache
def included_routes() -> list[BaseRoute]:
    """Return the routes. All applications of this process share them, because preparing them takes FastAPI long."""
    root = APIRouter(responses=COMMON_RESPONSES)
    for router in (
        health.router, metrics.router, webhooks.router, hooks.router, slack_install.router
    ):  # fmt: skip
        root.include_router(router)
    for module in (
        agents, artifacts, terminal, broadcasts, notifications, channels, conversations, events, people, prompt,
        markdown, mcp, memory, messages, models, schedules, skills, uploads, suggestions, sessions, tokens, usage,
        guardrails, model_details, tools, audit, configuration, logs, overview, deliveries, takeovers,
    ):  # fmt: skip
        root.include_router(module.router, prefix="/api")
    described, also = LANGGRAPH_PREFIXES
    for router in langgraph_routers():
        root.include_router(router, prefix=described, responses=error_responses(400, 404, 409))
        root.include_router(router, prefix=also, include_in_schema=False)
    root.include_router(api_description.router)
    root.include_router(api_description.langgraph_hints())
    return root.routes


def build_app(services: Services) -> Application:
    """Return the application for requests inside the process, without access control.

    Args:
        services: The services; the composition root may replace `app.state.services` later.
    """
    app = Application(
        services,
        title="Parley",
        version=get_version(),
        docs_url=None,
        redoc_url=None,
        openapi_url="/api/openapi.json",
        routes=included_routes(),
        responses=COMMON_RESPONSES,
    )
    install_openapi(app)
    mount_documentation(app)
    mount_console(app)
    return app


def _open_metrics_path(config: GatewayConfig) -> frozenset[str]:
    return frozenset({"/metrics"}) if config.metrics == "open" else frozenset()


def network_app(
    app: FastAPI, config: GatewayConfig, *, token: str | None, open_paths: Iterable[str] = ()
) -> ASGIApp:
    """Return the application for the network: with access control, request statistics and audit log.

    `open_paths` are additional paths that need no token.
    """
    services: Services = app.state.services
    open_paths = [
        *open_paths,
        *map(webhook_path, services.webhooks),
        *(path for name in services.installations for path in slack_install.paths(name)),
    ]
    tokens = ApiTokenLookup(services.tokens)
    lookup = SessionLookup(services.sessions, tokens=tokens, admin_digest=token_digest(token or ""))
    network = with_access_control(
        app,
        config,
        token=token,
        tokens=tokens,
        sessions=lookup,
        open_paths=open_paths,
    )
    counted = RequestMiddleware(network, stats=services.stats, audit=services.audit)
    traced = services.telemetry.trace_network(counted)
    if not (config.trusted_proxies or config.root_path):
        return traced
    return ProxyMiddleware(traced, trusted=config.trusted_proxies, root_path=config.root_path)


def with_access_control(
    app: ASGIApp,
    config: GatewayConfig,
    *,
    token: str | None,
    tokens: ApiTokenLookup | None = None,
    sessions: SessionLookup | None = None,
    open_paths: Iterable[str] = (),
) -> ASGIApp:
    """Wrap an application in access control, with CORS if origins are configured.

    `tokens` finds named tokens, and `sessions` finds the sessions of browsers. `open_paths` are additional paths that
    need no token.
    """
    inner: ASGIApp = AccessMiddleware(
        app,
        token=token,
        tokens=tokens,
        sessions=sessions,
        hosts=(config.host, *config.allowed_hosts),
        origins=config.cors_origins,
        open_paths=OPEN_PATHS | _open_metrics_path(config) | {*open_paths},
        rates=config.rate_limit,
        body_timeout_s=config.connections.request_timeout_s,
    )
    if not config.cors_origins:
        return inner
    return CORSMiddleware(
        inner,
        allow_origins=config.cors_origins,
        allow_methods=["*"],
        allow_headers=["*"],
        expose_headers=EXPOSED_HEADERS,
        # Public pages, such as LangGraph Studio, need this to reach private addresses.
        allow_private_network=True,
        max_age=600,
    )
