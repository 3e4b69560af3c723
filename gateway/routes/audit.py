"""GET /api/audit: who changed what, and when."""

import json
from dataclasses import asdict
from datetime import datetime, timedelta
from functools import partial
from typing import Annotated, Any, Literal

from anyio import to_thread
from fastapi import APIRouter, Query, Response
from pydantic import AfterValidator, BaseModel, Field

from gateway.audit import (
    MAX_READ_BYTES,
    AuditEntry,
    AuditFilter,
    read_entries,
    token_fingerprint,
)
from gateway.config import read_admin_token
from gateway.csv_text import csv_text
from gateway.dependencies import ServicesDep
from gateway.routes.views import since_time

router = APIRouter(prefix="/audit")

ADMIN_TOKEN = "admin token"  # noqa: S105 - a name


def _within_a_file(before: str) -> str:
    """Return a cursor whose offset can be in a file. Raises ValueError."""
    if int(before.partition(".")[2] or 0) > MAX_READ_BYTES:
        raise ValueError("it is not the `next` of another page")
    return before


class AuditQuery(BaseModel):
    """Which entries to return."""

    who: str = Field(default="", max_length=200, description="Text that the name contains")
    q: str = Field(default="", max_length=200, description="Text that the entry contains")
    outcome: Literal["", "done", "refused"] = Field(
        default="", description="done = a status below 400"
    )
    since: datetime | timedelta | None = Field(
        default=None, description="A time, or a duration before now: PT5M"
    )
    limit: int = Field(default=100, ge=1, le=1000)
    before: Annotated[str, AfterValidator(_within_a_file)] = Field(
        default="", pattern=r"^(\d{1,20}\.\d{1,12})?$", description="`next` of the last page"
    )
    format: Literal["json", "jsonl", "csv"] = Field(
        default="json", description="jsonl and csv = a file with all entries"
    )


class AuditEntryView(BaseModel):
    """One attempted change, as in `audit.log`; `who` names the admin token instead of its fingerprint."""

    time: str
    who: str
    address: str
    request_id: str
    action: str
    target: str
    status: int
    detail: str


class AuditList(BaseModel):
    """Entries, newest first; `next` is null on the last page."""

    rows: list[AuditEntryView]
    next: str | None


@router.get(
    "",
    response_model=AuditList,
    responses={200: {"content": {"text/csv": {}, "application/x-ndjson": {}}}},
)
async def list_audit(services: ServicesDep, query: Annotated[AuditQuery, Query()]) -> Any:  # noqa: ANN401 - or a file
    """Return the audit log of this process, newest first, with its rotated files."""
    rows, more = await to_thread.run_sync(partial(_read, services, query))
    if query.format == "json":
        return {"rows": rows, "next": more}
    name = f"parley-audit.{query.format}"
    return Response(
        csv_text(list(AuditEntryView.model_fields), rows)
        if query.format == "csv"
        else "".join(f"{json.dumps(row)}\n" for row in rows),
        media_type="text/csv" if query.format == "csv" else "application/x-ndjson",
        headers={"Content-Disposition": f'attachment; filename="{name}"'},
    )


def _read(services: ServicesDep, query: AuditQuery) -> tuple[list[dict[str, Any]], str | None]:
    token = read_admin_token(services.config)
    fingerprint = token_fingerprint(token.encode()) if token else ADMIN_TOKEN
    wanted = AuditFilter(
        who=query.who.replace(ADMIN_TOKEN, fingerprint),
        words=query.q,
        since=since_time(query.since).isoformat(timespec="milliseconds") if query.since else "",
        outcome=query.outcome,
    )
    limit = query.limit if query.format == "json" else None
    entries, more = read_entries(
        services.config.audit_file, wanted, before=query.before, limit=limit
    )
    return [_view(one, fingerprint) for one in entries], more


def _view(entry: AuditEntry, fingerprint: str) -> dict[str, Any]:
    return {**asdict(entry), "who": entry.who.replace(fingerprint, ADMIN_TOKEN)}
