"""One Socket Mode connection: envelopes in, acknowledgements out.

Framing, dispatch and the rule for acknowledging are the SDK's; the connection is ours, because the SDK's
client starts tasks that nobody owns (they outlive a stop), tries a used one-time address for ever, and
says "connected" before Slack does. The protocol: docs.slack.dev, "Using Socket Mode".
"""

import json
import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import aiohttp
import anyio
from anyio.abc import TaskGroup
from slack_bolt.adapter.socket_mode.async_internals import run_async_bolt_app
from slack_bolt.async_app import AsyncApp
from slack_sdk.socket_mode.request import SocketModeRequest
from slack_sdk.socket_mode.response import SocketModeResponse

from bots.slack.errors import SlackError, error_from_exception
from bots.slack.proxy import proxy_url_for

logger = logging.getLogger(__name__)

MAX_FRAME_BYTES = 16_000_000
"""Far above anything Slack sends; a larger frame ends the connection."""

_CLOSE_S = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class SocketModeTimeouts:
    """How long things may take on a connection, in seconds.

    Attributes:
        hello_s: From connecting to Slack's hello.
        ping_s: Between two pings; a pong that is half of this late ends the connection.
        drain_s: For payloads in work when Slack ends the connection.
    """

    hello_s: float = 15.0
    ping_s: float = 20.0
    drain_s: float = 2.0


class SocketModeRefused(SlackError):
    """Slack ended a connection with a word, before it was open; `code` is that word."""

    def __init__(self, reason: str) -> None:
        super().__init__(f"Slack ended the connection at once ({reason:.40}).", retryable=True)
        self.code = reason


class SocketModeSession:
    """A Socket Mode connection that is used once.

    Args:
        app: What payloads go to; its 200 is an acknowledgement.
        hang_up: Ends the connection when it is set.
        opened: Called when Slack said hello: events arrive from now on.
        heard: Called for every frame.
        pace: How long things may take.
    """

    def __init__(
        self,
        app: AsyncApp,
        *,
        hang_up: anyio.Event,
        opened: Callable[[], None],
        heard: Callable[[], None],
        pace: SocketModeTimeouts,
    ) -> None:
        self._app = app
        self._close_requested = hang_up
        self._on_connected = opened
        self._on_frame = heard
        self._timeouts = pace

    async def run(self, session: aiohttp.ClientSession, url: str) -> str:
        """Serve until the connection ends; return why, in Slack's words where it gave any.

        Raises:
            SlackError: There was no connection, or no hello.
        """
        try:
            with anyio.fail_after(self._timeouts.hello_s):
                ws = await session.ws_connect(
                    url,
                    proxy=proxy_url_for(url),
                    heartbeat=self._timeouts.ping_s,
                    max_msg_size=MAX_FRAME_BYTES,
                    timeout=aiohttp.ClientWSTimeout(ws_close=_CLOSE_S),
                )
        except (aiohttp.ClientError, OSError) as error:
            raise error_from_exception(error) from None
        try:
            return await self._process(ws, await self._wait_for_hello(ws))
        finally:
            with anyio.CancelScope(shield=True, deadline=anyio.current_time() + 2 * _CLOSE_S):
                await ws.close()

    async def _wait_for_hello(self, ws: aiohttp.ClientWebSocketResponse) -> dict[str, Any] | None:
        """Wait for the hello; an envelope that comes without one says as much, and is returned."""
        with anyio.move_on_after(self._timeouts.hello_s):
            frame = await self._receive(ws)
            if frame is not None and frame.get("type") == "disconnect":
                raise SocketModeRefused(str(frame.get("reason") or "disconnect"))
            if frame is not None:
                self._on_connected()
                return None if frame.get("type") == "hello" else frame
        raise SlackError("Slack opened a connection but did not say hello.", retryable=True)

    async def _process(
        self, ws: aiohttp.ClientWebSocketResponse, first: dict[str, Any] | None
    ) -> str:
        reason = "a call was refused"
        async with anyio.create_task_group() as watch:
            watch.start_soon(self._close_on_request, watch)
            async with anyio.create_task_group() as tasks:
                if first is not None:
                    self._dispatch(ws, first, tasks)
                reason = await self._read(ws, tasks)
                # What is in work is still acknowledged on this connection, if it is quick.
                tasks.cancel_scope.deadline = anyio.current_time() + self._timeouts.drain_s
            watch.cancel_scope.cancel()
        return reason

    async def _close_on_request(self, tasks: TaskGroup) -> None:
        await self._close_requested.wait()
        tasks.cancel_scope.cancel()

    async def _read(self, ws: aiohttp.ClientWebSocketResponse, tasks: TaskGroup) -> str:
        while (frame := await self._receive(ws)) is not None:
            if frame.get("type") == "disconnect":
                return str(frame.get("reason") or "disconnect")
            self._dispatch(ws, frame, tasks)
        return "closed"

    def _dispatch(
        self, ws: aiohttp.ClientWebSocketResponse, frame: dict[str, Any], tasks: TaskGroup
    ) -> None:
        request = SocketModeRequest.from_dict(frame)
        if request is not None:
            tasks.start_soon(self._handle, ws, request)

    async def _receive(self, ws: aiohttp.ClientWebSocketResponse) -> dict[str, Any] | None:
        """Return the next frame, or None when the connection is gone."""
        while True:
            message = await ws.receive()
            if message.type is not aiohttp.WSMsgType.TEXT:
                return None
            self._on_frame()
            try:
                frame = json.loads(message.data)
            except (ValueError, RecursionError):
                frame = None
            if isinstance(frame, dict) and isinstance(frame.get("payload", {}), dict):
                return frame
            logger.warning("slack: a frame that is not an envelope was dropped")

    async def _handle(
        self, ws: aiohttp.ClientWebSocketResponse, request: SocketModeRequest
    ) -> None:
        try:
            answer = await run_async_bolt_app(self._app, request)
        except Exception:
            # Bolt reads ids and actions from the payload before its own error handling begins.
            logger.warning(
                "slack: Bolt cannot read a payload; it is not acknowledged", exc_info=True
            )
            return
        if answer.status != 200:  # noqa: PLR2004
            return
        try:
            await ws.send_json(SocketModeResponse(envelope_id=request.envelope_id).to_dict())
        except (aiohttp.ClientError, ConnectionError):
            logger.info(
                "slack: the connection ended before an acknowledgement; Slack will send again"
            )
