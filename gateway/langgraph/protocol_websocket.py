"""LangChain's newer streaming protocol over WebSockets: commands, replies and events on one connection.

If a client does not read, sending waits. Meanwhile, the service keeps only the client's position in the thread's
events.
"""

from collections.abc import Awaitable, Callable, Mapping
from uuid import uuid4

import anyio
import orjson
from anyio.lowlevel import checkpoint
from fastapi import APIRouter, HTTPException
from starlette.websockets import WebSocket, WebSocketDisconnect

from gateway.langgraph.event_filters import EventFilter, Json, parse_event_filter, parse_since
from gateway.langgraph.protocol_commands import (
    Handler,
    error_reply,
    execute_command,
)
from gateway.langgraph.protocol_state import ProtocolError
from gateway.langgraph.protocol_stream import wait_for_events
from gateway.langgraph.route import parse_id, parse_json
from gateway.rate_limits import ClientRateLimiter
from gateway.runtime.protocol import RESUME_GAP, ProtocolEvent
from gateway.runtime.serialization import dumps
from gateway.services import Services
from store.errors import StoreError

router = APIRouter()

SUBPROTOCOL = "parley"
"""The subprotocol to select. The other one that browsers offer contains the token."""

MAX_SUBSCRIPTIONS = 64
"""Subscriptions per connection."""

COMMANDS_PER_S = 50.0
COMMANDS_BURST = 200
"""Rate limit of commands, because access control counts each connection only once."""

EVENTS_PER_SLICE = 32
"""Number of events to process before other tasks get a turn, because sending to a fast client never waits."""

CLOSE_GOING_AWAY = 1001
CLOSE_CODE_BASE = 4000
"""Close codes are 4000 plus the HTTP status that a request would get."""

Send = Callable[[bytes], Awaitable[None]]


@router.websocket("/threads/{thread_id}/stream/events")
async def connect_websocket(socket: WebSocket, thread_id: str) -> None:
    """Execute commands and send subscribed events until either side disconnects."""
    offered = socket.scope.get("subprotocols", ())
    await socket.accept(SUBPROTOCOL if SUBPROTOCOL in offered else None)
    try:
        wanted = parse_id(thread_id, "thread")
    except HTTPException as error:
        await socket.close(CLOSE_CODE_BASE + error.status_code, error.detail)
        return
    session = ProtocolConnection(socket.app.state.services, wanted, _sender(socket))
    try:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(_send_events, session, socket, tasks.cancel_scope)
            await _read_commands(session, socket)
            tasks.cancel_scope.cancel()
    except* WebSocketDisconnect:
        pass  # The client disconnected during a write.


async def _read_commands(session: "ProtocolConnection", socket: WebSocket) -> None:
    """Read and execute commands until the client disconnects."""
    pace = ClientRateLimiter(per_s=COMMANDS_PER_S, burst=COMMANDS_BURST)
    while True:
        message = await socket.receive()
        if message["type"] == "websocket.disconnect":
            return
        await anyio.sleep(pace.acquire(""))
        await session.handle_frame(message.get("text") or message.get("bytes") or b"")


async def _send_events(
    session: "ProtocolConnection", socket: WebSocket, scope: anyio.CancelScope
) -> None:
    await session.send_events()
    await socket.close(CLOSE_GOING_AWAY)
    scope.cancel()


def _sender(socket: WebSocket) -> Send:
    async def send(frame: bytes) -> None:
        await socket.send_text(frame.decode())

    return send


