"""DirectRoutes: calls simple endpoints of the LangGraph API without FastAPI's request processing.

The runs API must reach 1.3 times the runs a second of a bare server. A thread and its run take 5,900 function calls
this way and 7,300 through FastAPI, 0.99 and 1.18 times the bare server's CPU (docs/decisions/0038). So Parley calls
endpoints that need only path parameters, a JSON body and the services directly. FastAPI describes these endpoints in
the OpenAPI document. It also serves all other endpoints, and requests with a query.
"""

import inspect
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, get_type_hints

from fastapi import APIRouter
from fastapi.params import Query
from fastapi.routing import APIRoute
from pydantic import BaseModel
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.types import ASGIApp, Receive, Scope, Send

from gateway.dependencies import ServicesDep
from gateway.errors import STATUS_BY_ERROR, error_response
from gateway.langgraph.route import WireRequest, WireRoute, read_body

_TABLE_ERRORS = tuple(STATUS_BY_ERROR)


@dataclass(frozen=True, slots=True, kw_only=True)
class DirectEndpoint:
    """An endpoint, and the kind of each of its parameters.

    Attributes:
        route: FastAPI's route of the same endpoint.
        services: The parameter that takes the services.
        request: The parameter that takes the request; "" = none.
        body: The parameter that takes the body; "" = none.
        model: The model of the body.
        has_query: Whether it also takes a query, which has defaults.
    """

    route: APIRoute
    services: str
    request: str = ""
    body: str = ""
    model: type[BaseModel] = BaseModel
    has_query: bool = False

    async def serve(
        self, path_params: Mapping[str, str], scope: Scope, receive: Receive, send: Send
    ) -> None:
        """Answer a request."""
        scope["route"], scope["path_params"] = self.route, path_params
        response = await self.respond(WireRequest(scope, receive), path_params)
        await response(scope, receive, send)

    async def respond(self, request: Request, path_params: Mapping[str, str]) -> Response:
        """Return the response. An error with a status also becomes a response."""
        arguments: dict[str, Any] = {**path_params, self.services: request.app.state.services}
        if self.request:
            arguments[self.request] = request
        endpoint: Callable[..., Awaitable[Response]] = self.route.endpoint
        try:
            if self.body:
                arguments[self.body] = await read_body(request, self.model)
            return await endpoint(**arguments)
        except HTTPException as error:
            return JSONResponse(
                {"detail": error.detail}, status_code=error.status_code, headers=error.headers
            )
        except _TABLE_ERRORS as error:
            return error_response(error)


_Segments = tuple[str, ...]


class DirectRoutes:
    """Finds the endpoint of a request, in the order in which FastAPI looks for it.

    Args:
        routers: The routers of the API, in the order in which the application includes them.
        prefixes: The prefixes under which it includes them.
    """

    def __init__(self, routers: Iterable[APIRouter], prefixes: Iterable[str]) -> None:
        self._routes: dict[tuple[str, int], list[tuple[_Segments, DirectEndpoint | None]]] = {}
        routes = [route for router in routers for route in router.routes]
        for prefix in prefixes:
            for route in routes:
                if isinstance(route, WireRoute):
                    self._add(prefix, route)

    def find(self, scope: Scope) -> ASGIApp | None:
        """Return the application that answers a request; None = it is not for a direct endpoint."""
        if scope["type"] != "http" or scope.get("root_path"):
            return None
        asked: list[str] = scope["path"].split("/")
        for segments, endpoint in self._routes.get((scope["method"], len(asked)), ()):
            path_params = _match(segments, asked)
            if path_params is not None:
                if endpoint is None or (endpoint.has_query and scope["query_string"]):
                    return None
                return partial(endpoint.serve, path_params)
        return None

    def _add(self, prefix: str, route: WireRoute) -> None:
        segments = tuple((prefix + route.path).split("/"))
        for method in route.methods or ():
            known = self._routes.setdefault((method, len(segments)), [])
            known.append((segments, direct_endpoint(route)))


def direct_endpoint(route: APIRoute) -> DirectEndpoint | None:
    """Return a route's direct endpoint; None = it needs FastAPI for headers, a status or a required query."""
    hints = get_type_hints(route.endpoint, include_extras=True)
    if hints.pop("return", None) is not Response:
        return None
    path = {name[1:-1] for name in route.path.split("/") if name.startswith("{")}
    kinds: dict[str, str] = {}
    for name, parameter in inspect.signature(route.endpoint).parameters.items():
        kind = _kind(hints[name], is_path=name in path)
        if kind == "query" and parameter.default is parameter.empty:
            return None
        if kind is None or (kind not in {"path", "query"} and kind in kinds):
            return None
        kinds[kind] = name
    if "services" not in kinds:
        return None
    return DirectEndpoint(
        route=route,
        services=kinds["services"],
        request=kinds.get("request", ""),
        body=kinds.get("body", ""),
        model=hints[kinds["body"]] if "body" in kinds else BaseModel,
        has_query="query" in kinds,
    )


def _kind(hint: object, *, is_path: bool) -> str | None:
    if is_path:
        return "path" if hint is str else None
    if hint is Request:
        return "request"
    if hint == ServicesDep:
        return "services"
    if any(isinstance(one, Query) for one in getattr(hint, "__metadata__", ())):
        return "query"
    is_model = isinstance(hint, type) and issubclass(hint, BaseModel)
    return "body" if is_model else None


def _match(segments: _Segments, asked: list[str]) -> dict[str, str] | None:
    path_params: dict[str, str] = {}
    for segment, given in zip(segments, asked, strict=True):
        if segment.startswith("{"):
            if not given:
                return None
            path_params[segment[1:-1]] = given
        elif segment != given:
            return None
    return path_params
