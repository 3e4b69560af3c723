"""Crons: runs on a thread, or each on a new thread, at the times of a cron expression."""

import uuid
from dataclasses import replace
from functools import partial
from typing import Any

from anyio import to_thread
from fastapi import APIRouter, HTTPException
from pydantic import AwareDatetime
from starlette.responses import Response

from bus.recurrence import InvalidTimes
from bus.schedules.schedules import recurrence_of
from bus.service import SCHEDULES
from gateway.dependencies import ServicesDep
from gateway.langgraph.assistant_lookup import get_assistant
from gateway.langgraph.request_models import CronCreate, CronPatch, CronQuery, CronSearch
from gateway.langgraph.response_models import CronResponse
from gateway.langgraph.route import WireRoute, json_response, parse_id, select_fields
from gateway.langgraph.run_requests import build_run_request
from gateway.langgraph.thread_search import json_contains
from gateway.langgraph.views import cron_payload, cron_view
from gateway.runtime.serialization import dumps
from gateway.services import Services
from store.errors import RowNotFound
from store.schedules import PERSON, Schedule, ScheduleStore

router = APIRouter(tags=["crons"], route_class=WireRoute)

_COLUMNS = {
    "cron_id": "id",
    "next_run_date": "next_at",
    "end_time": "end_at",
}
"""Fields that have another name in the table, and that name."""

_OWN_FIELDS = frozenset({"enabled", "end_time", "metadata", "on_run_completed", "timezone"})
"""The cron's own fields. All other fields describe its runs."""


@router.post("/runs/crons", response_model=CronResponse)
async def create_cron(body: CronCreate, services: ServicesDep) -> Response:
    """Start a run on a new thread at each time of a cron expression."""
    return await _create(services, None, body)


@router.post("/threads/{thread_id}/runs/crons", response_model=CronResponse)
async def create_thread_cron(thread_id: str, body: CronCreate, services: ServicesDep) -> Response:
    """Start a run on a thread at each time of a cron expression."""
    thread_id = parse_id(thread_id, "thread")
    await services.runs.threads.get(thread_id)
    return await _create(services, thread_id, body)


@router.post("/runs/crons/search", response_model=list[CronResponse])
async def search_crons(query: CronSearch, services: ServicesDep) -> Response:
    """Search crons, newest first unless `sort_by` says otherwise."""
    found = await _find(services, query)
    page = found[query.offset : query.offset + query.limit]
    views = [select_fields(cron_view(one), query.select) for one in page]
    return json_response(views, headers={"X-Pagination-Total": str(len(found))})


@router.post("/runs/crons/count", response_model=int)
async def count_crons(query: CronQuery, services: ServicesDep) -> Response:
    """Count crons."""
    search = CronSearch(**query.model_dump())
    return json_response(len(await _find(services, search)))


@router.get("/runs/crons/{cron_id}", response_model=CronResponse)
async def get_cron(cron_id: str, services: ServicesDep) -> Response:
    """Return a cron."""
    return json_response(cron_view(await _get(services, cron_id)))


@router.patch("/runs/crons/{cron_id}", response_model=CronResponse)
async def update_cron(cron_id: str, body: CronPatch, services: ServicesDep) -> Response:
    """Change a cron. Fields that are left out keep their values; `end_time: null` removes the end."""
    before = await _get(services, cron_id)
    change = partial(_changed, body=body, now=services.runs.now())
    # Fail before the transaction, and read the zone's file in another thread.
    await _checked(change, before)
    changed = await ScheduleStore(services.database).change(before.id, change)
    services.database.signals.publish(SCHEDULES)
    return json_response(cron_view(changed))


@router.delete("/runs/crons/{cron_id}", status_code=204)
async def delete_cron(cron_id: str, services: ServicesDep) -> Response:
    """Delete a cron. Its runs continue."""
    cron = await _get(services, cron_id)
    await ScheduleStore(services.database).delete(cron.id)
    services.database.signals.publish(SCHEDULES)
    return Response(status_code=204)


