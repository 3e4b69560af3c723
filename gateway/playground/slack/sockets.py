"""The fake's Socket Mode: connections, envelopes, acknowledgements, redelivery."""

import itertools
import json
import secrets
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any
from weakref import WeakKeyDictionary

import anyio
from aiohttp import WSMsgType, web

_RETRIED = frozenset({"events_api"})


@dataclass(slots=True, kw_only=True)
class SlackEnvelope:
    """An envelope for the app, and the state of its delivery.

    Attributes:
        attempts: Number of attempts to send it, including those without a connection.
        acked: Whether the app acknowledged it.
        dropped: Whether Slack gave up.
    """

    kind: str
    payload: dict[str, Any]
    attempts: int = 0
    acked: bool = False
    dropped: bool = False
    answer: Any = None


class SlackSockets:
    """All Socket Mode connections of the app.

    Args:
        ack_window_s: How long an acknowledgement may take (Slack: 3 s).
        retries_s: The pauses before an event is sent again (Slack: at once, 1 min, 5 min).
        violation: Receives a violation.
        changed: Called after every change.

    Attributes:
        refuse: Whether connections are refused (503).
        mute: Whether to send neither the hello nor events.
        greets: Whether a connection begins with a hello.
        deaf: Whether pings go unanswered on new connections.
        gaps: How often the last connection ended.
    """

    def __init__(
        self,
        *,
        ack_window_s: float,
        retries_s: Sequence[float],
        violation: Callable[[str], None],
        changed: Callable[[], None],
    ) -> None:
        self.ack_window_s = ack_window_s
        self.retries_s = tuple(retries_s)
        self.tickets: set[str] = set()
        self.open: list[web.WebSocketResponse] = []
        self.envelopes: list[SlackEnvelope] = []
        self._requests = WeakKeyDictionary[web.WebSocketResponse, web.Request]()
        self.connects = 0
        self.gaps = 0
        self.grace_s = 1.0
        self.refuse = False
        self.mute = False
        self.greets = True
        self.deaf = False
        self.disabled = False
        self._violation = violation
        self._changed = changed
        self._left = anyio.Event()
        self._waiting: dict[str, tuple[SlackEnvelope, anyio.Event]] = {}
        self._turn = itertools.count()

    def ticket(self) -> str:
        """Return a new ticket, which opens one connection."""
        ticket = secrets.token_hex(8)
        self.tickets.add(ticket)
        return ticket

    async def serve(self, request: web.Request) -> web.StreamResponse:
        """Serve one connection of the app."""
        ticket = request.query.get("ticket", "")
        if self.refuse:
            return web.Response(status=503)
        if ticket not in self.tickets:
            self._violation("socket: a ticket was used twice or made up")
            return web.Response(status=401)
        self.tickets.discard(ticket)
        ws = web.WebSocketResponse(autoping=not self.deaf, max_msg_size=1_000_000)
        await ws.prepare(request)
        self._requests[ws] = request
        if self.disabled:
            await ws.send_json({"type": "disconnect", "reason": "link_disabled", "debug_info": {}})
            await ws.close()
            return ws
        await self._greet(ws)
        try:
            async for message in ws:
                if message.type is WSMsgType.TEXT:
                    self._acknowledged(message.data)
        finally:
            if ws in self.open:
                self.open.remove(ws)
                self.gaps += not self.open
                left, self._left = self._left, anyio.Event()
                left.set()
            self._changed()
        return ws

    async def _greet(self, ws: web.WebSocketResponse) -> None:
        if self.mute:
            return
        self.open.append(ws)
        self.connects += 1
        self._changed()
        if self.greets:
            await ws.send_json({
                "type": "hello",
                "num_connections": len(self.open),
                "debug_info": {"approximate_connection_time": 18060},
                "connection_info": {"app_id": "A1APP"},
            })  # fmt: skip

    async def deliver(self, envelope: SlackEnvelope) -> None:
        """Send until it is acknowledged or all retries are used up."""
        retries = self.retries_s if envelope.kind in _RETRIED else ()
        for attempt, pause_s in enumerate((0.0, *retries)):
            await anyio.sleep(pause_s)
            envelope.attempts += 1
            if await self._attempt(envelope, attempt):
                return
        envelope.dropped = True
        self._changed()

    async def disconnect_all(self, reason: str) -> None:
        """Ask the app to disconnect. Close remaining connections after `grace_s`."""
        leaving = list(self.open)
        for ws in leaving:
            await _send(ws, {"type": "disconnect", "reason": reason, "debug_info": {}})
        with anyio.move_on_after(self.grace_s):
            while any(ws in self.open for ws in leaving):
                await self._left.wait()
        for ws in leaving:
            await ws.close()

    def cut_all(self) -> None:
        """Break every connection without an announcement."""
        for ws in list(self.open):
            transport = self._requests[ws].transport
            if transport is not None:
                transport.abort()

    async def _attempt(self, envelope: SlackEnvelope, attempt: int) -> bool:
        name, acked = secrets.token_hex(8), anyio.Event()
        self._waiting[name] = (envelope, acked)
        frame = {
            "envelope_id": name,
            "type": envelope.kind,
            "payload": envelope.payload,
            "accepts_response_payload": envelope.kind != "events_api",
        }
        if envelope.kind == "events_api":
            frame |= {"retry_attempt": attempt, "retry_reason": "timeout" if attempt else ""}
        if self.open:
            await _send(self.open[next(self._turn) % len(self.open)], frame)
        with anyio.move_on_after(self.ack_window_s):
            await acked.wait()
        return envelope.acked

    def _acknowledged(self, data: str) -> None:
        try:
            answer = json.loads(data)
            envelope, acked = self._waiting[answer["envelope_id"]]
        except (ValueError, KeyError, TypeError):
            self._violation(f"socket: not an acknowledgement: {data[:80]!r}")
            return
        if answer.get("payload") and envelope.kind == "events_api":
            self._violation("socket: an event takes no answer")
        envelope.acked, envelope.answer = True, answer.get("payload")
        acked.set()
        self._changed()


async def _send(ws: web.WebSocketResponse, frame: dict[str, Any]) -> None:
    try:
        await ws.send_str(json.dumps(frame))
    except ConnectionError:
        return
