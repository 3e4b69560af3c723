"""NodeRequests: has an HTTP request answered by another node, whose response streams back. No network is involved."""

from base64 import b64decode, b64encode
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any
from uuid import uuid4

import anyio
import orjson
from anyio.abc import TaskGroup
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from bus.tasks import run_beside
from gateway.forwarding.parts import Part, ReceivedParts, SentParts
from gateway.langgraph.responses import HOPS
from gateway.middleware import API_GROUP
from store.errors import StoreUnavailable
from store.node_calls import NodeCalls
from store.work_group import WORK_GROUP

CHECK_S = 0.25
"""How often a node that is waited for is checked to be alive, seconds."""

REPEAT_S = 2.0
"""Silence after which it is asked whether something was lost, seconds."""

UNHEARD_S = 30.0
"""A receiver that was silent for so long, seconds, has disconnected."""


class ResponseBroken(Exception):
    """The node that answers was lost after the response had started."""


@dataclass(frozen=True, slots=True)
class _Answering:
    node: int
    parts: SentParts


class NodeRequests:
    """Sends requests to other nodes, and answers theirs. Made by `open_node_requests`."""

    def __init__(self, calls: NodeCalls, app: ASGIApp, tasks: TaskGroup) -> None:
        self._calls = calls
        self._app = app
        self._tasks = tasks
        self._awaited: dict[str, ReceivedParts] = {}
        self._answering: dict[str, _Answering] = {}
        calls.serve("request", self._accept)
        calls.serve("request.repeat", self._repeat)
        calls.receive("request.part", self._take_part)
        calls.receive("request.read", self._take_read)

    async def forward(
        self, node: int, scope: Scope, body: bytes, receive: Receive, send: Send
    ) -> None:
        """Have `node` answer a request, and pass its response on until the client disconnects.

        Args:
            node: The number of another node.
            scope: Of the request.
            body: The whole body.
            receive: Of the request; only tells when the client disconnects.
            send: Takes the response.

        Raises:
            StoreUnavailable: The node cannot be reached; nothing was sent. It may have carried the request out.
            ResponseBroken: The node was lost after the response had started.
        """
        stream = uuid4().hex
        parts = self._awaited[stream] = ReceivedParts()
        try:
            await self._calls.call(
                node, "request", _encode_request(stream, scope, body, self._calls.node)
            )
            with anyio.CancelScope() as connected:
                async with run_beside(partial(_watch_disconnect, receive, connected)):
                    await self._pass_on(node, stream, parts, send)
        finally:
            del self._awaited[stream]
            self._calls.tell(node, "request.read", f"{stream} -1")

    async def _pass_on(self, node: int, stream: str, parts: ReceivedParts, send: Send) -> None:
        has_started = False
        while True:
            part = await self._next_part(node, stream, parts)
            if part is None or part[0] == "broken":
                problem = f"Node {node} did not finish its response."
                raise ResponseBroken(problem) if has_started else StoreUnavailable(problem)
            kind, data = part
            has_started = True
            if kind == "head":
                status, headers = orjson.loads(data)
                raw = [(name.encode("latin-1"), value.encode("latin-1")) for name, value in headers]
                await send({"type": "http.response.start", "status": status, "headers": raw})
            else:
                is_last = kind == "end"
                await send({"type": "http.response.body", "body": data, "more_body": not is_last})
                if is_last:
                    return
            if parts.is_acknowledgement_due():
                self._calls.tell(node, "request.read", f"{stream} {parts.position}")

    async def _next_part(self, node: int, stream: str, parts: ReceivedParts) -> Part | None:
        """Return the next part; None = the node, or its response, does not exist any more."""
        asked_at = anyio.current_time()
        while (part := await parts.receive(CHECK_S)) is None:
            if node not in self._calls.others:
                return None
            if anyio.current_time() - asked_at >= REPEAT_S:
                try:
                    await self._calls.call(node, "request.repeat", f"{stream} {parts.position}")
                except StoreUnavailable:
                    return None
                asked_at = anyio.current_time()
        return part

    async def _accept(self, encoded: str) -> str:
        """Begin to answer a request of another node."""
        asked: dict[str, Any] = orjson.loads(encoded)
        stream, node = asked.pop("stream"), asked.pop("from")
        parts = SentParts(stream, lambda note: self._calls.tell(node, "request.part", note))
        self._answering[stream] = _Answering(node, parts)
        self._tasks.start_soon(self._answer, stream, asked, parts)
        return ""

    async def _answer(self, stream: str, asked: dict[str, Any], parts: SentParts) -> None:
        WORK_GROUP.set(API_GROUP)
        try:
            await _Exchange(asked, parts).run(self._app)
            await parts.delivered.wait()
        finally:
            del self._answering[stream]

    async def _repeat(self, body: str) -> str:
        """Send again what was lost on the way to a receiver that is at a position."""
        stream, position = body.split()
        answering = self._answering.get(stream)
        if answering is None:
            raise StoreUnavailable("the response does not exist any more.")
        answering.parts.acknowledge(int(position))
        answering.parts.repeat()
        return ""

    def _take_part(self, _node: int, body: str) -> None:
        stream, number, kind, encoded = body.split(" ")
        if parts := self._awaited.get(stream):
            parts.add(int(number), kind, encoded)  # type: ignore[arg-type]  # as `SentParts` wrote it

    def _take_read(self, _node: int, body: str) -> None:
        stream, position = body.split()
        if answering := self._answering.get(stream):
            if int(position) < 0:
                answering.parts.disconnect()
            else:
                answering.parts.acknowledge(int(position))

    async def watch(self) -> None:
        """Disconnect receivers that are gone, again and again."""
        while True:
            await anyio.sleep(1.0)
            unheard = anyio.current_time() - UNHEARD_S
            for answering in list(self._answering.values()):
                is_silent = answering.parts.heard_at < unheard
                if is_silent or answering.node not in self._calls.others:
                    answering.parts.disconnect()