async def _create(services: Services, thread_id: str | None, body: CronCreate) -> Response:
    now = services.runs.now()
    assistant = await get_assistant(services, body.assistant_id)
    given = body.model_dump(exclude_none=True, exclude={"thread_id", *_OWN_FIELDS})
    payload = {**given, "assistant_id": assistant.assistant_id}
    build_run_request(body, thread_id)  # Raises the errors that the run would raise.
    cron = Schedule(
        id=str(uuid.uuid4()),
        thread_id=thread_id,
        assistant_id=assistant.assistant_id,
        name=assistant.name,
        kind="cron",
        expression=body.schedule,
        timezone=body.timezone or "",
        since=now,
        end_at=_seconds(body.end_time),
        on_run_completed=None if thread_id else body.on_run_completed or "delete",
        body=dumps(payload).decode(),
        metadata=body.metadata or {},
        is_enabled=body.enabled is not False,
        paused_because=PERSON if body.enabled is False else "",
        next_at=None,
        created_at=now,
        updated_at=now,
    )
    cron = await _checked(partial(_with_next, now=now), cron)
    await ScheduleStore(services.database).create(cron)
    services.database.signals.publish(SCHEDULES)
    return json_response(cron_view(cron))


async def _checked(change: Any, cron: Schedule) -> Schedule:  # noqa: ANN401 - a function of a schedule
    try:
        changed: Schedule = await to_thread.run_sync(change, cron)
    except InvalidTimes as error:
        detail = f"Invalid cron schedule: {cron.expression!r}. Reason: {error}"
        raise HTTPException(422, detail) from None
    return changed


def _with_next(cron: Schedule, *, now: float) -> Schedule:
    """Return a cron with its next time, or with None if it has none. Raises InvalidTimes."""
    times = recurrence_of(cron)
    times.check()
    return replace(cron, next_at=times.next_after(now))


def _changed(before: Schedule, *, body: CronPatch, now: float) -> Schedule:
    """Return a cron with the given fields changed. Raises InvalidTimes."""
    given = body.model_dump(exclude_unset=True, exclude_none=True, exclude=set(_OWN_FIELDS))
    payload = cron_payload(before) | given
    enabled = before.is_enabled if body.enabled is None else body.enabled
    changed = replace(
        before,
        expression=body.schedule or before.expression,
        timezone=before.timezone if body.timezone is None else body.timezone,
        end_at=_seconds(body.end_time) if "end_time" in body.model_fields_set else before.end_at,
        on_run_completed=body.on_run_completed or before.on_run_completed,
        metadata=before.metadata if body.metadata is None else body.metadata,
        body=dumps(payload).decode(),
        is_enabled=enabled,
        paused_because="" if enabled else before.paused_because or PERSON,
        failures=0 if enabled and not before.is_enabled else before.failures,
        updated_at=now,
    )
    same_times = recurrence_of(changed) == recurrence_of(before)
    if same_times and before.is_enabled and enabled:
        return changed
    return _with_next(changed, now=now)


async def _get(services: Services, cron_id: str) -> Schedule:
    found = await ScheduleStore(services.database).find(parse_id(cron_id, "cron"))
    if found is None or found.key is not None:
        raise RowNotFound(f"Cron with ID {cron_id} not found")
    return found


async def _find(services: Services, query: CronSearch) -> list[Schedule]:
    assistant_id = None
    if query.assistant_id:
        assistant_id = (await get_assistant(services, query.assistant_id)).assistant_id
    found = await ScheduleStore(services.database).list_runs(
        assistant_id=assistant_id,
        thread_id=query.thread_id,
        is_enabled=query.enabled,
        sort_by=_COLUMNS.get(query.sort_by or "", query.sort_by or "created_at"),
        is_ascending=query.sort_order == "asc",
    )
    wanted = query.metadata or {}
    return [one for one in found if json_contains(one.metadata, wanted)] if wanted else found


def _seconds(moment: AwareDatetime | None) -> float | None:
    return None if moment is None else moment.timestamp()
