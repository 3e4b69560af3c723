"""A run's events as server-sent events, and answers that take long. Both notice when the client is gone."""

from collections.abc import AsyncGenerator, Callable, Iterable, Mapping
from contextlib import aclosing

import anyio
from starlette.responses import Response
from starlette.types import Receive, Scope, Send
from typing_extensions import override

from gateway.runtime.event_log import EventLogReader
from gateway.runtime.events import RunEvent

HEARTBEAT = b": heartbeat\n\n"

FAST_RESPONSE_S = 0.25
"""How long an answer that is not ready is waited for before it is streamed: most runs of this length are over,
and an answer in one piece costs half of one with keep-alives and a watch on the client."""

DisconnectHandler = Callable[[], None]
EventPredicate = Callable[[RunEvent], bool]


def encode_event(event: RunEvent) -> bytes:
    r"""Return one frame.

    >>> encode_event(RunEvent(3, "values", b"{}"))
    b'event: values\ndata: {}\nid: 3\n\n'
    """
    return b"event: %b\ndata: %b\nid: %d\n\n" % (event.name.encode(), event.data, event.id)


def encode_events(events: Iterable[RunEvent], wanted: EventPredicate) -> bytes:
    """Return the frames of those events that are wanted, for one write."""
    return b"".join([encode_event(event) for event in events if wanted(event)])


async def stream_events(
    subscription: EventLogReader, wanted: EventPredicate = lambda _event: True
) -> AsyncGenerator[bytes]:
    """Yield what one reader of a run is sent, until the run ends."""
    while (events := await subscription.receive()) is not None:
        yield encode_events(events, wanted)


def parse_last_event_id(header: str | None) -> int:
    """Return the number after which a client wants events; anything that is not one of ours means all.

    >>> parse_last_event_id("7"), parse_last_event_id("-1"), parse_last_event_id("1795192453503-0")
    (7, 0, 0)
    """
    try:
        return max(0, int(header or 0))
    except ValueError:
        return 0


class EventStreamResponse(Response):
    """A stream of events, until there are no more or the client goes.

    Args:
        body: Yields frames, several at a time or none; it is closed when the client goes.
        on_disconnect: Called when the client leaves before the end.
        heartbeat_s: Pace of the comments that keep proxies and clients patient, seconds.
    """

    media_type = "text/event-stream"

    def __init__(
        self,
        body: AsyncGenerator[bytes],
        *,
        headers: Mapping[str, str],
        heartbeat_s: float,
        on_disconnect: DisconnectHandler = lambda: None,
    ) -> None:
        super().__init__(
            headers={
                **headers,
                "Cache-Control": "no-store, no-transform",
                "X-Accel-Buffering": "no",
            }
        )
        del self.headers["content-length"]
        self._frames = body
        self._on_disconnect = on_disconnect
        self._heartbeat_s = heartbeat_s

    @override
    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await _send_start(self, send)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(_watch_disconnect, receive, self._on_disconnect, tasks.cancel_scope)
            tasks.start_soon(self._beat, send)
            async with aclosing(self._frames) as bodies:
                async for body in bodies:
                    if body:
                        await _send_chunk(send, body)
            tasks.cancel_scope.cancel()
        await _send_end(send)

    async def _beat(self, send: Send) -> None:
        """Show life at a steady pace: clients that saw one sign expect the next in time, tokens or not."""
        while True:
            await anyio.sleep(self._heartbeat_s)
            await _send_chunk(send, HEARTBEAT)


class DelayedJsonResponse(Response):
    """JSON that may take long. Blank lines, which JSON allows in front, show that somebody is still there.

    Args:
        ready: Set when the answer can be had.
        result: Returns the answer.
        on_disconnect: Called when the client leaves before the answer.
        heartbeat_s: Silence before a blank line, seconds.
    """

    media_type = "application/json"

    def __init__(
        self,
        ready: anyio.Event,
        result: Callable[[], bytes],
        *,
        headers: Mapping[str, str],
        heartbeat_s: float,
        on_disconnect: DisconnectHandler = lambda: None,
    ) -> None:
        super().__init__(headers=dict(headers))
        self._ready = ready
        self._result = result
        self._on_disconnect = on_disconnect
        self._heartbeat_s = heartbeat_s

    @override
    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        with anyio.move_on_after(min(FAST_RESPONSE_S, self._heartbeat_s)):
            await self._ready.wait()
        if self._ready.is_set():
            self.body = self._result()
            self.headers["content-length"] = str(len(self.body))
            await super().__call__(scope, receive, send)
            return
        del self.headers["content-length"]
        await _send_start(self, send)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(_watch_disconnect, receive, self._on_disconnect, tasks.cancel_scope)
            while not self._ready.is_set():
                with anyio.move_on_after(self._heartbeat_s) as silence:
                    await self._ready.wait()
                if silence.cancelled_caught:
                    await _send_chunk(send, b"\n")
            await _send_chunk(send, self._result())
            tasks.cancel_scope.cancel()
        await _send_end(send)


async def _watch_disconnect(
    receive: Receive, on_disconnect: DisconnectHandler, scope: anyio.CancelScope
) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
    on_disconnect()
    scope.cancel()


async def _send_start(response: Response, send: Send) -> None:
    await send(
        {
            "type": "http.response.start",
            "status": response.status_code,
            "headers": response.raw_headers,
        }
    )


async def _send_chunk(send: Send, body: bytes) -> None:
    await send({"type": "http.response.body", "body": body, "more_body": True})


async def _send_end(send: Send) -> None:
    await send({"type": "http.response.body", "body": b"", "more_body": False})