class _Exchange:
    """A request of another node, and the response that goes back."""

    def __init__(self, asked: dict[str, Any], parts: SentParts) -> None:
        self._scope = _decode_scope(asked)
        body = b64decode(asked["body"])
        self._messages: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]
        self._parts = parts

    async def run(self, app: ASGIApp) -> None:
        """Call the application."""
        try:
            await app(self._scope, self._receive, self._send)
        except Exception:  # noqa: BLE001 - HTTP handler: the application has logged it
            await self._parts.send("broken")

    async def _receive(self) -> Message:
        if self._messages:
            return self._messages.pop()
        await self._parts.disconnected.wait()
        return {"type": "http.disconnect"}

    async def _send(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            headers = [(n.decode("latin-1"), v.decode("latin-1")) for n, v in message["headers"]]
            await self._parts.send("head", orjson.dumps([message["status"], headers]))
            return
        if data := message.get("body", b""):
            await self._parts.send("body", bytes(data))
        if not message.get("more_body", False):
            await self._parts.send("end")


@asynccontextmanager
async def open_node_requests(calls: NodeCalls, app: ASGIApp) -> AsyncIterator[NodeRequests]:
    """Yield what forwards requests; `app` answers those of other nodes, until the block ends."""
    async with anyio.create_task_group() as tasks:
        requests = NodeRequests(calls, app, tasks)
        tasks.start_soon(requests.watch)
        yield requests
        tasks.cancel_scope.cancel()


async def _watch_disconnect(receive: Receive, scope: anyio.CancelScope) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
    scope.cancel()


_TEXTS = ("method", "scheme", "path", "root_path", "http_version")


def _encode_request(stream: str, scope: Scope, body: bytes, node: int) -> str:
    headers = [
        (name.decode("latin-1"), value.decode("latin-1")) for name, value in scope["headers"]
    ]
    request = {
        **{name: scope.get(name, "") for name in _TEXTS},
        "query": scope["query_string"].decode("latin-1"),
        "headers": headers,
        "hops": scope[HOPS],
        "body": b64encode(body).decode(),
        "stream": stream,
        "from": node,
    }
    return orjson.dumps(request).decode()


def _decode_scope(asked: dict[str, Any]) -> Scope:
    headers = [
        (name.encode("latin-1"), value.encode("latin-1")) for name, value in asked["headers"]
    ]
    return {
        "type": "http",
        "asgi": {"version": "3.0", "spec_version": "2.3"},
        **{name: asked[name] for name in _TEXTS},
        "raw_path": asked["path"].encode(),
        "query_string": asked["query"].encode("latin-1"),
        "headers": headers,
        HOPS: asked["hops"],
        "server": None,
        "client": None,
        "state": {},
    }
