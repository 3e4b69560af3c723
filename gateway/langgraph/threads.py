"""Threads: made, found, changed, deleted; their state and its history."""

from collections.abc import Mapping
from typing import Any
from uuid import uuid4

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import Response

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
from gateway.langgraph.responses import parse_names
from gateway.langgraph.route import (
    ApiError,
    WireRoute,
    json_response,
    parse_id,
    read_body,
    select_fields,
)
from gateway.langgraph.services import LangGraphServices, services_of
from gateway.langgraph.thread_search import (
    extract_path,
    parse_path,
    search_by_values,
    thread_values,
)
from gateway.langgraph.views import View, checkpoint_view, state_view, thread_view, ttl_view
from gateway.runtime.errors import InvalidRequest
from gateway.runtime.thread_states import SuperstepUpdate, ThreadStateUpdate
from store.errors import RowConflict, RowNotFound
from store.threads import Thread, ThreadExpiry, ThreadQuery, TtlStrategy, missing_thread

router = APIRouter(tags=["threads"], route_class=WireRoute)


@router.post("/threads", response_model=None)
async def create_thread(request: Request) -> Response:
    """Make a thread, with a first state and a time to live if that is asked for."""
    body = await read_body(request, ThreadCreate)
    services = services_of(request)
    thread_id = parse_id(body.thread_id, "thread") if body.thread_id else str(uuid4())
    try:
        thread = await services.threads.create(
            thread_id, body.metadata or {}, now=services.runs.now(), ttl=_parse_ttl(body.ttl)
        )
    except RowConflict:
        if body.if_exists != "do_nothing":
            raise
        return json_response(
            await _thread_with_values(services, await services.threads.get(thread_id))
        )
    if not body.supersteps:
        return json_response(thread_view(thread, None))
    try:
        await services.states.create_from_supersteps(
            thread, [_build_superstep(one) for one in body.supersteps]
        )
    except InvalidRequest:
        await services.threads.delete(thread_id)
        raise
    return json_response(await _thread_with_values(services, await services.threads.get(thread_id)))


@router.post("/threads/search", response_model=None)
async def search_threads(request: Request) -> Response:
    """List threads, most recently used first unless told otherwise."""
    body = await read_body(request, ThreadSearch)
    services = services_of(request)
    query = _build_query(body)
    if body.values:
        matching = await search_by_values(services, query, body.values)
        total, threads = len(matching), matching[body.offset : body.offset + body.limit]
    else:
        total = await services.threads.count(query)
        threads = await services.threads.search(query)
    found = [await _search_result(services, thread, body) for thread in threads]
    headers = {"X-Pagination-Total": str(total)}
    if body.offset + len(found) < total:
        headers["X-Pagination-Next"] = str(body.offset + len(found))
    return json_response(found, headers=headers)


@router.post("/threads/count", response_model=None)
async def count_threads(request: Request) -> Response:
    """Count threads."""
    body = await read_body(request, ThreadSearch)
    services = services_of(request)
    if body.values:
        return json_response(len(await search_by_values(services, _build_query(body), body.values)))
    return json_response(await services.threads.count(_build_query(body)))


@router.post("/threads/prune", response_model=None)
async def prune_threads(request: Request) -> Response:
    """Delete threads, or all of their state but the newest. Ids that are not known are passed over."""
    body = await read_body(request, ThreadPrune)
    services = services_of(request)
    wanted = dict.fromkeys(parse_id(one, "thread") for one in body.thread_ids)
    known = [
        thread_id for thread_id in wanted if await _prune_thread(services, thread_id, body.strategy)
    ]
    return json_response({"pruned_count": len(known)})


@router.post("/threads/{thread_id}/copy", response_model=None)
async def copy_thread(request: Request, thread_id: str) -> Response:
    """Make a thread with the metadata and the state, past states included, of another; not with its files."""
    services = services_of(request)
    thread = await _get_thread(services, thread_id)
    made = await services.threads.create(str(uuid4()), thread.metadata, now=services.runs.now())
    await services.checkpointer.acopy_thread(thread.thread_id, made.thread_id)
    return json_response(thread_view(made, await services.states.values(made.thread_id)))


@router.get("/threads/{thread_id}", response_model=None)
async def get_thread(request: Request, thread_id: str) -> Response:
    """Return a thread with its newest values."""
    services = services_of(request)
    thread = await _get_thread(services, thread_id)
    view = await _thread_with_values(services, thread)
    if "ttl" in parse_names(request.query_params.getlist("include")):
        view["ttl"] = ttl_view(thread.ttl)
    return json_response(view)


@router.patch("/threads/{thread_id}", response_model=None)
async def update_thread(request: Request, thread_id: str) -> Response:
    """Merge metadata into a thread's."""
    services = services_of(request)
    wanted = parse_id(thread_id, "thread")
    body = await read_body(request, ThreadPatch)
    now = services.runs.now()
    thread = await services.threads.patch(wanted, body.metadata or {}, now=now)
    if (ttl := _parse_ttl(body.ttl)) is not None:
        thread = await services.threads.set_ttl(wanted, ttl, now=now)
    if "return=minimal" in request.headers.get("prefer", ""):
        return Response(status_code=204)
    return json_response(await _thread_with_values(services, thread))


