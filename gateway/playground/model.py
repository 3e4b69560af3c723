"""The model of the playground: passes requests on to the operator's models, or answers as the built-in demo.

The service calls it at `/model/KEY/NAME/...`. The model's weather also applies here.
"""

import json
import time
from collections.abc import AsyncIterator, Mapping
from secrets import token_urlsafe
from typing import Any

import anyio
import httpx
from aiohttp import web
from langchain_core.messages import (
    AIMessage,
    AIMessageChunk,
    BaseMessage,
    ToolMessage,
    convert_to_messages,
)

from agent.models.demo import DemoChatModel, plan
from agent.models.scripted import CHARS_PER_TOKEN, stream_chunks
from gateway.playground.inspector import Inspector

MODEL_WEATHERS = ("model slow", "model broken", "model cut off", "model overflowing")

SLOW_S = 8.0
"""How long a slow model waits before it answers, seconds."""

WINDOW_TOKENS = 4_000
"""The context window of an overflowing model, tokens: a few messages of a chat."""

CUT_AFTER = 3
"""Number of pieces of an answer before the connection is cut."""

_TIMEOUT_S = 600.0
_HOP_HEADERS = frozenset(
    {
        "host",
        "content-length",
        "connection",
        "transfer-encoding",
        "accept-encoding",
        "content-encoding",
    }
)
_OVERFLOW = (
    "This model's maximum context length is {window} tokens, however you requested {tokens} tokens."
    " prompt is too long"
)


class ModelFront:
    """The proxy between the service and the models.

    Attributes:
        upstreams: The base URL of each model by name. The demo has none.
        weather: One of MODEL_WEATHERS, or "".
    """

    def __init__(self, inspector: Inspector) -> None:
        self.key = token_urlsafe(12)
        self.upstreams: dict[str, str] = {}
        self.weather = ""
        self._inspector = inspector
        self._delay_s = float(DemoChatModel.model_fields["delay_s"].default)

    def routes(self) -> list[web.RouteDef]:
        """Return the routes. They contain a key that only the service knows."""
        return [web.route("*", f"/model/{self.key}/{{name}}/{{path:.*}}", self._answer)]

    async def _answer(self, request: web.Request) -> web.StreamResponse:
        name, body = request.match_info["name"], await request.read()
        tokens = len(body) // CHARS_PER_TOKEN
        title = f"asks {name} ({request.match_info['path']}, about {tokens} tokens)"
        asked = self._inspector.add("model", "call", title, detail=_readable(body))
        response: web.StreamResponse | None = await self._refused(tokens)
        if response is None and name in self.upstreams:
            response = await self._passed_on(request, body)
        elif response is None:
            response = await self._demo(request, body)
        self._inspector.finish(asked, str(response.status), failed=response.status != 200)
        return response

    async def _refused(self, tokens: int) -> web.Response | None:
        """Return the error of the current weather, if any. Waits if the model is slow."""
        if self.weather == "model slow":
            await anyio.sleep(SLOW_S)
        if self.weather == "model broken":
            return _error(
                500, "server_error", "The server had an error (weather of the playground)"
            )
        if self.weather == "model overflowing" and tokens > WINDOW_TOKENS:
            text = _OVERFLOW.format(window=WINDOW_TOKENS, tokens=tokens)
            return _error(400, "context_length_exceeded", text)
        return None

    async def _passed_on(self, request: web.Request, body: bytes) -> web.StreamResponse:
        url = (
            f"{self.upstreams[request.match_info['name']].rstrip('/')}/{request.match_info['path']}"
        )
        headers = {k: v for k, v in request.headers.items() if k.lower() not in _HOP_HEADERS}
        try:
            async with (
                httpx.AsyncClient(timeout=_TIMEOUT_S) as client,
                client.stream(
                    request.method, url, params=dict(request.query), headers=headers, content=body
                ) as found,
            ):
                headers = {k: v for k, v in found.headers.items() if k.lower() not in _HOP_HEADERS}
                response = web.StreamResponse(status=found.status_code, headers=headers)
                return await self._streamed(request, response, found.aiter_bytes())
        except httpx.HTTPError as error:
            return _error(502, "server_error", f"{url}: {error!r}")

    async def _demo(self, request: web.Request, body: bytes) -> web.StreamResponse:
        asked = json.loads(body)
        messages = _named(convert_to_messages(asked["messages"]))
        tools = {tool["function"]["name"] for tool in asked.get("tools", ())}
        chunks = list(stream_chunks(plan(messages, tools), messages))
        if not asked.get("stream"):
            return web.json_response(_completion(chunks))
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        return await self._streamed(request, response, self._events(chunks))

    async def _events(self, chunks: list[AIMessageChunk]) -> AsyncIterator[bytes]:
        for chunk in chunks:
            await anyio.sleep(self._delay_s)
            yield f"data: {json.dumps(_event(chunk))}\n\n".encode()
        yield b"data: [DONE]\n\n"

    async def _streamed(
        self, request: web.Request, response: web.StreamResponse, pieces: AsyncIterator[bytes]
    ) -> web.StreamResponse:
        await response.prepare(request)
        number = 0
        async for piece in pieces:
            number += 1
            if self.weather == "model cut off" and number > CUT_AFTER:
                if request.transport is not None:
                    request.transport.abort()
                break
            await response.write(piece)
        return response


