"""Ends streams and WebSockets whose token is revoked or expires while they are open. Plain ASGI."""

from collections.abc import Awaitable, Callable

from starlette.types import Message, Receive, Send

CLOSE_POLICY_VIOLATION = 1008

HasEnded = Callable[[], Awaitable[bool]]
"""Returns whether the connection's token was revoked or has expired."""


class RevocableConnection:
    """A connection that ends with its token. Provides `receive` and `send` for the application.

    The token is checked for each message of a WebSocket, and for each part of a response without a length, heartbeats
    included. A response with a length is one piece and is not cut off, because a request may revoke its own token.
    """

    def __init__(self, receive: Receive, send: Send, has_token_ended: HasEnded) -> None:
        self._receive = receive
        self._send = send
        self._has_token_ended = has_token_ended
        self._is_stream = False
        self._has_ended = False

    async def receive(self) -> Message:
        """Receive a message. A WebSocket whose token has ended is disconnected."""
        message = await self._receive()
        if message["type"] != "websocket.receive" or not await self._has_token_ended():
            return message
        await self._end(message["type"])
        return {"type": "websocket.disconnect", "code": CLOSE_POLICY_VIOLATION}

    async def send(self, message: Message) -> None:
        """Send a message, or end the connection. Later messages are dropped."""
        kind = message["type"]
        if kind == "http.response.start":
            names = {name.lower() for name, _ in message.get("headers", ())}
            self._is_stream = b"content-length" not in names
        is_part = kind == "http.response.body" and message.get("more_body", False)
        is_asked = kind == "websocket.send" or (is_part and self._is_stream)
        if is_asked and not self._has_ended and await self._has_token_ended():
            await self._end(kind)
        if not self._has_ended:
            await self._send(message)

    async def _end(self, kind: str) -> None:
        if self._has_ended:
            return
        self._has_ended = True
        if kind.startswith("websocket."):
            await self._send({"type": "websocket.close", "code": CLOSE_POLICY_VIOLATION})
        else:
            await self._send({"type": "http.response.body", "body": b"", "more_body": False})