@router.delete("/threads/{thread_id}", response_model=None)
async def delete_thread(request: Request, thread_id: str) -> Response:
    """Delete a thread, its runs and its state; what runs on it is stopped first."""
    wanted = parse_id(thread_id, "thread")
    if not await services_of(request).delete_thread(wanted):
        raise missing_thread(wanted)
    return Response(status_code=204)


@router.get("/threads/{thread_id}/state", response_model=None)
async def get_state(request: Request, thread_id: str) -> Response:
    """Return the newest state."""
    return await _get_state(request, thread_id, _state_query(request, {}))


@router.post("/threads/{thread_id}/state/checkpoint", response_model=None)
async def get_state_at(request: Request, thread_id: str) -> Response:
    """Return the state at a checkpoint, given in the body."""
    body = await read_body(request, StateAt)
    return await _get_state(request, thread_id, body)


@router.get("/threads/{thread_id}/state/{checkpoint_id}", response_model=None)
async def get_state_by_id(request: Request, thread_id: str, checkpoint_id: str) -> Response:
    """Return the state at a checkpoint."""
    return await _get_state(
        request, thread_id, _state_query(request, {"checkpoint_id": checkpoint_id})
    )


@router.post("/threads/{thread_id}/state", response_model=None)
async def update_state(request: Request, thread_id: str) -> Response:
    """Write a new state from outside a run."""
    services = services_of(request)
    thread = await _get_thread(services, thread_id)
    body = await read_body(request, StateUpdate)
    checkpoint = body.checkpoint or {}
    if body.checkpoint_id:
        checkpoint = {**checkpoint, "checkpoint_id": body.checkpoint_id}
    written = await services.states.update(
        thread, ThreadStateUpdate(values=body.values, as_node=body.as_node, checkpoint=checkpoint)
    )
    where = checkpoint_view(written) or {}
    return json_response(
        {"checkpoint": where, "configurable": where, "checkpoint_id": where.get("checkpoint_id")}
    )


@router.post("/threads/{thread_id}/history", response_model=None)
async def post_history(request: Request, thread_id: str) -> Response:
    """Return past states, newest first."""
    return await _history(request, thread_id, await read_body(request, HistoryRequest))


@router.get("/threads/{thread_id}/history", response_model=None)
async def get_history(request: Request, thread_id: str, limit: int = 10) -> Response:
    """Return past states, newest first."""
    query = HistoryRequest(
        limit=max(1, min(limit, 1000)), before=request.query_params.get("before")
    )
    return await _history(request, thread_id, query)


async def _get_thread(services: LangGraphServices, thread_id: str) -> Thread:
    return await services.threads.get(parse_id(thread_id, "thread"))


async def _thread_with_values(services: LangGraphServices, thread: Thread) -> View:
    return thread_view(thread, await services.states.values(thread.thread_id))


async def _search_result(services: LangGraphServices, thread: Thread, body: ThreadSearch) -> View:
    """Return what a search shows of a thread; the state is read only where something of it is wanted."""
    select = body.select
    paths = {alias: parse_path(path) for alias, path in (body.extract or {}).items()}
    values = None
    if paths:
        values = await thread_values(services, thread)
    elif not select or any(one.partition(".")[0] == "values" for one in select):
        values = await services.states.values(thread.thread_id)
    view = thread_view(thread, values)
    shown = select_fields(view, select)
    if paths:
        shown["extracted"] = {alias: extract_path(view, steps) for alias, steps in paths.items()}
    return shown


async def _prune_thread(services: LangGraphServices, thread_id: str, strategy: TtlStrategy) -> bool:
    if strategy == "delete":
        return await services.delete_thread(thread_id)
    try:
        await services.threads.get(thread_id)
    except RowNotFound:
        return False
    # While a run goes on its older checkpoints are trimmed by itself, at its end.
    if services.runs.active_on_thread(thread_id):
        return False
    await services.checkpointer.trim_thread(thread_id, keep=1)
    return True


async def _get_state(request: Request, thread_id: str, asked: StateAt) -> Response:
    services = services_of(request)
    thread = await _get_thread(services, thread_id)
    state = await services.states.snapshot(
        thread, asked.checkpoint, subgraphs=bool(asked.subgraphs)
    )
    return json_response(select_fields(state_view(state), asked.select))


def _state_query(request: Request, checkpoint: Mapping[str, Any]) -> StateAt:
    query = request.query_params
    return StateAt(
        checkpoint=dict(checkpoint),
        subgraphs=query.get("subgraphs", "").lower() in {"1", "true"},
        select=parse_names(query.getlist("select")) or None,
    )


async def _history(request: Request, thread_id: str, query: HistoryRequest) -> Response:
    services = services_of(request)
    thread = await _get_thread(services, thread_id)
    states = await services.states.history(
        thread,
        limit=query.limit,
        before=_parse_checkpoint(query.before),
        metadata=query.metadata,
        checkpoint=query.checkpoint or {},
    )
    return json_response([select_fields(state_view(state), query.select) for state in states])


def _parse_checkpoint(given: str | Mapping[str, Any] | None) -> Mapping[str, Any] | None:
    """Return a checkpoint from its id, from itself, or from a config that holds it."""
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
        raise ApiError(422, "ttl must be a positive number of minutes.")
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