def _named(messages: list[BaseMessage]) -> list[BaseMessage]:
    """Add the tools' names to tool results, because requests do not contain them."""
    names = {
        call["id"]: call["name"]
        for message in messages
        if isinstance(message, AIMessage)
        for call in message.tool_calls
    }
    return [
        one.model_copy(update={"name": names.get(one.tool_call_id)})
        if isinstance(one, ToolMessage)
        else one
        for one in messages
    ]


def _readable(body: bytes) -> object:
    try:
        return json.loads(body)
    except ValueError:
        return body.decode("utf-8", "replace")


def _error(status: int, code: str, message: str) -> web.Response:
    return web.json_response(
        {"type": "error", "error": {"type": code, "code": code, "message": message}}, status=status
    )


def _delta(chunk: AIMessageChunk) -> dict[str, Any]:
    calls = [
        {
            "index": call["index"],
            "id": call["id"],
            "type": "function",
            "function": {"name": call["name"], "arguments": call["args"]},
        }
        for call in chunk.tool_call_chunks
    ]
    return {"role": "assistant", "content": chunk.text} | ({"tool_calls": calls} if calls else {})


def _event(chunk: AIMessageChunk) -> dict[str, Any]:
    choice = {
        "index": 0,
        "delta": _delta(chunk),
        "finish_reason": chunk.response_metadata.get("finish_reason"),
    }
    return _head("chat.completion.chunk", chunk) | {"choices": [choice]}


def _completion(chunks: list[AIMessageChunk]) -> dict[str, Any]:
    whole = chunks[0]
    for chunk in chunks[1:]:
        whole = whole + chunk
    calls = [
        {
            "id": call["id"],
            "type": "function",
            "function": {"name": call["name"], "arguments": json.dumps(call["args"])},
        }
        for call in whole.tool_calls
    ]
    message = {"role": "assistant", "content": whole.text} | (
        {"tool_calls": calls} if calls else {}
    )
    choice = {"index": 0, "message": message, "finish_reason": "tool_calls" if calls else "stop"}
    return _head("chat.completion", whole) | {"choices": [choice]}


def _head(kind: str, chunk: AIMessageChunk) -> dict[str, Any]:
    head: dict[str, Any] = {
        "id": "chatcmpl-demo", "object": kind, "created": int(time.time()), "model": "demo",
    }  # fmt: skip
    if usage := chunk.usage_metadata:
        head["usage"] = {
            "prompt_tokens": usage["input_tokens"],
            "completion_tokens": usage["output_tokens"],
            "total_tokens": usage["total_tokens"],
        }
    return head


DEFAULT_URLS: Mapping[str, str] = {
    "langchain_openai:ChatOpenAI": "https://api.openai.com/v1",
    "langchain_anthropic:ChatAnthropic": "https://api.anthropic.com",
}
"""The default addresses of model classes, for entries without `base_url`."""
