"""Threads: create, search, update and delete; their state and its history."""

import logging
from collections.abc import Mapping
from typing import Annotated, Any
from uuid import uuid4

from fastapi import APIRouter, Header, HTTPException, Query
from starlette.responses import Response

from gateway.dependencies import ServicesDep
from gateway.langgraph.request_models import (
    MAX_TTL_MINUTES,
    HistoryRequest,
    StateAt,
    StateUpdate,
    Superstep,
    ThreadCreate,
    ThreadPatch,
    ThreadPrune,
    ThreadSearch,
    ThreadTtl,
)
from gateway.langgraph.response_models import PruneResponse, ThreadResponse, ThreadStateResponse
from gateway.langgraph.route import (
    PAGINATION_HEADERS,
    SelectDep,
    WireRoute,
    json_response,
    parse_id,
    parse_names,
    select_fields,
)
from gateway.langgraph.run_requests import check_checkpoint_id
from gateway.langgraph.thread_search import (
    extract_path,
    parse_path,
    search_by_values,
    thread_values,
)
from gateway.langgraph.views import View, checkpoint_view, state_view, thread_view, ttl_view
from gateway.openapi import error_responses
from gateway.runtime.errors import InvalidRequest
from gateway.runtime.serialization import dumps
from gateway.runtime.thread_states import SuperstepUpdate, ThreadStateUpdate
from gateway.services import Services
from store.errors import RowConflict, RowNotFound
from store.runs import ThreadAtOtherNode
from store.threads import Thread, ThreadExpiry, ThreadQuery, TtlStrategy, missing_thread

log = logging.getLogger(__name__)

router = APIRouter(tags=["threads"], route_class=WireRoute)

MAX_HISTORY_BYTES = 16 * 1024 * 1024
"""Maximum total size of returned past states: each contains all earlier messages. Clients can page further back."""

Subgraphs = Annotated[bool, Query(description="Include the states of subgraphs")]


@router.post("/threads", response_model=ThreadResponse)
async def create_thread(body: ThreadCreate, services: ServicesDep) -> Response:
    """Create a thread, optionally with a state and a time to live."""
    runs = services.runs
    thread_id = parse_id(body.thread_id, "thread") if body.thread_id else str(uuid4())
    try:
        thread = await runs.threads.create(
            thread_id, body.metadata or {}, now=runs.now(), ttl=_parse_ttl(body.ttl)
        )
    except RowConflict:
        if body.if_exists != "do_nothing":
            raise
        return json_response(await _thread_with_values(services, await runs.threads.get(thread_id)))
    if not body.supersteps:
        return json_response(thread_view(thread, None))
    try:
        await services.states.create_from_supersteps(
            thread, [_build_superstep(step) for step in body.supersteps]
        )
    except InvalidRequest:
        await runs.threads.delete(thread_id)
        raise
    return json_response(await _thread_with_values(services, await runs.threads.get(thread_id)))


@router.post("/threads/search", response_model=list[ThreadResponse], responses=PAGINATION_HEADERS)
async def search_threads(body: ThreadSearch, services: ServicesDep) -> Response:
    """List threads, by default the most recently used first."""
    query = _build_query(body)
    if body.values:
        matching = await search_by_values(services, query, body.values)
        total, threads = len(matching), matching[body.offset : body.offset + body.limit]
    else:
        total = await services.runs.threads.count(query)
        threads = await services.runs.threads.search(query)
    found = [await _search_result(services, thread, body) for thread in threads]
    headers = {"X-Pagination-Total": str(total)}
    if body.offset + len(found) < total:
        headers["X-Pagination-Next"] = str(body.offset + len(found))
    return json_response(found, headers=headers)


@router.post("/threads/count", response_model=int)
async def count_threads(body: ThreadSearch, services: ServicesDep) -> Response:
    """Count threads."""
    query = _build_query(body)
    if body.values:
        return json_response(len(await search_by_values(services, query, body.values)))
    return json_response(await services.runs.threads.count(query))


@router.post("/threads/prune", response_model=PruneResponse)
async def prune_threads(body: ThreadPrune, services: ServicesDep) -> Response:
    """Delete threads, or all of their states except the newest. Skips unknown IDs."""
    ids = dict.fromkeys(parse_id(thread_id, "thread") for thread_id in body.thread_ids)
    pruned = [await _prune_thread(services, thread_id, body.strategy) for thread_id in ids]
    return json_response({"pruned_count": sum(pruned)})


