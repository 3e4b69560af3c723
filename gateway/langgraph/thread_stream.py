"""Streams a thread: the events of all runs on it, one run after another, until the client disconnects.

An event ID consists of the run's ID and the event's number, so a client can resume on any connection.
"""

from collections.abc import AsyncGenerator
from dataclasses import dataclass
from typing import Annotated

from fastapi import APIRouter, Header, HTTPException, Query
from starlette.responses import Response

from gateway.dependencies import ServicesDep
from gateway.langgraph.route import WireRoute, parse_id, parse_names
from gateway.runtime.events import RunEvent
from gateway.runtime.local_run import EVENTS_PER_ATTEMPT, LocalRun
from gateway.runtime.runs import RunManager
from gateway.runtime.serialization import dumps
from gateway.sse import EventStreamResponse, escape_line_separators

router = APIRouter(tags=["threads"], route_class=WireRoute)

THREAD_STREAM_MODES = ("run_modes", "lifecycle", "state_update")
FROM_START = "-"
"""Value of Last-Event-ID that requests all events still kept."""


Modes = Annotated[list[str], Query(default_factory=list, description="What is streamed")]


@router.get("/threads/{thread_id}/stream", status_code=200, response_class=EventStreamResponse)
async def stream_thread(
    thread_id: str,
    services: ServicesDep,
    stream_mode: Modes,
    stream_modes: Annotated[list[str], Query(default_factory=list, include_in_schema=False)],
    last_event_id: Annotated[str, Header(description="Continue after this event")] = "",
) -> Response:
    """Stream the events of every run on a thread, from now on or after Last-Event-ID."""
    thread = await services.runs.threads.get(parse_id(thread_id, "thread"))
    # The SDK sends `stream_mode`; LangGraph Server reads `stream_modes`.
    modes = parse_names([*stream_mode, *stream_modes]) or ["run_modes"]
    if unknown := set(modes) - set(THREAD_STREAM_MODES):
        raise HTTPException(
            422,
            f"There is no stream mode {min(unknown)!r}; available: {', '.join(THREAD_STREAM_MODES)}.",
        )
    position = StreamPosition.parse(last_event_id)
    frames = _stream_frames(services.runs, thread.thread_id, position, whole="run_modes" in modes)
    await anext(
        frames
    )  # The stream must contain every run that starts after the client receives the response headers.
    return EventStreamResponse(frames, headers={}, heartbeat_s=services.heartbeat_s)


@dataclass(frozen=True, slots=True)
class StreamPosition:
    """A client's position in the events of a thread. An empty run ID means now."""

    run_id: str
    number: int = 0

    @classmethod
    def parse(cls, header: str) -> "StreamPosition":
        """Parse Last-Event-ID. Anything but one of Parley's IDs means all events.

        >>> StreamPosition.parse("abc:7"), StreamPosition.parse("0")
        (StreamPosition(run_id='abc', number=7), StreamPosition(run_id='-', number=0))
        """
        run_id, colon, number = header.strip().rpartition(":")
        if colon and number.isascii() and number.isdigit():
            return cls(run_id, int(number[:15]))
        return cls(FROM_START if header.strip() else "")


async def _stream_frames(
    runs: RunManager, thread_id: str, place: StreamPosition, *, whole: bool
) -> AsyncGenerator[bytes]:
    async with runs.watchers.subscribe(thread_id) as following:
        backlog = _backlog(await runs.watchers.runs_since(thread_id, place.run_id), place)
        seen = {live.attempt_id for live, _ in backlog}
        yield b""  # From here on, the stream includes every new run.
        for live, after in backlog:
            async for body in _run_frames(live, after, whole=whole):
                yield body
        last = backlog[-1][0] if backlog else None
        while (next_run := await following.receive()) is not None:
            if next_run.attempt_id not in seen:
                # After an interrupted attempt, a gap comes first.
                goes_on = last is not None and last.run_id == next_run.run_id
                after = last.log.last_id if last is not None and goes_on else 0
                async for body in _run_frames(next_run, after, whole=whole):
                    yield body
                last = next_run


def _backlog(begun: list[LocalRun], place: StreamPosition) -> list[tuple[LocalRun, int]]:
    """Return the runs that began earlier, each with the number of the event after which to continue."""
    if not place.run_id:
        return [(live, live.log.last_id) for live in begun if not live.is_finished]
    attempt = place.number // EVENTS_PER_ATTEMPT + 1
    index = next(
        (
            i
            for i, live in enumerate(begun)
            if live.run_id == place.run_id and live.attempt >= attempt
        ),
        None,
    )
    if index is None:
        return [(live, 0) for live in begun]
    return [(begun[index], place.number), *((live, 0) for live in begun[index + 1 :])]


async def _run_frames(live: LocalRun, after: int, *, whole: bool) -> AsyncGenerator[bytes]:
    reader = live.log.subscribe(after)
    while (events := await reader.receive()) is not None:
        frames = [
            _encode_frame(live, event)
            for event in events
            if whole or event.name in {"metadata", "end"}
        ]
        yield escape_line_separators(b"".join(frames))


def _encode_frame(live: LocalRun, event: RunEvent) -> bytes:
    name, data = event.name, event.data
    if name == "end":
        # A thread's stream does not end with a run. LangGraph's server marks the end of a run like this.
        name = "metadata"
        data = dumps({"status": "run_done", "run_id": live.run_id})
    return b"event: %b\ndata: %b\nid: %b:%d\n\n" % (
        name.encode(),
        data,
        live.run_id.encode(),
        event.id,
    )
