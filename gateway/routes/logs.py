"""GET /api/logs: the last log lines of this process, to tail, filter and download."""

import json
import logging
from datetime import datetime, timedelta
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Query, Response
from pydantic import BaseModel, Field

from gateway.dependencies import ServicesDep
from gateway.recent_logs import LogFilter, LogLine, iso
from gateway.routes.views import since_time

router = APIRouter(prefix="/logs")


class LogQuery(BaseModel):
    """Which lines to return."""

    level: Literal["debug", "info", "warning", "error"] = Field(
        default="debug", description="The lowest level"
    )
    logger: str = Field(default="", max_length=200, description="The start of the logger's name")
    q: str = Field(default="", max_length=200, description="Text that the line contains")
    request_id: str = Field(default="", max_length=64)
    thread_id: str = Field(default="", max_length=64)
    since: datetime | timedelta | None = Field(
        default=None, description="A time, or a duration before now: PT5M"
    )
    limit: int = Field(default=100, ge=1, le=1000)
    before: int | None = Field(default=None, description="`next` of the last page")
    format: Literal["json", "jsonl"] = Field(
        default="json", description="jsonl = a file with all lines, oldest first"
    )


class LogLineView(BaseModel):
    """One line; `context` names its channel, conversation, thread, run and request."""

    id: int
    time: str
    level: str
    logger: str
    message: str
    error: str
    context: dict[str, str]


class LogLineList(BaseModel):
    """Lines, newest first; `next` is null on the last page."""

    rows: list[LogLineView]
    next: int | None


@router.get(
    "", response_model=LogLineList, responses={200: {"content": {"application/x-ndjson": {}}}}
)
async def list_logs(services: ServicesDep, query: Annotated[LogQuery, Query()]) -> Any:  # noqa: ANN401 - or a file
    """Return the last log lines of this process, newest first. Secrets are redacted. Memory keeps about 20,000."""
    wanted = LogFilter(
        level=logging.getLevelNamesMapping()[query.level.upper()],
        logger=query.logger,
        words=query.q,
        request=query.request_id,
        thread=query.thread_id,
        since=since_time(query.since).timestamp() if query.since else 0.0,
    )
    if query.format == "jsonl":
        lines = services.logs.list_recent(wanted)
        text = "".join(f"{json.dumps(_view(one), ensure_ascii=False)}\n" for one in lines[::-1])
        headers = {"Content-Disposition": 'attachment; filename="parley-log.jsonl"'}
        return Response(text, media_type="application/x-ndjson", headers=headers)
    lines = services.logs.list_recent(wanted, limit=query.limit, before=query.before)
    more = lines[-1].id if len(lines) == query.limit else None
    return {"rows": [_view(one) for one in lines], "next": more}


def _view(line: LogLine) -> dict[str, Any]:
    return {
        "id": line.id,
        "time": iso(line),
        "level": line.level,
        "logger": line.logger,
        "message": line.message,
        "error": line.error,
        "context": line.context,
    }