@router.post("/threads/{thread_id}/copy", response_model=ThreadResponse)
async def copy_thread(thread_id: str, services: ServicesDep) -> Response:
    """Create a thread with the metadata and states of another thread, but without its files."""
    runs = services.runs
    thread = await _get_thread(services, thread_id)
    copy = await runs.threads.create(str(uuid4()), thread.metadata, now=runs.now())
    await runs.checkpointer.acopy_thread(thread.thread_id, copy.thread_id)
    return json_response(await _thread_with_values(services, copy))


@router.get("/threads/{thread_id}", response_model=ThreadResponse)
async def get_thread(
    thread_id: str,
    services: ServicesDep,
    include: Annotated[
        list[str], Query(default_factory=list, description="`ttl`: include the time to live")
    ],
) -> Response:
    """Return a thread with its latest values."""
    thread = await _get_thread(services, thread_id)
    view = await _thread_with_values(services, thread)
    if "ttl" in parse_names(include):
        view["ttl"] = ttl_view(thread.ttl)
    return json_response(view)


@router.patch(
    "/threads/{thread_id}",
    response_model=ThreadResponse,
    responses={204: {"description": "Updated; no body"}},
)
async def update_thread(
    thread_id: str,
    body: ThreadPatch,
    services: ServicesDep,
    prefer: Annotated[
        str, Header(description="`return=minimal`: respond with 204 and no body")
    ] = "",
) -> Response:
    """Merge metadata into the thread's metadata."""
    runs = services.runs
    thread_id = parse_id(thread_id, "thread")
    thread = await runs.threads.patch(thread_id, body.metadata or {}, now=runs.now())
    if (ttl := _parse_ttl(body.ttl)) is not None:
        thread = await runs.threads.set_ttl(thread_id, ttl, now=runs.now())
    if "return=minimal" in prefer:
        return Response(status_code=204)
    return json_response(await _thread_with_values(services, thread))


@router.delete("/threads/{thread_id}", status_code=204, responses=error_responses(500))
async def delete_thread(thread_id: str, services: ServicesDep) -> None:
    """Delete a thread with its runs, state and files. Runs on it are stopped first."""
    thread_id = parse_id(thread_id, "thread")
    try:
        existed = await services.delete_thread(thread_id)
    except OSError:
        log.exception("the files of thread %s could not be deleted", thread_id)
        raise HTTPException(500, "Failed to delete local thread data.") from None
    if not existed:
        raise missing_thread(thread_id)


@router.get("/threads/{thread_id}/state", response_model=ThreadStateResponse)
async def get_state(
    thread_id: str, services: ServicesDep, select: SelectDep, *, subgraphs: Subgraphs = False
) -> Response:
    """Return the latest state."""
    return await _get_state(
        services, thread_id, StateAt(checkpoint={}, subgraphs=subgraphs, select=select)
    )


@router.post("/threads/{thread_id}/state/checkpoint", response_model=ThreadStateResponse)
async def get_state_at(thread_id: str, body: StateAt, services: ServicesDep) -> Response:
    """Return the state at a checkpoint given in the body."""
    return await _get_state(services, thread_id, body)


@router.get("/threads/{thread_id}/state/{checkpoint_id}", response_model=ThreadStateResponse)
async def get_state_by_id(
    thread_id: str,
    checkpoint_id: str,
    services: ServicesDep,
    select: SelectDep,
    *,
    subgraphs: Subgraphs = False,
) -> Response:
    """Return the state at a checkpoint."""
    query = StateAt(checkpoint={"checkpoint_id": checkpoint_id}, subgraphs=subgraphs, select=select)
    return await _get_state(services, thread_id, query)


@router.post("/threads/{thread_id}/state", response_model=dict[str, Any])
async def update_state(thread_id: str, body: StateUpdate, services: ServicesDep) -> Response:
    """Write a new state from outside a run."""
    thread = await _get_thread(services, thread_id)
    checkpoint = body.checkpoint or {}
    if body.checkpoint_id:
        checkpoint = {**checkpoint, "checkpoint_id": body.checkpoint_id}
        check_checkpoint_id(body.checkpoint_id)
    written = await services.states.update(
        thread, ThreadStateUpdate(values=body.values, as_node=body.as_node, checkpoint=checkpoint)
    )
    view = checkpoint_view(written) or {}
    return json_response(
        {"checkpoint": view, "configurable": view, "checkpoint_id": view.get("checkpoint_id")}
    )


