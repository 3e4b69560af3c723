"""Assistants: one for each graph, one for each custom agent, and those created over the API."""

from collections.abc import Mapping
from contextlib import AbstractAsyncContextManager
from functools import partial
from typing import Annotated, Any
from uuid import uuid4

import anyio.to_thread
from fastapi import APIRouter, HTTPException, Query
from langchain_core.runnables import RunnableConfig
from starlette.responses import Response

from gateway.dependencies import ServicesDep
from gateway.langgraph import graph_schemas
from gateway.langgraph.assistant_lookup import (
    find_graph_assistant,
    get_assistant,
    list_assistants,
)
from gateway.langgraph.custom_agents import find_agent_assistant
from gateway.langgraph.request_models import (
    AssistantCreate,
    AssistantPatch,
    AssistantSearch,
    AssistantVersion,
    AssistantVersions,
)
from gateway.langgraph.response_models import AssistantResponse
from gateway.langgraph.route import (
    PAGINATION_HEADERS,
    WireRoute,
    json_response,
    parse_id,
    select_fields,
)
from gateway.langgraph.thread_search import json_contains
from gateway.langgraph.views import View, assistant_view, version_view
from gateway.runtime.execution import Graph
from gateway.runtime.request import merge_options
from gateway.services import Services
from store.assistants import Assistant, AssistantUpdate, missing_assistant
from store.errors import RowConflict
from store.threads import ThreadQuery

router = APIRouter(tags=["assistants"], route_class=WireRoute)

UNTITLED = "Untitled"
"""The name of an assistant that was created without one."""

Recurse = Annotated[bool, Query(description="Include subgraphs of subgraphs")]


@router.post("/assistants", response_model=AssistantResponse)
async def create_assistant(body: AssistantCreate, services: ServicesDep) -> Response:
    """Create an assistant: a graph with its own settings."""
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


@router.patch("/assistants/{assistant_id}", response_model=AssistantResponse)
async def update_assistant(
    assistant_id: str, body: AssistantPatch, services: ServicesDep
) -> Response:
    """Create the next version of an assistant. Metadata is merged, and other fields are replaced."""
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


@router.delete("/assistants/{assistant_id}", status_code=204)
async def delete_assistant(
    assistant_id: str,
    services: ServicesDep,
    *,
    delete_threads: Annotated[
        bool, Query(description="Also delete its threads and their files")
    ] = False,
) -> None:
    """Delete an assistant. Built-in assistants of graphs cannot be deleted."""
    assistant_id = (await _get_editable(services, assistant_id)).assistant_id
    if find_graph_assistant(services, assistant_id) is not None:
        raise HTTPException(409, "This is the built-in assistant of a graph. It cannot be deleted.")
    if not await services.runs.assistants.delete(assistant_id):
        raise missing_assistant(assistant_id)
    if delete_threads:
        await _delete_threads(services, assistant_id)


@router.post(
    "/assistants/search", response_model=list[AssistantResponse], responses=PAGINATION_HEADERS
)
async def search_assistants(query: AssistantSearch, services: ServicesDep) -> Response:
    """List assistants. By default, the graphs' assistants come first."""
    found = await _find_matching(services, query)
    if query.sort_by is not None:
        key = query.sort_by
        found.sort(key=lambda view: str(view[key]), reverse=query.sort_order != "asc")
    page = found[query.offset : query.offset + query.limit]
    headers = {"X-Pagination-Total": str(len(found))}
    if query.offset + len(page) < len(found):
        headers["X-Pagination-Next"] = str(query.offset + len(page))
    return json_response([select_fields(view, query.select) for view in page], headers=headers)


@router.post("/assistants/count", response_model=int)
async def count_assistants(query: AssistantSearch, services: ServicesDep) -> Response:
    """Count assistants."""
    return json_response(len(await _find_matching(services, query)))


@router.get("/assistants/{assistant_id}", response_model=AssistantResponse)
async def read_assistant(assistant_id: str, services: ServicesDep) -> Response:
    """Return an assistant, by ID or by name."""
    return json_response(assistant_view(await get_assistant(services, assistant_id)))


@router.get("/assistants/{assistant_id}/graph", response_model=dict[str, Any])
async def get_graph(
    assistant_id: str,
    services: ServicesDep,
    xray: Annotated[
        str,
        Query(
            pattern=r"^(?i:true|false)$|^[1-9]\d{0,3}$",
            description="Expand subgraphs: true, or a maximum depth",
        ),
    ] = "false",
) -> Response:
    """Return the nodes and edges of an assistant's graph."""
    depth = int(xray) if xray.isdigit() else xray.lower() == "true"
    async with _open_graph(services, await get_assistant(services, assistant_id)) as graph:
        drawn = await anyio.to_thread.run_sync(partial(graph_schemas.draw_graph, graph, xray=depth))
    return json_response(drawn)


