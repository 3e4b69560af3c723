"""Socket Mode: WebSocket connections to Slack. The next one is opened before the previous one closes.

The SDK does framing, dispatch and acknowledgements. The connection is our own, because the SDK's client starts tasks
that outlive a stop, retries a used one-time URL forever, and closes the old connection before it opens the new one.
Protocol: docs.slack.dev/apis/events-api/using-socket-mode.
"""

import json
import logging
from collections.abc import Callable, Mapping
from typing import Any

import aiohttp
import anyio
from anyio.abc import TaskGroup
from slack_bolt.adapter.socket_mode.async_internals import run_async_bolt_app
from slack_bolt.async_app import AsyncApp
from slack_sdk.socket_mode.request import SocketModeRequest
from slack_sdk.socket_mode.response import SocketModeResponse

from bots.common.connection import ConnectionFailure
from bots.common.health import HealthTracker
from bots.common.proxy import proxy_url_for
from bots.slack.api import SlackApi
from bots.slack.connection import SlackTimeouts, check_bot_token, explain_token_error
from bots.slack.errors import SlackError, error_from_exception
from bus.errors import unwrapped

log = logging.getLogger(__name__)

MAX_FRAME_BYTES = 16_000_000
"""Maximum size of a frame, bytes, far above anything that Slack sends. A larger frame ends the connection."""

_CLOSE_S = 1.0
_OK = 200


def _socket_mode_off() -> ConnectionFailure:
    text = "The Slack app's Socket Mode is off: turn it on under Socket Mode in the app's settings."
    return ConnectionFailure(text, retryable=False)


def _too_many_connections() -> ConnectionFailure:
    return ConnectionFailure(
        "The Slack app has too many connections: stop other processes that use its app_token."
    )


_FAILURES: Mapping[str, Callable[[], ConnectionFailure]] = {
    "link_disabled": _socket_mode_off,
    "too_many_websockets": _too_many_connections,
}
"""Reasons of a `disconnect` that the operator must know. `warning` and `refresh_requested` are routine."""


class SocketModeConnection:
    """Keeps connections open.

    When Slack announces that it will close a connection (every few hours), the successor is opened while the old one
    still receives. Both receive until Slack closes the old one. Without this overlap, slash commands and button presses
    that arrive in between would be lost, because Slack never resends them. Slack may send events twice, and the bus
    drops duplicates by their ID.
    """

    def __init__(
        self, api: SlackApi, health: HealthTracker, *, channel: str, timeouts: SlackTimeouts
    ) -> None:
        self._api = api
        self._health = health
        self._channel = channel
        self._timeouts = timeouts

    async def serve(self, http: aiohttp.ClientSession, app: AsyncApp) -> None:
        """Connect and receive until no connection is left. See `ConnectionLoop`.

        Raises:
            SlackError, ConnectionFailure: A connection could not be opened, or it broke.
        """
        sessions: list[SocketModeSession] = []
        with unwrapped():
            async with anyio.create_task_group() as tasks:
                session: SocketModeSession | None = await self._open(http, app)
                while session is not None:
                    self._health.mark_connected()
                    sessions = [other for other in sessions if not other.stopped.is_set()] + [
                        session
                    ]
                    tasks.start_soon(session.run)
                    await session.ending.wait()
                    if failure := _FAILURES.get(session.end_reason):
                        raise failure()
                    session = await self._replace(session, http, app)
                for other in sessions:
                    other.retire(0)

    async def _open(self, http: aiohttp.ClientSession, app: AsyncApp) -> "SocketModeSession":
        await check_bot_token(self._api, self._health, channel=self._channel)
        try:
            url = await self._api.open_connection_url()
        except SlackError as error:
            expected = "an app-level token (xapp-...) with the scope connections:write"
            key = f"channels.{self._channel}.app_token"
            raise explain_token_error(error, key, expected) from error
        session = SocketModeSession(
            app, channel=self._channel, timeouts=self._timeouts, on_frame=self._health.mark_event
        )
        await session.connect(http, url)
        return session

    async def _replace(
        self, session: "SocketModeSession", http: aiohttp.ClientSession, app: AsyncApp
    ) -> "SocketModeSession | None":
        """Return the successor of a connection that will close; None if it closed first."""
        failures = 0 if session.age_s >= self._timeouts.stable_s else 1
        while True:
            with anyio.move_on_after(self._timeouts.backoff.wait_s(failures) if failures else 0):
                await session.stopped.wait()
            if session.stopped.is_set():
                return None
            try:
                successor = await self._open(http, app)
            except (SlackError, ConnectionFailure) as error:
                log.warning("%s: the next connection cannot be opened: %s", self._channel, error)
                failures += 1
            else:
                session.retire(self._timeouts.overlap_s)
                return successor


