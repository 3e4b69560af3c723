"""GET /api/events: the service's change feed, as server-sent events."""

from typing import Annotated

from fastapi import APIRouter, Header
from starlette.responses import Response

from gateway.dependencies import ServicesDep
from gateway.sse import EventStreamResponse

router = APIRouter(prefix="/events")


@router.get("", responses={200: {"content": {"text/event-stream": {}}}})
async def stream_changes(
    services: ServicesDep, last_event_id: Annotated[str, Header()] = ""
) -> Response:
    """Stream `change` events with the topics that changed, at most two a second, and `reset` if some were missed.

    The topics are `messages`, `deliveries`, `access`, `channels`, `takeovers` and `people`. Send `Last-Event-ID` to
    resume.
    """
    return EventStreamResponse(
        services.changes.read(last_event_id), headers={}, heartbeat_s=services.heartbeat_s
    )