@router.get("/assistants/{assistant_id}/schemas", response_model=dict[str, Any])
async def get_schemas(assistant_id: str, services: ServicesDep) -> Response:
    """Return the JSON schemas of an assistant's input, output, state and context."""
    one = await get_assistant(services, assistant_id)
    async with _open_graph(services, one) as graph:
        schemas = await anyio.to_thread.run_sync(graph_schemas.graph_schemas, graph, one.graph_id)
    return json_response(schemas)


@router.get("/assistants/{assistant_id}/subgraphs", response_model=dict[str, Any])
async def get_subgraphs(
    assistant_id: str, services: ServicesDep, *, recurse: Recurse = False
) -> Response:
    """Return the schemas of the subgraphs of an assistant's graph."""
    return await _subgraphs(services, assistant_id, None, recurse=recurse)


@router.get("/assistants/{assistant_id}/subgraphs/{namespace}", response_model=dict[str, Any])
async def get_subgraph(
    assistant_id: str, namespace: str, services: ServicesDep, *, recurse: Recurse = False
) -> Response:
    """Return the schemas of one subgraph of an assistant's graph."""
    return await _subgraphs(services, assistant_id, namespace, recurse=recurse)


@router.post("/assistants/{assistant_id}/versions", response_model=list[AssistantResponse])
async def list_versions(
    assistant_id: str, query: AssistantVersions, services: ServicesDep
) -> Response:
    """List an assistant's versions, newest first."""
    one = await get_assistant(services, assistant_id)
    made = await services.runs.assistants.list_versions(one.assistant_id) or [one]
    found = [each for each in made if _has_metadata(each, query.metadata)]
    return json_response(list(map(version_view, found[query.offset : query.offset + query.limit])))


@router.post("/assistants/{assistant_id}/latest", response_model=AssistantResponse)
async def set_latest(assistant_id: str, body: AssistantVersion, services: ServicesDep) -> Response:
    """Select the active version."""
    one = await get_assistant(services, assistant_id)
    if body.version == one.version:
        return json_response(assistant_view(one))
    chosen = await services.runs.assistants.set_version(
        one.assistant_id, body.version, now=services.runs.now()
    )
    return json_response(assistant_view(chosen))


async def _get_editable(services: Services, given: str) -> Assistant:
    found = await get_assistant(services, given)
    if found.context.get("agent_name") == found.name and await find_agent_assistant(
        services, found.name
    ):
        raise HTTPException(
            409, f"This assistant is a custom agent: PUT or DELETE /api/agents/{found.name}."
        )
    return found


def _validate(services: Services, made: AssistantCreate | Assistant) -> None:
    """Raise HTTPException or InvalidRequest if runs could not start with these settings."""
    if made.graph_id not in services.runs.graphs:
        there_are = ", ".join(services.runs.graphs)
        raise HTTPException(
            404, f"graph_id: there is no graph {made.graph_id!r}; available: {there_are}."
        )
    merge_options(made.config or {}, made.context or {})


async def _delete_threads(services: Services, assistant_id: str) -> None:
    query = ThreadQuery(metadata={"assistant_id": assistant_id}, limit=100)
    while found := await services.runs.threads.search(query):
        for thread in found:
            await services.delete_thread(thread.thread_id)


def _open_graph(services: Services, one: Assistant) -> AbstractAsyncContextManager[Graph]:
    options = merge_options(one.config, one.context)
    config = RunnableConfig(configurable=options)
    return services.runs.open_graph(one.graph_id, config, "assistants.read")


async def _subgraphs(
    services: Services, assistant_id: str, namespace: str | None, *, recurse: bool
) -> Response:
    async with _open_graph(services, await get_assistant(services, assistant_id)) as graph:
        found = partial(graph_schemas.subgraph_schemas, graph, namespace, recurse=recurse)
        schemas = await anyio.to_thread.run_sync(found)
    return json_response(schemas)


async def _find_matching(services: Services, query: AssistantSearch) -> list[View]:
    return [
        assistant_view(one)
        for one in await list_assistants(services)
        if query.graph_id in {None, one.graph_id}
        and (query.name or "").lower() in one.name.lower()
        and _has_metadata(one, query.metadata)
    ]


def _has_metadata(one: Assistant, metadata: Mapping[str, Any] | None) -> bool:
    return json_contains(one.metadata, metadata or {})
