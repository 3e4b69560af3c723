"""LangChain's newer streaming protocol over one WebSocket: commands in, answers and events out.

A client that does not read is waited for: nothing is kept for it but its place in the thread's events.
"""

from collections.abc import Awaitable, Callable, Mapping
from uuid import uuid4

import anyio
import orjson
from anyio.lowlevel import checkpoint
from fastapi import APIRouter
from starlette.websockets import WebSocket, WebSocketDisconnect

from gateway.langgraph.channels import Json, Wanted, since_of, wanted_of
from gateway.langgraph.commands import Handler, carried_out, failed
from gateway.langgraph.protocol import GAP, more
from gateway.langgraph.route import Refused, checked_id, parsed
from gateway.langgraph.services import LangGraphServices
from gateway.langgraph.stating import CommandFailed
from gateway.limits import Buckets
from gateway.runtime.protocol import ProtocolEvent
from gateway.runtime.serialization import dumps
from store.errors import StoreError

router = APIRouter()

PROTOCOL = "parley"
"""What is chosen among the protocols that a page offers, beside the one that holds its token."""

MOST_SUBSCRIPTIONS = 64
"""Of one connection."""

COMMANDS_PER_S = 50.0
COMMANDS_AT_ONCE = 200
"""How fast commands are read; the port's guard counts a connection but once."""

AT_A_TIME = 32
"""Events that are sent before others get their turn: a socket that takes everything never waits by itself."""

GOING_AWAY = 1001
REFUSED = 4000
"""Close codes are 4000 and the HTTP status that a request would have been answered with."""

Send = Callable[[bytes], Awaitable[None]]


@router.websocket("/threads/{thread_id}/stream/events")
async def connect(socket: WebSocket, thread_id: str) -> None:
    """Carry out commands and send the events of a thread's subscriptions, until either side goes."""
    offered = socket.scope.get("subprotocols", ())
    await socket.accept(PROTOCOL if PROTOCOL in offered else None)
    try:
        wanted = checked_id(thread_id, "thread")
    except Refused as error:
        await socket.close(REFUSED + error.status, error.detail)
        return
    session = Session(socket.app.state.langgraph, wanted, _sender(socket))
    try:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(_pump, session, socket, tasks.cancel_scope)
            await _read(session, socket)
            tasks.cancel_scope.cancel()
    except* WebSocketDisconnect:
        pass  # gone while it was written to


async def _read(session: "Session", socket: WebSocket) -> None:
    """Take commands one after the other until the client goes."""
    pace = Buckets(per_s=COMMANDS_PER_S, burst=COMMANDS_AT_ONCE)
    while True:
        message = await socket.receive()
        if message["type"] == "websocket.disconnect":
            return
        await anyio.sleep(pace.wait_s(""))
        await session.take(message.get("text") or message.get("bytes") or b"")


async def _pump(session: "Session", socket: WebSocket, scope: anyio.CancelScope) -> None:
    await session.send_events()
    await socket.close(GOING_AWAY)
    scope.cancel()


def _sender(socket: WebSocket) -> Send:
    async def send(frame: bytes) -> None:
        await socket.send_text(frame.decode())

    return send


