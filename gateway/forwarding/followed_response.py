"""FollowedResponse: a response about a run that goes on when the run does, at another node."""

from starlette.types import Message, Scope, Send

from gateway.forwarding.requests import ResponseBroken
from gateway.langgraph.responses import CANCEL_HEADERS

_LOCATION, _CONTENT_TYPE, _LAST_EVENT_ID = b"location", b"content-type", b"last-event-id"
_EVENTS = b"text/event-stream"
_FRAME_END = b"\n\n"
_CANCELS = {(name.lower().encode(), value.encode()) for name, value in CANCEL_HEADERS.items()}
_CANCEL_QUERY = b"cancel_on_disconnect=true"
_OK = 200


class FollowedResponse:
    """Passes a response on. If it breaks off, what another node responds to `next_request` is the rest of it.

    Of events, whole ones are passed on; of JSON, the blank lines before it, and then all of it.

    Args:
        scope: Of the request.
        send: Takes the response.
    """

    def __init__(self, scope: Scope, send: Send) -> None:
        self._scope = scope
        self._send = send
        self._next_path = ""
        self._next_query: bytes = scope["query_string"]
        self._last_event_id = b""
        self._is_stream = False
        self._rest = b""
        self._has_started = False

    @property
    def can_go_on(self) -> bool:
        """Whether another node can respond with the rest."""
        return bool(self._next_path)

    def next_request(self) -> Scope:
        """Return the request for the rest."""
        self._rest = b""
        scope, path = self._scope, self._next_path
        kept = [(name, value) for name, value in scope["headers"] if name != _LAST_EVENT_ID]
        if self._last_event_id:
            kept.append((_LAST_EVENT_ID, self._last_event_id))
        return {
            **scope,
            "method": "GET",
            "path": path,
            "raw_path": path.encode(),
            "query_string": self._next_query,
            "headers": kept,
        }

    async def send(self, message: Message) -> None:
        """Pass a part on. Raises ResponseBroken: it is not the rest of what was sent."""
        if message["type"] == "http.response.start":
            await self._start(message)
            return
        self._rest += message.get("body", b"")
        is_last = not message.get("more_body", False)
        data = self._rest if is_last else self._whole_part()
        self._rest = self._rest[len(data) :]
        if self._is_stream:
            self._note_events(data)
        if data or is_last:
            await self._send({"type": "http.response.body", "body": data, "more_body": not is_last})

    async def _start(self, message: Message) -> None:
        if self._has_started:
            if message["status"] != _OK:
                raise ResponseBroken("The run cannot be followed to another node.")
            return
        headers = dict(message["headers"])
        self._is_stream = headers.get(_CONTENT_TYPE, b"").startswith(_EVENTS)
        self._has_started = True
        path: str = self._scope["path"]
        if message["status"] == _OK and _LOCATION in headers:
            # Of a run. As clients do, it is appended to the prefix of the API.
            prefix = path[: path.index("/threads/" if "/threads/" in path else "/runs")]
            self._next_path = prefix + headers[_LOCATION].decode()
            if self._scope["method"] == "POST" and _CANCELS & set(message["headers"]):
                self._next_query = _CANCEL_QUERY  # what its body said
        elif self._is_stream and self._scope["method"] == "GET":
            self._next_path = path
        await self._send(message)

    def _whole_part(self) -> bytes:
        if self._is_stream:
            return (
                self._rest[: self._rest.rfind(_FRAME_END) + len(_FRAME_END)]
                if _FRAME_END in self._rest
                else b""
            )
        if not self._next_path or not self._rest.strip():
            return self._rest
        return b""

    def _note_events(self, data: bytes) -> None:
        """Remember the last event that the client has."""
        start = data.rfind(b"\nid: ")
        if start >= 0:
            self._last_event_id = data[start + len(b"\nid: ") :].partition(b"\n")[0]
