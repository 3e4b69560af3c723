"""Assistants: one for every graph, always there, one for every custom agent, and those that are made here."""

from collections.abc import Mapping
from functools import partial
from typing import Any
from uuid import uuid4

import anyio.to_thread
from fastapi import APIRouter
from langchain_core.runnables import RunnableConfig
from starlette.requests import Request
from starlette.responses import Response

from gateway.langgraph import graph_schemas
from gateway.langgraph.assistant_lookup import find_graph_assistant, get_assistant, list_assistants
from gateway.langgraph.custom_agents import find_agent_assistant
from gateway.langgraph.request_models import (
    AssistantCreate,
    AssistantPatch,
    AssistantSearch,
    AssistantVersion,
    AssistantVersions,
)
from gateway.langgraph.route import (
    ApiError,
    WireRoute,
    json_response,
    parse_id,
    read_body,
    select_fields,
)
from gateway.langgraph.services import LangGraphServices, services_of
from gateway.langgraph.views import View, assistant_view, version_view
from gateway.runtime.request import merge_options
from gateway.runtime.worker import Graph
from store.assistants import Assistant, AssistantUpdate, missing_assistant
from store.errors import RowConflict
from store.threads import ThreadQuery

router = APIRouter(tags=["assistants"], route_class=WireRoute)

UNTITLED = "Untitled"
"""The name of an assistant that was given none."""


@router.post("/assistants", response_model=None)
async def create(request: Request) -> Response:
    """Make an assistant: a graph with settings of its own."""
    body = await read_body(request, AssistantCreate)
    services = services_of(request)
    _validate(services, body)
    given = body.assistant_id
    assistant_id = parse_id(given, "assistant") if given else str(uuid4())
    now = services.runs.now()
    made = Assistant(
        assistant_id=assistant_id,
        graph_id=body.graph_id,
        name=body.name or UNTITLED,
        description=body.description,
        config=body.config or {},
        context=body.context or {},
        metadata=body.metadata or {},
        created_at=now,
        updated_at=now,
        version_created_at=now,
    )
    same = [one for one in await list_assistants(services) if one.assistant_id == assistant_id]
    if same and body.if_exists == "do_nothing":
        return json_response(assistant_view(same[0]))
    if same:
        raise RowConflict(f"Assistant with ID {assistant_id} already exists")
    return json_response(assistant_view(await services.runs.assistants.create(made)))


@router.patch("/assistants/{assistant_id}", response_model=None)
async def update(request: Request, assistant_id: str) -> Response:
    """Make the next version of an assistant; metadata is merged, the rest replaced."""
    body = await read_body(request, AssistantPatch)
    services = services_of(request)
    before = await _get_editable(services, assistant_id)
    change = AssistantUpdate(**body.model_dump())
    _validate(services, change.apply(before))
    made = await services.runs.assistants.update(
        before.assistant_id,
        change,
        base=find_graph_assistant(services, before.assistant_id),
        now=services.runs.now(),
    )
    return json_response(assistant_view(made))


@router.delete("/assistants/{assistant_id}", response_model=None)
async def delete(request: Request, assistant_id: str) -> Response:
    """Delete an assistant; with `delete_threads`, its threads as well. Those of graphs stay."""
    services = services_of(request)
    wanted = (await _get_editable(services, assistant_id)).assistant_id
    if find_graph_assistant(services, wanted) is not None:
        raise ApiError(409, "This assistant is a graph of this server: it cannot be deleted.")
    if not await services.runs.assistants.delete(wanted):
        raise missing_assistant(wanted)
    if request.query_params.get("delete_threads", "").lower() in {"1", "true"}:
        await _delete_threads(services, wanted)
    return Response(status_code=204)


@router.post("/assistants/search", response_model=None)
async def search(request: Request) -> Response:
    """List assistants, those of the graphs first unless told otherwise."""
    query = await read_body(request, AssistantSearch)
    found = await _find_matching(services_of(request), query)
    if query.sort_by is not None:
        key = query.sort_by
        found.sort(key=lambda view: str(view[key]), reverse=query.sort_order != "asc")
    page = found[query.offset : query.offset + query.limit]
    headers = {"X-Pagination-Total": str(len(found))}
    if query.offset + len(page) < len(found):
        headers["X-Pagination-Next"] = str(query.offset + len(page))
    return json_response([select_fields(view, query.select) for view in page], headers=headers)


@router.post("/assistants/count", response_model=None)
async def count(request: Request) -> Response:
    """Count assistants."""
    query = await read_body(request, AssistantSearch)
    return json_response(len(await _find_matching(services_of(request), query)))


@router.get("/assistants/{assistant_id}", response_model=None)
async def get(request: Request, assistant_id: str) -> Response:
    """Return one assistant, by its id or by its name."""
    return json_response(assistant_view(await get_assistant(services_of(request), assistant_id)))