@router.post("/threads/{thread_id}/history", response_model=list[ThreadStateResponse])
async def post_history(thread_id: str, body: HistoryRequest, services: ServicesDep) -> Response:
    """Return past states, newest first."""
    return await _history(services, thread_id, body)


@router.get("/threads/{thread_id}/history", response_model=list[ThreadStateResponse])
async def get_history(
    thread_id: str,
    services: ServicesDep,
    limit: int = 10,
    before: Annotated[str | None, Query(description="Only states before this checkpoint")] = None,
) -> Response:
    """Return past states, newest first."""
    query = HistoryRequest(limit=max(1, min(limit, 1000)), before=before)
    return await _history(services, thread_id, query)


async def _get_thread(services: Services, thread_id: str) -> Thread:
    return await services.runs.threads.get(parse_id(thread_id, "thread"))


async def _thread_with_values(services: Services, thread: Thread) -> View:
    return thread_view(thread, await services.states.values(thread))


async def _search_result(services: Services, thread: Thread, body: ThreadSearch) -> View:
    """Return a thread in the form of a search result. Reads the state only if part of it is selected."""
    select = body.select
    paths = {alias: parse_path(path) for alias, path in (body.extract or {}).items()}
    values = None
    if paths:
        values = await thread_values(services, thread)
    elif not select or any(one.partition(".")[0] == "values" for one in select):
        values = await services.states.values(thread)
    view = thread_view(thread, values)
    shown = select_fields(view, select)
    if paths:
        shown["extracted"] = {alias: extract_path(view, steps) for alias, steps in paths.items()}
    return shown


async def _prune_thread(services: Services, thread_id: str, strategy: TtlStrategy) -> bool:
    if strategy == "delete":
        return await services.delete_thread(thread_id)
    try:
        await services.runs.threads.get(thread_id)
        await services.runs.check_thread(thread_id)
    except (RowNotFound, ThreadAtOtherNode):
        return False
    # An active run trims its own old checkpoints when it ends.
    if services.runs.active_on_thread(thread_id):
        return False
    await services.runs.checkpointer.trim_thread(thread_id, keep=1)
    return True


async def _get_state(services: Services, thread_id: str, query: StateAt) -> Response:
    thread = await _get_thread(services, thread_id)
    state = await services.states.snapshot(
        thread, query.checkpoint, subgraphs=bool(query.subgraphs)
    )
    return json_response(select_fields(state_view(state), query.select))


async def _history(services: Services, thread_id: str, query: HistoryRequest) -> Response:
    thread = await _get_thread(services, thread_id)
    states = services.states.history(
        thread,
        limit=query.limit,
        before=_parse_checkpoint(query.before),
        metadata=query.metadata,
        checkpoint=query.checkpoint or {},
    )
    encoded: list[bytes] = []
    size = 0
    async for state in states:
        encoded.append(dumps(select_fields(state_view(state), query.select)))
        size += len(encoded[-1])
        if size > MAX_HISTORY_BYTES:
            break
    return Response(b"[%b]" % b",".join(encoded), media_type="application/json")


def _parse_checkpoint(given: str | Mapping[str, Any] | None) -> Mapping[str, Any] | None:
    """Return a checkpoint that is given by its ID, directly, or inside a config."""
    if not given:
        return None
    if isinstance(given, str):
        return {"checkpoint_id": given}
    inner = given.get("configurable")
    return inner if isinstance(inner, Mapping) else given


def _build_query(body: ThreadSearch) -> ThreadQuery:
    return ThreadQuery(
        metadata=body.metadata or {},
        status=body.status,
        ids=tuple(body.ids or ()),
        sort_by=body.sort_by or "updated_at",
        descending=body.sort_order != "asc",
        limit=body.limit,
        offset=body.offset,
    )


def _parse_ttl(given: ThreadTtl | float | None) -> ThreadExpiry | None:
    if given is None:
        return None
    if isinstance(given, ThreadTtl):
        return ThreadExpiry(minutes=given.ttl, strategy=given.strategy)
    if not 0 < given <= MAX_TTL_MINUTES:
        raise HTTPException(422, "ttl must be a positive number of minutes.")
    return ThreadExpiry(minutes=given)


def _build_superstep(given: Superstep) -> list[SuperstepUpdate]:
    return [
        SuperstepUpdate(
            values=one.values,
            command=one.command.model_dump() if one.command else None,
            as_node=one.as_node,
        )
        for one in given.updates
    ]