class ProtocolConnection:
    """One connection, with its subscriptions and its position in the thread's events."""

    def __init__(self, services: Services, thread_id: str, send: Send) -> None:
        self._services = services
        self._thread_id = thread_id
        self._send = send
        self._sequence = services.event_logs.for_thread(thread_id)
        self._subscriptions: dict[str, EventFilter] = {}
        self._last_seq = 0
        self._follows = anyio.Event()
        self._subscribed = anyio.Event()
        self._write_lock = anyio.Lock()
        self._replay: list[ProtocolEvent] = []
        self._handlers: Mapping[str, Handler] = {
            "subscription.subscribe": self._subscribe,
            "subscription.unsubscribe": self._unsubscribe,
            "subscription.reconnect": self._reconnect,
        }

    async def handle_frame(self, frame: str | bytes) -> None:
        """Execute the command in a frame and send the reply, then the events that it replays."""
        async with self._write_lock:
            await self._send(dumps(await self._execute(frame)))
            replay, self._replay = self._replay, []
            await self._send_all(replay)

    async def send_events(self) -> None:
        """Send subscribed events until the service stops."""
        runs, thread_id = self._services.runs, self._thread_id
        async with runs.watchers.subscribe(thread_id) as following:
            self._follows.set()
            await self._subscribed.wait()
            while True:
                async with self._write_lock:
                    is_new = await self._send_new()
                if not is_new and not await wait_for_events(runs, thread_id, following.receive):
                    return

    async def _send_new(self) -> bool:
        self._advance()
        if self._sequence.has_gap_after(self._last_seq):
            await self._send(RESUME_GAP)
        found = self._sequence.read(self._last_seq)
        if not found:
            return False
        self._last_seq = found[-1].seq
        await self._send_all(found, list(self._subscriptions.values()))
        return True

    async def _send_all(
        self, events: list[ProtocolEvent], wanted: list[EventFilter] | None = None
    ) -> None:
        """Send events that pass one of the filters; None = all events."""
        for number, event in enumerate(events):
            if number % EVENTS_PER_SLICE == 0:
                # Give other tasks a turn, and notice a disconnected client.
                await checkpoint()
            if wanted is None or any(one.matches(event) for one in wanted):
                await self._send(event.data)

    async def _execute(self, frame: str | bytes) -> Json:
        try:
            body = parse_json(frame)
            return await execute_command(self._services, self._thread_id, body, self._handlers)
        except orjson.JSONDecodeError:
            return error_reply(None, "invalid_argument", "Each frame must be one command, as JSON.")
        except HTTPException as error:
            return error_reply(None, "invalid_argument", error.detail)
        except StoreError:
            return error_reply(None, "unknown_error", "The database is not available.")

    def _advance(self) -> None:
        self._sequence.advance(self._services.runs.watchers.runs(self._thread_id))

    async def _subscribe(self, _services: Services, _thread: str, params: Json) -> Json:
        """Subscribe to events. Earlier events are replayed first."""
        wanted, since = parse_event_filter(params), parse_since(params)
        if len(self._subscriptions) >= MAX_SUBSCRIPTIONS:
            raise ProtocolError(
                "invalid_argument",
                f"A connection can have up to {MAX_SUBSCRIPTIONS} subscriptions.",
            )
        await (
            self._follows.wait()
        )  # After the reply, the client gets the events of every new run, whichever node starts it.
        self._advance()
        if not self._subscriptions:
            self._last_seq = self._sequence.last_seq
        self._replay = self._replay_events(since, [wanted])
        name = uuid4().hex
        self._subscriptions[name] = wanted
        self._subscribed.set()
        return {"subscription_id": name, "replayed_events": len(self._replay)}

    async def _unsubscribe(self, _services: Services, _thread: str, params: Json) -> Json:
        del self._subscriptions[self._check_subscription(params.get("subscription_id"))]
        return {}

    async def _reconnect(self, services: Services, thread: str, params: Json) -> Json:
        """Replay the events after a given one, for subscriptions of this connection."""
        run_id = parse_id(str(params.get("run_id")), "run")
        await services.runs.get(thread, run_id)
        names = params.get("subscriptions") or list(self._subscriptions)
        if not isinstance(names, list):
            raise ProtocolError("invalid_argument", "subscriptions must be a list of their ids.")
        known = dict.fromkeys(map(self._check_subscription, names))
        chosen = [self._subscriptions[name] for name in known]
        self._advance()
        tree = self._sequence.tree(run_id)
        namespaces = [] if tree is None else tree.statuses()
        place = self._sequence.find_seq(str(params.get("last_event_id")))
        if place is None:
            return {"restored": False, "current_namespaces": namespaces}
        self._replay = self._replay_events(place, chosen)
        return {
            "restored": True,
            "missed_events": len(self._replay),
            "current_namespaces": namespaces,
        }

    def _check_subscription(self, name: object) -> str:
        if not isinstance(name, str) or name not in self._subscriptions:
            raise ProtocolError("no_such_subscription", "The subscription does not exist.")
        return name

    def _replay_events(self, since: int, wanted: list[EventFilter]) -> list[ProtocolEvent]:
        """Return the events after a number, up to the connection's position."""
        return [
            event
            for event in self._sequence.read(since)
            if event.seq <= self._last_seq and any(one.matches(event) for one in wanted)
        ]
