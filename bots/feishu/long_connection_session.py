"""One WebSocket of the long connection: receives frames, acknowledges events, and sends pings."""

import base64
import json
import logging
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace

import anyio
from anyio.abc import TaskGroup
from websockets.asyncio.client import ClientConnection
from websockets.exceptions import ConnectionClosed

from bots.feishu.frame_assembler import FrameAssembler
from bots.feishu.json_node import JsonNode, parse_json
from bots.feishu.receiver import RETRY, EventAck
from bots.feishu.sdk import Frame, FrameCodec, FrameError
from bots.feishu.timeouts import FeishuTimeouts

log = logging.getLogger(__name__)

_CONTROL = 0
_DONE = 200
_AGAIN = 500
_LONGEST_PING_S = 3600
_MAX_HANDLERS = 256
"""Maximum number of events to handle concurrently. Beyond that, the reader waits, which slows down the platform."""

EventHandler = Callable[[JsonNode], Awaitable[EventAck]]
"""Handles an event, which is empty if its payload is not JSON. Returns the response. Never raises."""


class LongConnectionSession:
    """Receives until its websocket closes. The platform resends events that were not acknowledged.

    Args:
        socket: The open websocket.
        codec: Encodes and decodes frames.
        handler: Receives each event.
        on_frame: Called for every frame.
        timeouts: Time limits.
        service: The endpoint's service ID.
        ping_s: Interval of pings until a pong changes it, seconds.
    """

    def __init__(
        self,
        socket: ClientConnection,
        *,
        codec: FrameCodec,
        handler: EventHandler,
        on_frame: Callable[[], None],
        timeouts: FeishuTimeouts,
        service: int,
        ping_s: float,
    ) -> None:
        self._socket = socket
        self._codec = codec
        self._handler = handler
        self._on_frame = on_frame
        self._timeouts = timeouts
        self._service = service
        self._ping_s = ping_s
        self._silent = False
        self._assembler = FrameAssembler(keep_s=timeouts.parts_s)
        self._capacity = anyio.Semaphore(_MAX_HANDLERS)

    async def run(self) -> None:
        """Receive, answer and ping until the connection ends."""
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._ping)
            try:
                async for message in self._socket:
                    if isinstance(message, bytes):
                        await self._on_message(message, tasks)
            except ConnectionClosed as error:
                log.info("the long connection was lost (%s)", type(error).__name__)
            tasks.cancel_scope.cancel()

    async def _on_message(self, message: bytes, tasks: TaskGroup) -> None:
        self._silent = False
        self._on_frame()
        try:
            frame = self._codec.decode(message)
        except FrameError as error:
            log.warning("the long connection sent an unreadable frame: %s", error)
            return
        if frame.method == _CONTROL:
            self._control(frame)
            return
        payload = self._assembler.add(frame)
        if payload is not None:
            await self._capacity.acquire()
            tasks.start_soon(self._handle, frame, payload)

    def _control(self, frame: Frame) -> None:
        """Use the ping interval from a pong, if the pong contains one."""
        if frame.headers.get("type") == "pong" and frame.payload:
            self._ping_s = ping_interval_s(parse_json(frame.payload)) or self._ping_s

    async def _handle(self, frame: Frame, payload: bytes) -> None:
        try:
            began = time.monotonic()
            verdict = RETRY
            with anyio.move_on_after(self._timeouts.ack_s) as budget:
                verdict = await self._handler(JsonNode(parse_json(payload)))
            if budget.cancelled_caught:
                log.warning("an event was not stored in time; the platform will resend it")
            await self._acknowledge(frame, verdict, took_ms=int((time.monotonic() - began) * 1000))
        finally:
            self._capacity.release()

    async def _acknowledge(self, frame: Frame, verdict: EventAck, *, took_ms: int) -> None:
        """Send the frame back with the result in place of the event."""
        response: dict[str, object] = {"code": _DONE if verdict.accepted else _AGAIN}
        if verdict.response:
            response["data"] = base64.b64encode(_dump(verdict.response)).decode()
        payload = _dump(response)
        headers = {**frame.headers, "biz_rt": str(took_ms)}
        await self._send(replace(frame, headers=headers, payload=payload))

    async def _ping(self) -> None:
        """Ping at the platform's interval. Close the connection if it stays silent between two pings."""
        while True:
            if self._silent:
                log.warning("closing the long connection because it is silent")
                await self._socket.close()
                return
            self._silent = True
            await self._send(
                Frame(service=self._service, method=_CONTROL, headers={"type": "ping"})
            )
            await anyio.sleep(self._ping_s)

    async def _send(self, frame: Frame) -> None:
        try:
            with anyio.move_on_after(self._timeouts.connect_s):
                await self._socket.send(self._codec.encode(frame))
        except ConnectionClosed:
            log.debug("a frame was not sent because the connection is closed")


def ping_interval_s(config: object) -> float | None:
    """Return the ping interval of a ClientConfig, seconds; None if it is missing or unreasonable.

    >>> ping_interval_s({"PingInterval": 120}), ping_interval_s({"PingInterval": 0}), ping_interval_s(None)
    (120.0, None, None)
    """
    value = config.get("PingInterval") if isinstance(config, dict) else None
    return float(value) if isinstance(value, int | float) and 0 < value <= _LONGEST_PING_S else None


def _dump(value: Mapping[str, object]) -> bytes:
    return json.dumps(value, ensure_ascii=False).encode("utf-8", "replace")
