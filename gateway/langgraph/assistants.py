"""Assistants: one for every graph, always there, and one for every custom agent."""

from functools import partial
from typing import Any

import anyio.to_thread
from fastapi import APIRouter
from langchain_core.runnables import RunnableConfig
from starlette.requests import Request
from starlette.responses import Response

from agent.runtime.worker import Graph
from gateway.langgraph import drawings
from gateway.langgraph.agents import agent_views
from gateway.langgraph.route import (
    Refused,
    WireRoute,
    answer,
    checked_id,
    problem,
    read_body,
    selected,
)
from gateway.langgraph.services import LangGraphServices, services_of
from gateway.langgraph.views import View, assistant_view
from gateway.langgraph.wire import AssistantSearch, AssistantVersion

router = APIRouter(tags=["assistants"], route_class=WireRoute)


FIXED = (
    "Assistants are not made or changed here: there is one for every graph, "
    "and one for every custom agent (POST, PUT and DELETE /api/agents)."
)


@router.post("/assistants", response_model=None)
async def create() -> Response:
    """Assistants are made elsewhere: 501."""
    return problem(501, FIXED)


@router.patch("/assistants/{assistant_id}", response_model=None)
async def update(assistant_id: str) -> Response:  # noqa: ARG001 - a part of the path
    """Assistants are changed elsewhere: 501."""
    return problem(501, FIXED)


@router.delete("/assistants/{assistant_id}", response_model=None)
async def delete(assistant_id: str) -> Response:  # noqa: ARG001 - a part of the path
    """Assistants are deleted elsewhere: 501."""
    return problem(501, FIXED)


@router.post("/assistants/search", response_model=None)
async def search(request: Request) -> Response:
    """List assistants, those of the graphs first unless told otherwise."""
    query = await read_body(request, AssistantSearch)
    found = await _matching(services_of(request), query)
    if query.sort_by is not None:
        key = query.sort_by
        found.sort(key=lambda view: str(view[key]), reverse=query.sort_order == "desc")
    page = found[query.offset : query.offset + query.limit]
    headers = {"X-Pagination-Total": str(len(found))}
    if query.offset + len(page) < len(found):
        headers["X-Pagination-Next"] = str(query.offset + len(page))
    return answer([selected(view, query.select) for view in page], headers=headers)


@router.post("/assistants/count", response_model=None)
async def count(request: Request) -> Response:
    """Count assistants."""
    query = await read_body(request, AssistantSearch)
    return answer(len(await _matching(services_of(request), query)))


@router.get("/assistants/{assistant_id}", response_model=None)
async def get(request: Request, assistant_id: str) -> Response:
    """Return one assistant, by its id or by its name."""
    return answer(await _named(request, assistant_id))


@router.get("/assistants/{assistant_id}/graph", response_model=None)
async def draw(request: Request, assistant_id: str) -> Response:
    """Return the nodes and edges of an assistant's graph; `xray` opens subgraphs, to a depth or wholly."""
    xray = _xray(request.query_params.get("xray", "false"))
    graph = await _graph(request, await _named(request, assistant_id))
    drawn = await anyio.to_thread.run_sync(partial(drawings.drawing, graph, xray=xray))
    return answer(drawn)


@router.get("/assistants/{assistant_id}/schemas", response_model=None)
async def get_schemas(request: Request, assistant_id: str) -> Response:
    """Return the JSON schemas of an assistant's input, output, state and context."""
    view = await _named(request, assistant_id)
    graph = await _graph(request, view)
    return answer(await anyio.to_thread.run_sync(drawings.schemas, graph, view["graph_id"]))


@router.get("/assistants/{assistant_id}/subgraphs", response_model=None)
async def get_subgraphs(request: Request, assistant_id: str) -> Response:
    """Return the schemas of the graphs inside an assistant's graph."""
    return await _subgraphs(request, assistant_id, None)


@router.get("/assistants/{assistant_id}/subgraphs/{namespace}", response_model=None)
async def get_subgraph(request: Request, assistant_id: str, namespace: str) -> Response:
    """Return the schemas of one graph inside an assistant's graph."""
    return await _subgraphs(request, assistant_id, namespace)


@router.post("/assistants/{assistant_id}/versions", response_model=None)
async def versions(request: Request, assistant_id: str) -> Response:
    """List an assistant's versions: the one there is."""
    query = await read_body(request, AssistantSearch)
    return answer([await _named(request, assistant_id)][query.offset : query.offset + query.limit])


@router.post("/assistants/{assistant_id}/latest", response_model=None)
async def set_latest(request: Request, assistant_id: str) -> Response:
    """Choose a version: there is only the first."""
    wanted = await read_body(request, AssistantVersion)
    view = await _named(request, assistant_id)
    if wanted.version != view["version"]:
        raise Refused(404, f"Assistant {assistant_id} has no version {wanted.version}.")
    return answer(view)


async def _named(request: Request, assistant_id: str) -> View:
    views = await _views(services_of(request))
    for view in views:
        if view["name"] == assistant_id:
            return view
    wanted = checked_id(assistant_id, "assistant")
    for view in views:
        if view["assistant_id"] == wanted:
            return view
    raise Refused(404, f"Assistant with ID {assistant_id} not found")


async def _graph(request: Request, view: View) -> Graph:
    options: dict[str, Any] = dict(view["context"])
    return await services_of(request).runs.graph(
        view["graph_id"], RunnableConfig(configurable=options)
    )


async def _subgraphs(request: Request, assistant_id: str, namespace: str | None) -> Response:
    graph = await _graph(request, await _named(request, assistant_id))
    recurse = request.query_params.get("recurse", "").lower() in {"1", "true"}
    found = partial(drawings.subgraphs, graph, namespace, recurse=recurse)
    return answer(await anyio.to_thread.run_sync(found))


def _xray(text: str) -> int | bool:
    """Return how far subgraphs are opened. Raises Refused (422)."""
    if text.lower() in {"true", "false"}:
        return text.lower() == "true"
    if text.isascii() and text.isdigit() and int(text[:4]) > 0:
        return int(text[:4])
    raise Refused(422, "xray must be true, false or a depth of at least 1.")


async def _views(services: LangGraphServices) -> list[View]:
    views = [assistant_view(graph_id) for graph_id in services.graphs]
    return [*views, *await agent_views(services)]


async def _matching(services: LangGraphServices, query: AssistantSearch) -> list[View]:
    views = await _views(services)
    metadata = query.metadata or {}
    return [
        view
        for view in views
        if query.graph_id in {None, view["graph_id"]}
        and (query.name or "").lower() in view["name"].lower()
        and all(view["metadata"].get(key) == value for key, value in metadata.items())
    ]
