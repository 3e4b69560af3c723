"""Threads: made, found, changed, deleted; their state and its history."""

from collections.abc import Mapping
from typing import Any
from uuid import uuid4

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import Response

from agent.runtime.states import Update
from gateway.langgraph.route import WireRoute, answer, checked_id, read_body
from gateway.langgraph.services import LangGraphServices, services_of
from gateway.langgraph.views import View, checkpoint_view, state_view, thread_view
from gateway.langgraph.wire import (
    HistoryRequest,
    StateAt,
    StateUpdate,
    ThreadCreate,
    ThreadPatch,
    ThreadSearch,
)
from store.errors import Conflict
from store.threads import Thread, ThreadQuery, missing_thread

router = APIRouter(tags=["threads"], route_class=WireRoute)


@router.post("/threads", response_model=None)
async def create(request: Request) -> Response:
    """Make a thread."""
    body = await read_body(request, ThreadCreate)
    services = services_of(request)
    thread_id = checked_id(body.thread_id, "thread") if body.thread_id else str(uuid4())
    try:
        thread = await services.threads.create(
            thread_id, body.metadata or {}, now=services.runs.now()
        )
    except Conflict:
        if body.if_exists != "do_nothing":
            raise
        return answer(await _view(services, await services.threads.get(thread_id)))
    return answer(thread_view(thread, None))


@router.post("/threads/search", response_model=None)
async def search(request: Request) -> Response:
    """List threads, most recently used first unless told otherwise."""
    body = await read_body(request, ThreadSearch)
    services = services_of(request)
    query = _query(body)
    total = await services.threads.count(query)
    found = [
        await _selected(services, thread, body.select)
        for thread in await services.threads.search(query)
    ]
    headers = {"X-Pagination-Total": str(total)}
    if body.offset + len(found) < total:
        headers["X-Pagination-Next"] = str(body.offset + len(found))
    return answer(found, headers=headers)


@router.post("/threads/count", response_model=None)
async def count(request: Request) -> Response:
    """Count threads."""
    query = _query(await read_body(request, ThreadSearch))
    return answer(await services_of(request).threads.count(query))


@router.get("/threads/{thread_id}", response_model=None)
async def get(request: Request, thread_id: str) -> Response:
    """Return a thread with its newest values."""
    services = services_of(request)
    return answer(await _view(services, await _thread(services, thread_id)))


@router.patch("/threads/{thread_id}", response_model=None)
async def patch(request: Request, thread_id: str) -> Response:
    """Merge metadata into a thread's."""
    services = services_of(request)
    wanted = checked_id(thread_id, "thread")
    body = await read_body(request, ThreadPatch)
    thread = await services.threads.patch(wanted, body.metadata or {}, now=services.runs.now())
    if "return=minimal" in request.headers.get("prefer", ""):
        return Response(status_code=204)
    return answer(await _view(services, thread))


@router.delete("/threads/{thread_id}", response_model=None)
async def delete(request: Request, thread_id: str) -> Response:
    """Delete a thread, its runs and its state; what runs on it is stopped first."""
    wanted = checked_id(thread_id, "thread")
    if not await services_of(request).runs.forget(wanted):
        raise missing_thread(wanted)
    return Response(status_code=204)


@router.get("/threads/{thread_id}/state", response_model=None)
async def get_state(request: Request, thread_id: str) -> Response:
    """Return the newest state."""
    return await _state(request, thread_id, {})


@router.post("/threads/{thread_id}/state/checkpoint", response_model=None)
async def get_state_at(request: Request, thread_id: str) -> Response:
    """Return the state at a checkpoint, given in the body."""
    body = await read_body(request, StateAt)
    return await _state(request, thread_id, body.checkpoint, subgraphs=bool(body.subgraphs))


@router.get("/threads/{thread_id}/state/{checkpoint_id}", response_model=None)
async def get_state_by_id(request: Request, thread_id: str, checkpoint_id: str) -> Response:
    """Return the state at a checkpoint."""
    return await _state(request, thread_id, {"checkpoint_id": checkpoint_id})


@router.post("/threads/{thread_id}/state", response_model=None)
async def update_state(request: Request, thread_id: str) -> Response:
    """Write a new state from outside a run."""
    services = services_of(request)
    thread = await _thread(services, thread_id)
    body = await read_body(request, StateUpdate)
    checkpoint = body.checkpoint or {}
    if body.checkpoint_id:
        checkpoint = {**checkpoint, "checkpoint_id": body.checkpoint_id}
    written = await services.states.update(
        thread, Update(values=body.values, as_node=body.as_node, checkpoint=checkpoint)
    )
    where = checkpoint_view(written) or {}
    return answer(
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


async def _thread(services: LangGraphServices, thread_id: str) -> Thread:
    return await services.threads.get(checked_id(thread_id, "thread"))


async def _view(services: LangGraphServices, thread: Thread) -> View:
    return thread_view(thread, await services.states.values(thread.thread_id))


async def _selected(services: LangGraphServices, thread: Thread, select: list[str] | None) -> View:
    if not select:
        return await _view(services, thread)
    view = thread_view(thread, None)
    if "values" in select:
        view = await _view(services, thread)
    return {key: view[key] for key in select if key in view}


async def _state(
    request: Request, thread_id: str, checkpoint: Mapping[str, Any], *, subgraphs: bool = False
) -> Response:
    services = services_of(request)
    thread = await _thread(services, thread_id)
    subgraphs = subgraphs or request.query_params.get("subgraphs", "").lower() == "true"
    return answer(
        state_view(await services.states.snapshot(thread, checkpoint, subgraphs=subgraphs))
    )


async def _history(request: Request, thread_id: str, query: HistoryRequest) -> Response:
    services = services_of(request)
    thread = await _thread(services, thread_id)
    states = await services.states.history(
        thread,
        limit=query.limit,
        before=_place(query.before),
        metadata=query.metadata,
        checkpoint=query.checkpoint or {},
    )
    return answer([state_view(state) for state in states])


def _place(given: str | Mapping[str, Any] | None) -> Mapping[str, Any] | None:
    """Return a checkpoint from its id, from itself, or from a config that holds it."""
    if not given:
        return None
    if isinstance(given, str):
        return {"checkpoint_id": given}
    inner = given.get("configurable")
    return inner if isinstance(inner, Mapping) else given


def _query(body: ThreadSearch) -> ThreadQuery:
    return ThreadQuery(
        metadata=body.metadata or {},
        status=body.status,
        ids=tuple(body.ids or ()),
        sort_by=body.sort_by or "updated_at",
        descending=body.sort_order != "asc",
        limit=body.limit,
        offset=body.offset,
    )