class SocketModeSession:
    """One WebSocket, used once.

    Args:
        app: Receives envelopes. A 200 acknowledges an envelope.
        channel: Instance name of the channel, for log lines.
        timeouts: The timeouts.
        on_frame: Called for every frame.

    Attributes:
        ending: Set when Slack announces that it will close the connection, or when the connection is gone.
        stopped: Set when the connection no longer receives anything.
        end_reason: Slack's reason, or "closed".
    """

    def __init__(
        self,
        app: AsyncApp,
        *,
        channel: str,
        timeouts: SlackTimeouts,
        on_frame: Callable[[], None],
    ) -> None:
        self._app = app
        self._channel = channel
        self._timeouts = timeouts
        self._on_frame = on_frame
        self._reading = anyio.CancelScope()
        self._connected_at = anyio.current_time()
        self._first: dict[str, Any] | None = None
        self._ws: aiohttp.ClientWebSocketResponse
        self.ending = anyio.Event()
        self.stopped = anyio.Event()
        self.end_reason = "closed"

    @property
    def age_s(self) -> float:
        """Seconds since the connection was made."""
        return anyio.current_time() - self._connected_at

    async def connect(self, http: aiohttp.ClientSession, url: str) -> None:
        """Connect and wait for the hello. Envelopes arrive after it. No error contains the URL, because it is a secret.

        Raises:
            SlackError: There was no connection, or no hello.
            ConnectionFailure: Slack refused the connection with a reason.
        """
        try:
            with anyio.fail_after(self._timeouts.hello_s):
                self._ws = await http.ws_connect(
                    url,
                    proxy=proxy_url_for(url),
                    heartbeat=self._timeouts.ping_s,
                    max_msg_size=MAX_FRAME_BYTES,
                    timeout=aiohttp.ClientWSTimeout(ws_close=_CLOSE_S),
                )
        except (aiohttp.ClientError, OSError) as error:
            raise error_from_exception(error) from None
        try:
            await self._wait_for_hello()
        except BaseException:
            await self._close()
            raise
        self._connected_at = anyio.current_time()

    async def run(self) -> None:
        """Receive until the connection ends.

        Envelopes that are being handled are still acknowledged if that takes less than `drain_s`.
        """
        try:
            async with anyio.create_task_group() as handlers:
                if self._first is not None:
                    self._dispatch(self._first, handlers)
                with self._reading:
                    await self._read(handlers)
                self.stopped.set()
                self.ending.set()
                handlers.cancel_scope.deadline = anyio.current_time() + self._timeouts.drain_s
        finally:
            self.stopped.set()
            await self._close()

    def retire(self, after_s: float) -> None:
        """Receive for at most this long."""
        self._reading.deadline = min(self._reading.deadline, anyio.current_time() + after_s)

    async def _wait_for_hello(self) -> None:
        """Wait for the hello. An envelope that arrives first counts too, and is kept."""
        with anyio.move_on_after(self._timeouts.hello_s):
            frame = await self._receive()
            if frame is not None and frame.get("type") == "disconnect":
                reason = str(frame.get("reason") or "disconnect")
                refused = ConnectionFailure(f"Slack refused the connection ({reason:.40}).")
                raise _FAILURES[reason]() if reason in _FAILURES else refused
            if frame is not None:
                self._first = None if frame.get("type") == "hello" else frame
                return
        raise SlackError("Slack opened a connection but did not say hello.", retryable=True)

    async def _read(self, handlers: TaskGroup) -> None:
        while (frame := await self._receive()) is not None:
            if frame.get("type") == "disconnect":
                self.end_reason = str(frame.get("reason") or "disconnect")
                self.ending.set()
            else:
                self._dispatch(frame, handlers)

    def _dispatch(self, frame: dict[str, Any], handlers: TaskGroup) -> None:
        request = SocketModeRequest.from_dict(frame)
        if request is not None:
            handlers.start_soon(self._handle, request)

    async def _receive(self) -> dict[str, Any] | None:
        """Return the next frame, or None when the connection is gone."""
        while True:
            message = await self._ws.receive()
            if message.type is not aiohttp.WSMsgType.TEXT:
                return None
            self._on_frame()
            try:
                frame = json.loads(message.data)
            except (ValueError, RecursionError):
                frame = None
            if isinstance(frame, dict) and isinstance(frame.get("payload", {}), dict):
                return frame
            log.warning("%s: dropped a frame that is not an envelope", self._channel)

    async def _handle(self, request: SocketModeRequest) -> None:
        try:
            answer = await run_async_bolt_app(self._app, request)
        except Exception:  # The boundary of one envelope. The others continue.
            # Bolt reads IDs and actions from the payload before its error handling begins.
            text = "%s: a payload is not acknowledged, because Bolt cannot read it"
            log.warning(text, self._channel, exc_info=True)
            return
        if answer.status != _OK:
            return
        response = SocketModeResponse(envelope_id=request.envelope_id).to_dict()
        try:
            await self._ws.send_json(response)
        except (aiohttp.ClientError, ConnectionError):
            text = (
                "%s: the connection closed before an acknowledgement; Slack will resend the event"
            )
            log.info(text, self._channel)

    async def _close(self) -> None:
        with anyio.CancelScope(shield=True, deadline=anyio.current_time() + 2 * _CLOSE_S):
            await self._ws.close()
