"""The smallest server of the LangGraph API that the bus can use. It gives scripted answers, and records when each run
was requested.

An ASGI application for `StreamingASGITransport`, so that only the bus, its SDK and its journal are measured.
"""

import time
import uuid
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from typing import Any

import anyio
import orjson
from starlette.types import Message, Receive, Scope, Send

Said = Callable[[str], AsyncIterator[str]]
"""Yields the deltas of the answer to a text."""


async def ok(text: str) -> AsyncIterator[str]:
    """Answer with one word."""
    yield "ok"


async def never(text: str) -> AsyncIterator[str]:
    """Never answer."""
    await anyio.sleep_forever()
    yield ""


@dataclass
class InstantRuns:
    """Threads and runs that exist only while their stream is open.

    Attributes:
        said: The answer of each run.
        started: When each run was requested (`time.perf_counter`), by the text of its human message.
    """

    said: Said = ok
    started: dict[str, float] = field(default_factory=dict)
    changed: anyio.Event = field(default_factory=anyio.Event)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        body = orjson.loads(await _body(receive) or b"{}")
        if scope["path"].endswith("/runs/stream"):
            await self._stream(scope["path"], body, send)
        elif scope["path"].endswith("/cancel"):
            await _answer(send, {})
        else:
            await _answer(send, {"thread_id": body.get("thread_id"), "metadata": {}})

    async def until(self, count: int, within_s: float = 120.0) -> None:
        """Wait until this many runs were requested."""
        with anyio.fail_after(within_s):
            while len(self.started) < count:
                await self.changed.wait()

    async def _stream(self, path: str, body: dict[str, Any], send: Send) -> None:
        human = body["input"]["messages"][0]
        self.started[human["content"]] = time.perf_counter()
        self.changed.set()
        self.changed = anyio.Event()
        run_id, answer = str(uuid.uuid4()), ""
        location = f"{path.removesuffix('/stream')}/{run_id}".encode()
        headers = [(b"content-type", b"text/event-stream"), (b"content-location", location)]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send(_frame("metadata", {"run_id": run_id}))
        async for delta in self.said(human["content"]):
            answer += delta
            chunk = {"type": "AIMessageChunk", "id": f"a{run_id}", "content": delta}
            await send(_frame("messages", [chunk, {}]))
        ai = {"type": "ai", "id": f"a{run_id}", "content": answer}
        values = {"messages": [{**human, "type": "human"}, ai]}
        await send(_frame("values", values))
        await send(_frame("end", {"run_id": run_id, "status": "success"}))
        await send({"type": "http.response.body", "body": b""})


async def _body(receive: Receive) -> bytes:
    whole = b""
    while True:
        message = await receive()
        whole += bytes(message.get("body", b""))
        if not message.get("more_body"):
            return whole


async def _answer(send: Send, document: object) -> None:
    headers = [(b"content-type", b"application/json")]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": orjson.dumps(document)})


def _frame(event: str, data: object) -> Message:
    frame = b"event: %b\ndata: %b\n\n" % (event.encode(), orjson.dumps(data))
    return {"type": "http.response.body", "body": frame, "more_body": True}