@router.get("/assistants/{assistant_id}/graph", response_model=None)
async def draw(request: Request, assistant_id: str) -> Response:
    """Return the nodes and edges of an assistant's graph; `xray` opens subgraphs, to a depth or wholly."""
    xray = _xray(request.query_params.get("xray", "false"))
    graph = await _load_graph(request, await get_assistant(services_of(request), assistant_id))
    drawn = await anyio.to_thread.run_sync(partial(graph_schemas.draw_graph, graph, xray=xray))
    return json_response(drawn)


@router.get("/assistants/{assistant_id}/schemas", response_model=None)
async def get_schemas(request: Request, assistant_id: str) -> Response:
    """Return the JSON schemas of an assistant's input, output, state and context."""
    one = await get_assistant(services_of(request), assistant_id)
    graph = await _load_graph(request, one)
    return json_response(
        await anyio.to_thread.run_sync(graph_schemas.graph_schemas, graph, one.graph_id)
    )


@router.get("/assistants/{assistant_id}/subgraphs", response_model=None)
async def get_subgraphs(request: Request, assistant_id: str) -> Response:
    """Return the schemas of the graphs inside an assistant's graph."""
    return await _subgraphs(request, assistant_id, None)


@router.get("/assistants/{assistant_id}/subgraphs/{namespace}", response_model=None)
async def get_subgraph(request: Request, assistant_id: str, namespace: str) -> Response:
    """Return the schemas of one graph inside an assistant's graph."""
    return await _subgraphs(request, assistant_id, namespace)


@router.post("/assistants/{assistant_id}/versions", response_model=None)
async def list_versions(request: Request, assistant_id: str) -> Response:
    """List an assistant's versions, the newest first."""
    query = await read_body(request, AssistantVersions)
    services = services_of(request)
    one = await get_assistant(services, assistant_id)
    made = await services.runs.assistants.list_versions(one.assistant_id) or [one]
    found = [each for each in made if _has_metadata(each, query.metadata)]
    return json_response(list(map(version_view, found[query.offset : query.offset + query.limit])))


@router.post("/assistants/{assistant_id}/latest", response_model=None)
async def set_latest(request: Request, assistant_id: str) -> Response:
    """Choose the version that is in force."""
    wanted = await read_body(request, AssistantVersion)
    services = services_of(request)
    one = await get_assistant(services, assistant_id)
    if wanted.version == one.version:
        return json_response(assistant_view(one))
    chosen = await services.runs.assistants.set_version(
        one.assistant_id, wanted.version, now=services.runs.now()
    )
    return json_response(assistant_view(chosen))


async def _get_editable(services: LangGraphServices, given: str) -> Assistant:
    found = await get_assistant(services, given)
    if found.context.get("agent_name") == found.name and await find_agent_assistant(
        services, found.name
    ):
        raise ApiError(
            409, f"This assistant is a custom agent: PUT or DELETE /api/agents/{found.name}."
        )
    return found


def _validate(services: LangGraphServices, made: AssistantCreate | Assistant) -> None:
    """Refuse what no run could be started with. Raises Refused, InvalidRequest."""
    if made.graph_id not in services.graphs:
        there_are = ", ".join(services.graphs)
        raise ApiError(
            404, f"graph_id: there is no graph {made.graph_id!r}; there are {there_are}."
        )
    merge_options(made.config or {}, made.context or {})


async def _delete_threads(services: LangGraphServices, assistant_id: str) -> None:
    query = ThreadQuery(metadata={"assistant_id": assistant_id}, limit=100)
    while found := await services.threads.search(query):
        for thread in found:
            await services.delete_thread(thread.thread_id)


async def _load_graph(request: Request, one: Assistant) -> Graph:
    options = merge_options(one.config, one.context)
    return await services_of(request).runs.graph(one.graph_id, RunnableConfig(configurable=options))


async def _subgraphs(request: Request, assistant_id: str, namespace: str | None) -> Response:
    graph = await _load_graph(request, await get_assistant(services_of(request), assistant_id))
    recurse = request.query_params.get("recurse", "").lower() in {"1", "true"}
    found = partial(graph_schemas.subgraph_schemas, graph, namespace, recurse=recurse)
    return json_response(await anyio.to_thread.run_sync(found))


def _xray(text: str) -> int | bool:
    """Return how far subgraphs are opened. Raises Refused (422)."""
    if text.lower() in {"true", "false"}:
        return text.lower() == "true"
    if text.isascii() and text.isdigit() and int(text[:4]) > 0:
        return int(text[:4])
    raise ApiError(422, "xray must be true, false or a depth of at least 1.")


async def _find_matching(services: LangGraphServices, query: AssistantSearch) -> list[View]:
    return [
        assistant_view(one)
        for one in await list_assistants(services)
        if query.graph_id in {None, one.graph_id}
        and (query.name or "").lower() in one.name.lower()
        and _has_metadata(one, query.metadata)
    ]


def _has_metadata(one: Assistant, metadata: Mapping[str, Any] | None) -> bool:
    return all(one.metadata.get(key) == value for key, value in (metadata or {}).items())
