"""The fake's long connections: addresses with one-time tickets, pushes until acknowledged, pings."""

import base64
import json
import random
from dataclasses import dataclass, field
from typing import Any

import anyio
from aiohttp import WSMsgType, web

from gateway.playground.feishu import wire
from gateway.playground.feishu.state import FeishuApiError, FeishuEvent, FeishuState
from gateway.playground.feishu.wire import WireFrame

MAX_CONNECTIONS = 50


@dataclass(eq=False)
class FeishuConnection:
    """One client's websocket. `close_code` is the client's close code (1006 = none)."""

    socket: web.WebSocketResponse
    request: web.Request
    service: int
    pings: int = 0
    pushes: int = 0
    close_code: int | None = None


@dataclass
class _PendingPush:
    frame: WireFrame
    answered: anyio.Event = field(default_factory=anyio.Event)
    code: int = 0
    answer: dict[str, Any] | None = None


class PushService:
    """Sends each event to a random connection, repeatedly until it is acknowledged with 200."""

    def __init__(
        self, state: FeishuState, *, app_id: str, app_secret: str, ack_s: float, redeliver_s: float
    ) -> None:
        self._state = state
        self._credentials = (app_id, app_secret)
        self._ack_s = ack_s
        self._redeliver_s = redeliver_s
        self.ping_s: float = 120
        self.endpoint_code = 0
        self.handshake: dict[str, str] | None = None
        self.connections: list[FeishuConnection] = []
        self.past: list[FeishuConnection] = []
        self._tickets: dict[str, int] = {}
        self._waiting: dict[str, _PendingPush] = {}

    async def endpoint(self, request: web.Request, body: dict[str, Any]) -> dict[str, Any]:
        """Return an address to connect to."""
        if set(body) != {"AppID", "AppSecret"}:
            self._state.violation(f"endpoint: {body}")
            raise FeishuApiError(1000040344, "no credential", status=200)
        if (body["AppID"], body["AppSecret"]) != self._credentials:
            raise FeishuApiError(10014, "app secret invalid", status=200)
        if self.endpoint_code:
            raise FeishuApiError(self.endpoint_code, "told to refuse", status=200)
        ticket, service = self._state.next_id("ticket-"), random.randint(1, 2**31 - 1)  # noqa: S311
        self._tickets[ticket] = service
        place = f"{'wss' if request.secure else 'ws'}://{request.host}/callback/ws"
        url = f"{place}?device_id=7&service_id={service}&ticket={ticket}"
        config = {
            "ReconnectCount": -1,
            "ReconnectInterval": 120,
            "ReconnectNonce": 30,
            "PingInterval": self.ping_s,
        }
        return {"data": {"URL": url, "ClientConfig": config}}

    async def connect(self, request: web.Request) -> web.StreamResponse:
        """Serve one websocket until it ends."""
        if self.handshake is not None:
            return web.Response(status=403, headers=self.handshake)
        service = self._tickets.pop(request.query.get("ticket", ""), None)
        if service is None or len(self.connections) >= MAX_CONNECTIONS:
            headers = {"handshake-status": "514", "handshake-autherrcode": "1000040350"}
            return web.Response(status=403, headers=headers)
        socket = web.WebSocketResponse(max_msg_size=2**24)
        await socket.prepare(request)
        connection = FeishuConnection(socket, request, service)
        self.connections.append(connection)
        self._state.changed()
        try:
            async for message in socket:
                if message.type is not WSMsgType.BINARY:
                    self._state.violation(f"a {message.type} message on the long connection")
                    continue
                await self._take(connection, wire.decode(message.data))
        finally:
            connection.close_code = socket.close_code
            self.connections.remove(connection)
            self.past.append(connection)
            self._state.changed()
        return socket

    async def deliver(self, event: FeishuEvent) -> None:
        """Push an event until it is acknowledged."""
        while not event.acked:
            connection = await self._any_connection()
            event.pushes += 1
            connection.pushes += 1
            self._state.changed()
            code = await self._push(connection, event)
            event.acked = code == 200
            event.codes.append(code)
            self._state.changed()
            if event.once:
                return
            if not event.acked:
                await anyio.sleep(self._redeliver_s)

    async def send_garbage(self, data: bytes) -> None:
        """Send bytes that are not a frame to every connection."""
        for connection in self.connections:
            await connection.socket.send_bytes(data)

    async def _any_connection(self) -> FeishuConnection:
        await self._state.wait_for(lambda: self.connections, timeout_s=3600)
        return random.choice(self.connections)  # noqa: S311

    async def _push(self, connection: FeishuConnection, event: FeishuEvent) -> int:
        """Send an event, in its parts. Return the code of the answer; 0 = no answer in time."""
        data = event.raw or json.dumps(event.payload, ensure_ascii=False).encode(
            "utf-8", "surrogatepass"
        )
        name = self._state.next_id("push-")
        size = -(-len(data) // event.parts)
        waiting = self._waiting[name] = _PendingPush(WireFrame())
        for number in range(event.parts):
            headers = {
                "type": event.kind, "message_id": name, "sum": str(event.parts), "seq": str(number),
                "trace_id": event.id, "timestamp": "1700000000000",
            }  # fmt: skip
            frame = WireFrame(
                seq_id=number, log_id=2**40 + number, service=connection.service, method=1, headers=headers,
                payload=data[number * size : (number + 1) * size], log_id_new="log-1",
            )  # fmt: skip
            waiting.frame = frame
            try:
                await connection.socket.send_bytes(wire.encode(frame))
            except (ConnectionError, RuntimeError):
                return 0
        with anyio.move_on_after(self._ack_s):
            await waiting.answered.wait()
        del self._waiting[name]
        event.answer = waiting.answer
        return waiting.code

    async def _take(self, connection: FeishuConnection, frame: WireFrame) -> None:
        if frame.missing:
            self._state.violation(f"a frame without {sorted(frame.missing)}")
        if frame.method == 0:
            await self._ping(connection, frame)
        elif frame.method == 1:
            self._answer(frame)
        else:
            self._state.violation(f"a frame of method {frame.method}")

    async def _ping(self, connection: FeishuConnection, frame: WireFrame) -> None:
        if frame.headers != {"type": "ping"} or frame.service != connection.service:
            self._state.violation(f"a strange ping {frame}")
        connection.pings += 1
        self._state.changed()
        if self.mute:
            return
        config = json.dumps({"PingInterval": self.ping_s}).encode()
        pong = WireFrame(service=connection.service, headers={"type": "pong"}, payload=config)
        await connection.socket.send_bytes(wire.encode(pong))

    mute = False
    """Keep connections open, but send neither pongs nor events on them."""

    def _answer(self, frame: WireFrame) -> None:
        waiting = self._waiting.get(frame.headers.get("message_id", ""))
        if waiting is None:
            return  # The answer came too late.
        if not self._same(waiting.frame, frame):
            self._state.violation(f"an answer that is not the event's own frame: {frame}")
        try:
            told = json.loads(frame.payload)
            waiting.code = int(told["code"])
            if told.get("data"):
                waiting.answer = json.loads(base64.b64decode(told["data"], validate=True))
        except (ValueError, KeyError, TypeError):
            self._state.violation(f"an answer without a code: {frame.payload[:100]!r}")
        waiting.answered.set()

    def _same(self, sent: WireFrame, answer: WireFrame) -> bool:
        headers = {name: value for name, value in answer.headers.items() if name != "biz_rt"}
        return (
            answer.log_id_new == sent.log_id_new
            and answer.service == sent.service
            and headers.keys() == sent.headers.keys()
            and answer.headers.get("biz_rt", "").isdigit()
        )
