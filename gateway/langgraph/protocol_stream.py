"""LangChain's newer streaming protocol over HTTP: commands, and the event stream of a thread."""

from collections.abc import AsyncGenerator, Awaitable, Callable
from typing import Any

import anyio
import orjson
from fastapi import APIRouter, HTTPException
from pydantic import BaseModel
from starlette.requests import Request
from starlette.responses import Response

from gateway.dependencies import ServicesDep
from gateway.langgraph.event_filters import EventFilter, parse_event_filter, parse_since
from gateway.langgraph.protocol_commands import execute_command
from gateway.langgraph.request_models import ProtocolCommand, ProtocolEvents
from gateway.langgraph.response_models import ProtocolReply
from gateway.langgraph.route import WireRoute, json_response, parse_id, parse_json
from gateway.runtime.event_log import COALESCE_S
from gateway.runtime.protocol import RESUME_GAP, ProtocolEvent
from gateway.runtime.runs import RunManager
from gateway.services import Services
from gateway.sse import EventStreamResponse, escape_line_separators

router = APIRouter(tags=["streaming"], route_class=WireRoute)

Json = dict[str, Any]


def _described(model: type[BaseModel]) -> dict[str, Any]:
    """Return the OpenAPI description of a body that the handler itself parses: the protocol has its own errors."""
    content = {"application/json": {"schema": model.model_json_schema()}}
    return {"requestBody": {"required": True, "content": content}}


@router.post(
    "/threads/{thread_id}/commands",
    response_model=ProtocolReply,
    openapi_extra=_described(ProtocolCommand),
)
async def send_command(request: Request, thread_id: str, services: ServicesDep) -> Response:
    """Execute a command of the newer streaming protocol."""
    body = await _read_json(request)
    return json_response(await execute_command(services, parse_id(thread_id, "thread"), body, {}))


@router.post(
    "/threads/{thread_id}/stream/events",
    status_code=200,
    response_class=EventStreamResponse,
    openapi_extra=_described(ProtocolEvents),
)
async def stream_thread_events(request: Request, thread_id: str, services: ServicesDep) -> Response:
    """Stream the subscribed events of a thread until the client disconnects."""
    thread_id = parse_id(thread_id, "thread")
    body = await _read_json(request)
    frames = _event_frames(services, thread_id, parse_event_filter(body), parse_since(body))
    # Subscribe first: the stream must contain every run that starts after the client receives the response headers.
    await anext(frames)
    return EventStreamResponse(frames, headers={}, heartbeat_s=services.heartbeat_s)


async def _event_frames(
    services: Services, thread_id: str, wanted: EventFilter, since: int
) -> AsyncGenerator[bytes]:
    runs = services.runs
    sequence = services.event_logs.for_thread(thread_id)
    async with runs.watchers.subscribe(thread_id) as following:
        yield b""  # From here on, the stream includes every new run.
        while True:
            sequence.advance(runs.watchers.runs(thread_id))
            if sequence.has_gap_after(since):
                yield b"event: error\ndata: %b\n\n" % RESUME_GAP
            found = sequence.read(since)
            if found:
                since = found[-1].seq
                frames = [_encode_frame(event) for event in found if wanted.matches(event)]
                yield escape_line_separators(b"".join(frames))
            elif not await wait_for_events(runs, thread_id, following.receive):
                return


async def wait_for_events(
    runs: RunManager, thread_id: str, begins: Callable[[], Awaitable[Any]]
) -> bool:
    """Wait for new events of a thread. False = the service is stopping."""
    speaking = next((live for live in runs.watchers.runs(thread_id) if not live.is_finished), None)
    if speaking is None:
        return await begins() is not None
    if not speaking.log.closed:
        await speaking.log.wait_for_change()
    await anyio.sleep(COALESCE_S)
    return True


def _encode_frame(event: ProtocolEvent) -> bytes:
    return b"event: %b\ndata: %b\nid: %d\n\n" % (event.method.encode(), event.data, event.seq)


async def _read_json(request: Request) -> Json:
    try:
        body = parse_json(await request.body())
    except orjson.JSONDecodeError:
        raise HTTPException(400, "Invalid JSON in request body") from None
    if not isinstance(body, dict):
        raise HTTPException(400, "The request body must be an object")
    return body