class Session:
    """One connection: its subscriptions, and up to where in the thread's events they are."""

    def __init__(self, services: LangGraphServices, thread_id: str, send: Send) -> None:
        self._services = services
        self._thread_id = thread_id
        self._send = send
        self._sequence = services.sequences.for_thread(thread_id)
        self._wanted: dict[str, Wanted] = {}
        self._after = 0
        self._subscribed = anyio.Event()
        self._writing = anyio.Lock()
        self._replay: list[ProtocolEvent] = []
        self._further: Mapping[str, Handler] = {
            "subscription.subscribe": self._subscribe,
            "subscription.unsubscribe": self._unsubscribe,
            "subscription.reconnect": self._reconnect,
        }

    async def take(self, frame: str | bytes) -> None:
        """Carry out the command in a frame and answer it; what it lets be sent again follows."""
        async with self._writing:
            await self._send(dumps(await self._answered(frame)))
            replay, self._replay = self._replay, []
            await self._send_all(replay)

    async def send_events(self) -> None:
        """Send the events that are subscribed to, until there will be no more."""
        runs, thread_id = self._services.runs, self._thread_id
        with runs.subscribers.subscribe(thread_id) as following:
            await self._subscribed.wait()
            while True:
                async with self._writing:
                    is_new = await self._send_new()
                if not is_new and not await more(runs, thread_id, following.receive):
                    return

    async def _send_new(self) -> bool:
        self._advance()
        if self._sequence.has_gap_after(self._after):
            await self._send(GAP)
        found = self._sequence.read(self._after)
        if not found:
            return False
        self._after = found[-1].seq
        wanted = list(self._wanted.values())
        await self._send_all([event for event in found if any(one.takes(event) for one in wanted)])
        return True

    async def _send_all(self, events: list[ProtocolEvent]) -> None:
        for number, event in enumerate(events):
            if number % AT_A_TIME == 0:
                # Others get their turn, and that the client is gone is noticed.
                await checkpoint()
            await self._send(event.data)

    async def _answered(self, frame: str | bytes) -> Json:
        try:
            body = parsed(frame)
            return await carried_out(self._services, self._thread_id, body, self._further)
        except orjson.JSONDecodeError:
            return failed(None, "invalid_argument", "A frame is one command, as JSON.")
        except Refused as error:
            return failed(None, "invalid_argument", error.detail)
        except StoreError:
            return failed(None, "unknown_error", "The store cannot be used at the moment.")

    def _advance(self) -> None:
        self._sequence.advance(self._services.runs.started_runs(self._thread_id))

    async def _subscribe(self, _services: LangGraphServices, _thread: str, params: Json) -> Json:
        """Send events from now on, after those that were before."""
        wanted, since = wanted_of(params), since_of(params)
        if len(self._wanted) >= MOST_SUBSCRIPTIONS:
            raise CommandFailed(
                "invalid_argument", f"A connection has {MOST_SUBSCRIPTIONS} subscriptions at most."
            )
        self._advance()
        if not self._wanted:
            self._after = self._sequence.last_seq
        self._replay = self._before(since, [wanted])
        name = uuid4().hex
        self._wanted[name] = wanted
        self._subscribed.set()
        return {"subscription_id": name, "replayed_events": len(self._replay)}

    async def _unsubscribe(self, _services: LangGraphServices, _thread: str, params: Json) -> Json:
        del self._wanted[self._known(params.get("subscription_id"))]
        return {}

    async def _reconnect(self, services: LangGraphServices, thread: str, params: Json) -> Json:
        """Send again what came after an event, for subscriptions that this connection has."""
        run_id = checked_id(str(params.get("run_id")), "run")
        await services.runs.get(thread, run_id)
        names = params.get("subscriptions") or list(self._wanted)
        if not isinstance(names, list):
            raise CommandFailed("invalid_argument", "subscriptions must be a list of their ids.")
        chosen = [self._wanted[self._known(name)] for name in names]
        self._advance()
        tree = self._sequence.tree(run_id)
        namespaces = [] if tree is None else tree.statuses()
        place = self._sequence.find_seq(str(params.get("last_event_id")))
        if place is None:
            return {"restored": False, "current_namespaces": namespaces}
        self._replay = self._before(place, chosen)
        return {
            "restored": True,
            "missed_events": len(self._replay),
            "current_namespaces": namespaces,
        }

    def _known(self, name: object) -> str:
        if not isinstance(name, str) or name not in self._wanted:
            raise CommandFailed("no_such_subscription", "There is no such subscription.")
        return name

    def _before(self, since: int, wanted: list[Wanted]) -> list[ProtocolEvent]:
        """Return the events after a number, up to those that are sent anyhow."""
        return [
            event
            for event in self._sequence.read(since)
            if event.seq <= self._after and any(one.takes(event) for one in wanted)
        ]
