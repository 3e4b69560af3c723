"""An OpenAI-compatible model server on 127.0.0.1: scripted answers, and a record of every request.

    async with FakeModelServer() as server:
        server.reply(ModelReply(calls=(ToolCall("ls", {"path": "/mnt"}),)), "Nothing there.")
        ... ChatOpenAI(base_url=server.base_url, api_key="test", model="fake") ...
        assert server.requests[0].last_user_text == "hi"

Without a script, the server echoes: "You said: ...". Queue answers with `reply`, or create them in `answer`. To imitate
the quirks of OpenAI-compatible servers, set `ModelReply.body`, which is sent as is. Build it with `event_stream` or
`whole_body`. The switches set what the server refuses and how long it waits (tests/fakes/model_switches.py).

`ScriptedChatModel` in tests/fakes/scripted.py plays the same `ModelReply` and `ToolCall` without a server.
"""

import asyncio
import json
import re
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from types import TracebackType
from typing import Any, Self

import anyio
from aiohttp import web

from agent.models.scripted import split_words
from tests.eventually import WITHIN_S
from tests.fakes import anthropic, responses
from tests.fakes.model_switches import ModelSwitches, PrefixCache, prompt_tokens

SPEAKER_LINE = re.compile(r"\A<speaker id=\"[^\"]*\"(?: addressed=\"no\")?>[^<]*</speaker>\n")


@dataclass(frozen=True)
class ToolCall:
    """A tool call of a reply. If the arguments are a string, it is sent as is, even if it is not valid JSON."""

    name: str
    args: dict[str, Any] | str
    id: str = ""


@dataclass(frozen=True)
class ModelReply:
    """One answer of the server.

    Attributes:
        text: The model's text, streamed word by word.
        calls: The tools that it calls.
        sources: URLs and titles from the server's own web search that the text cites. Chat completions have none.
        reasoning: Streamed before the text.
        reasoning_field: The server's name for it: `reasoning` (vLLM) or `reasoning_content` (DeepSeek).
        first_token_delay_s: Pause before the first chunk; None = the server's.
        token_delay_s: Pause before each further chunk; None = the server's.
        hang_after: Stop after this many words and keep the connection open; None = never.
        drop_after: Break the connection after this many words; None = never.
        status: An HTTP error instead of an answer, if not 200.
        error_code: The code in its body; None = the status.
        error_text: The message in its body.
        headers: Headers of the response, for example Retry-After.
        finish_reason: None = derived from the reply.
        body: The bytes of the response, which replace all of the above; of type `content_type`.
        breaks_after_body: Break the connection after the body, instead of ending the response.
    """

    text: str = ""
    calls: tuple[ToolCall, ...] = ()
    sources: tuple[tuple[str, str], ...] = ()
    reasoning: str = ""
    reasoning_field: str = "reasoning"
    first_token_delay_s: float | None = None
    token_delay_s: float | None = None
    hang_after: int | None = None
    drop_after: int | None = None
    status: int = 200
    error_code: str | None = None
    error_text: str = "scripted error"
    headers: dict[str, str] = field(default_factory=dict)
    finish_reason: str | None = None
    body: bytes | None = None
    content_type: str = "text/event-stream"
    breaks_after_body: bool = False


DONE = ModelReply(text="(done)")
"""The text of a model after the end of its script."""


def as_reply(said: ModelReply | str) -> ModelReply:
    """Return the reply for a string."""
    return ModelReply(text=said) if isinstance(said, str) else said


@dataclass
class ModelRequest:
    """A request as the server received it.

    Attributes:
        body: The JSON body.
        headers: The HTTP headers.
        cached_tokens: How many tokens of its prompt were cached; 0 unless the server caches prefixes.
        refusal: Why the server refused it; "" = accepted.
        finished: The whole answer was sent.
        closed_by_client: The client disconnected before that.
    """

    body: dict[str, Any]
    headers: dict[str, str]
    cached_tokens: int = 0
    refusal: str = ""
    finished: bool = False
    closed_by_client: bool = False

    @cached_property
    def tokens(self) -> int:
        """Estimated tokens of its prompt."""
        return prompt_tokens(self.body)

    @property
    def messages(self) -> list[dict[str, Any]]:
        """The conversation that the model was shown."""
        messages: list[dict[str, Any]] = self.body.get("messages", [])
        return messages

    @property
    def user_texts(self) -> list[str]:
        """Users' messages as text, without the lines that name the users of a group."""
        said = [text_of(m["content"]) for m in self.messages if m["role"] == "user"]
        return [SPEAKER_LINE.sub("", text) for text in said]

    @property
    def last_user_text(self) -> str:
        """The user's last message."""
        return self.user_texts[-1] if self.user_texts else ""

    @property
    def tool_names(self) -> list[str]:
        """The names of the offered tools."""
        return [tool.get("function", tool)["name"] for tool in self.body.get("tools", [])]


class ScriptedDisconnect(ConnectionResetError):
    """The connection was broken as scripted."""


Answer = Callable[[ModelRequest], ModelReply]


def tool_plan(*steps: ModelReply | ToolCall | str) -> Answer:
    """Return an `answer` function that takes these steps for each message of a user: calls one by one, then a text.

    The step depends only on the messages after the user's last one, so many conversations can run at once. After the
    last step, the model says "(done)".
    """
    replies = [ModelReply(calls=(s,)) if isinstance(s, ToolCall) else as_reply(s) for s in steps]

    def answer(request: ModelRequest) -> ModelReply:
        roles = [message["role"] for message in reversed(request.messages)]
        taken = roles[: roles.index("user")].count("assistant") if "user" in roles else 0
        return replies[taken] if taken < len(replies) else DONE

    return answer


class FakeModelServer:
    """A server with OpenAI's routes for chat completions, responses and models, and Anthropic's for messages.

    Args:
        switches: What the server refuses, how long it waits, and whether it caches.
        answer: Creates the answers when none is queued; None = echo.

    Attributes:
        models: The names that it lists, oldest first.
    """

    def __init__(
        self, switches: ModelSwitches | None = None, *, answer: Answer | None = None
    ) -> None:
        self.switches = switches or ModelSwitches()
        self.answer = answer or _echo
        self.requests: list[ModelRequest] = []
        self.base_url = ""
        self.models = ["fake"]
        self._cache = PrefixCache()
        self._queue: deque[ModelReply] = deque()
        self._changed = anyio.Event()
        self._runner: web.AppRunner | None = None
        self._stopping = False

    @property
    def anthropic_url(self) -> str:
        """The base URL for Anthropic's clients, which append the version."""
        return self.base_url.removesuffix("/v1")

    @property
    def refusals(self) -> list[str]:
        """The reasons for all refused requests."""
        return [request.refusal for request in self.requests if request.refusal]

    @property
    def prefix_hit_rate(self) -> float:
        """Cached share of the tokens of all accepted prompts, 0.0 to 1.0."""
        accepted = [request for request in self.requests if not request.refusal]
        tokens = sum(request.tokens for request in accepted)
        return sum(request.cached_tokens for request in accepted) / tokens if tokens else 0.0

    def reply(self, *replies: ModelReply | str) -> None:
        """Queue answers, one per future request. A string is a reply with that text."""
        self._queue.extend(map(as_reply, replies))

    @property
    def replies_left(self) -> int:
        """Number of queued answers."""
        return len(self._queue)

    def forget_replies(self) -> None:
        """Drop the unused queued answers."""
        self._queue.clear()

    async def until(
        self, condition: Callable[["FakeModelServer"], bool], *, within_s: float = WITHIN_S
    ) -> None:
        """Wait until a condition holds, for example that a client closed its request."""
        with anyio.fail_after(within_s):
            while not condition(self):
                await self._changed.wait()

    async def __aenter__(self) -> Self:
        app = web.Application(client_max_size=64_000_000)
        app.router.add_post("/v1/chat/completions", self._complete)
        app.router.add_post("/v1/responses", self._responses)
        app.router.add_post("/v1/messages", self._messages)
        app.router.add_get("/v1/models", self._models)
        # The handler is canceled when its client disconnects.
        self._runner = web.AppRunner(app, handler_cancellation=True, shutdown_timeout=0.2)
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", 0)
        await site.start()
        self.base_url = f"http://127.0.0.1:{self._runner.addresses[0][1]}/v1"
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._stopping = True
        if self._runner is not None:
            await self._runner.cleanup()

    async def _models(self, _: web.Request) -> web.Response:
        rows = [
            {"id": name, "object": "model", "created": 1_000_000 + number}
            for number, name in enumerate(self.models)
        ]
        return web.json_response({"object": "list", "data": rows})

    async def _responses(self, http: web.Request) -> web.StreamResponse:
        request, reply = await self._receive(http)
        if reply.status != 200:
            return _error(reply)
        model = str(request.body.get("model"))
        usage = self._usage(request, reply)
        events = list(
            responses.events(model, reply.text, _ready_calls(reply), usage, reply.sources)
        )
        if not request.body.get("stream"):
            return web.json_response(events[-1]["response"])
        return await self._send_events(http, request, reply, map(responses.frame, events))

    async def _messages(self, http: web.Request) -> web.StreamResponse:
        request, reply = await self._receive(http)
        if reply.status != 200:
            kind = "invalid_request_error" if request.refusal else "api_error"
            error = {"type": kind, "message": reply.error_text}
            return web.json_response({"type": "error", "error": error}, status=reply.status)
        usage = self._usage(request, reply)
        calls, reason = _ready_calls(reply), reply.finish_reason
        events = anthropic.events(reply.reasoning, reply.text, calls, usage, reason, reply.sources)
        if not request.body.get("stream"):
            answer = web.json_response(anthropic.whole_message(events))
            answer.force_close()  # see `_send_events`
            return answer
        return await self._send_events(http, request, reply, map(responses.frame, events))

    async def _send_events(
        self, http: web.Request, request: ModelRequest, reply: ModelReply, frames: Iterable[bytes]
    ) -> web.StreamResponse:
        response = web.StreamResponse(headers={"content-type": "text/event-stream"})
        if http.path.endswith("/messages"):
            # Use each connection once, because Anthropic's package caches connections and never closes them.
            response.headers["connection"] = "close"
            response.force_close()
        await response.prepare(http)
        await self._pause(reply.first_token_delay_s, self.switches.first_token_delay_s)
        for frame in frames:
            await response.write(frame)
            await self._pause(reply.token_delay_s, self.switches.token_delay_s)
        request.finished = True
        self._tell()
        return response

    async def _receive(self, http: web.Request) -> tuple[ModelRequest, ModelReply]:
        """Record a request, and choose the reply: a refusal, the next queued one, or the result of `answer`."""
        request = ModelRequest(body=await http.json(), headers=dict(http.headers))
        self.requests.append(request)
        self._tell()
        is_anthropic = http.path.endswith("/messages")
        refusal = self.switches.refusal(request.body, is_anthropic=is_anthropic)
        if refusal is not None:
            request.refusal = refusal.text
            return request, ModelReply(status=400, error_code=refusal.code, error_text=refusal.text)
        if self.switches.caches_prefixes:
            request.cached_tokens = self._cache.cached_tokens(
                request.body, is_anthropic=is_anthropic
            )
        return request, self._queue.popleft() if self._queue else self.answer(request)

    async def _complete(self, http: web.Request) -> web.StreamResponse:
        request, reply = await self._receive(http)
        try:
            response = await self._respond(http, request, reply)
        except ScriptedDisconnect:
            raise
        except (asyncio.CancelledError, ConnectionError):
            request.closed_by_client = not self._stopping
            raise
        else:
            request.finished = reply.status == 200
            return response
        finally:
            self._tell()

    async def _respond(
        self, http: web.Request, request: ModelRequest, reply: ModelReply
    ) -> web.StreamResponse:
        if reply.status != 200:
            return _error(reply)
        if reply.body is not None:
            return await _send_body(http, reply, reply.body)
        if request.body.get("stream"):
            return await self._stream(http, request, reply)
        await self._pause(reply.first_token_delay_s, self.switches.first_token_delay_s)
        if reply.hang_after is not None:
            await anyio.sleep_forever()
        if reply.drop_after is not None:
            _drop(http)
        whole = _whole(request, reply, self._usage(request, reply))
        return web.json_response(whole, headers=reply.headers)

    async def _stream(
        self, http: web.Request, request: ModelRequest, reply: ModelReply
    ) -> web.StreamResponse:
        response = web.StreamResponse(
            headers={"content-type": "text/event-stream", **reply.headers}
        )
        await response.prepare(http)
        await self._pause(reply.first_token_delay_s, self.switches.first_token_delay_s)
        async for delta in self._deltas(http, reply):
            await response.write(_frame(_chunk(request, delta)))
            await self._pause(reply.token_delay_s, self.switches.token_delay_s)
        await response.write(_frame(_chunk(request, {}, finish_reason=_reason(reply))))
        if (request.body.get("stream_options") or {}).get("include_usage"):
            usage = {
                **_chunk(request, {}),
                "choices": [],
                "usage": self._usage(request, reply),
            }
            await response.write(_frame(usage))
        await response.write(b"data: [DONE]\n\n")
        return response

    async def _deltas(self, http: web.Request, reply: ModelReply) -> AsyncIterator[dict[str, Any]]:
        yield {"role": "assistant", "content": ""}
        for word in split_words(reply.reasoning):
            yield {reply.reasoning_field: word}
        for sent, word in enumerate([*split_words(reply.text), ""]):
            if reply.hang_after == sent:
                await anyio.sleep_forever()
            if reply.drop_after == sent:
                _drop(http)
            if word:
                yield {"content": word}
        for index, call in enumerate(reply.calls):
            for delta in _call_deltas(call, index):
                yield delta

    async def _pause(self, asked_s: float | None, usual_s: float) -> None:
        await anyio.sleep(usual_s if asked_s is None else asked_s)

    def _usage(self, request: ModelRequest, reply: ModelReply) -> dict[str, Any]:
        completion = len(split_words(reply.text)) + len(reply.calls) + 1
        usage: dict[str, Any] = {
            "prompt_tokens": request.tokens,
            "completion_tokens": completion,
            "total_tokens": request.tokens + completion,
        }
        if self.switches.caches_prefixes:
            usage["prompt_tokens_details"] = {"cached_tokens": request.cached_tokens}
        return usage

    def _tell(self) -> None:
        changed, self._changed = self._changed, anyio.Event()
        changed.set()


def event_stream(
    *deltas: Mapping[str, Any], done: bool = True, finish: str | None = "stop"
) -> bytes:
    """Return an answer of these deltas. A mapping with `choices`, `error`, `usage` or `object` is a whole event."""
    events = [
        delta
        if delta.keys() & {"choices", "error", "usage", "object"}
        else {
            "id": "c",
            "model": "fake",
            "choices": [{"index": 0, "delta": delta, "finish_reason": None}],
        }
        for delta in deltas
    ]
    if finish is not None:
        choice = {"index": 0, "delta": {}, "finish_reason": finish}
        events.append({"id": "c", "model": "fake", "choices": [choice]})
    return b"".join(map(_frame, events)) + (b"data: [DONE]\n\n" if done else b"")


def whole_body(message: Mapping[str, Any], *, finish: str | None = "stop", **more: object) -> bytes:
    """Return the body of an answer that is not streamed."""
    choice = {"index": 0, "message": {"role": "assistant", **message}, "finish_reason": finish}
    head = {"id": "c", "object": "chat.completion", "created": 1, "model": "fake"}
    return json.dumps({**head, "choices": [choice], **more}).encode()


def _echo(request: ModelRequest) -> ModelReply:
    return ModelReply(text=f"You said: {request.last_user_text}")


def _error(reply: ModelReply) -> web.Response:
    code = reply.error_code or reply.status
    error = {"message": reply.error_text, "type": "server_error", "code": code}
    return web.json_response({"error": error}, status=reply.status, headers=reply.headers)


async def _send_body(http: web.Request, reply: ModelReply, body: bytes) -> web.StreamResponse:
    if not reply.breaks_after_body:
        return web.Response(body=body, content_type=reply.content_type)
    response = web.StreamResponse(headers={"content-type": reply.content_type})
    await response.prepare(http)
    await response.write(body)
    if http.transport is not None:
        http.transport.close()  # the written data is sent, but not the end of the chunked body
    raise ScriptedDisconnect


def _drop(http: web.Request) -> None:
    if http.transport is not None:
        http.transport.abort()
    raise ScriptedDisconnect


def _frame(data: Mapping[str, Any]) -> bytes:
    return b"data: " + json.dumps(data).encode() + b"\n\n"


def _chunk(
    request: ModelRequest, delta: dict[str, Any], *, finish_reason: str | None = None
) -> dict[str, Any]:
    choice = {"index": 0, "delta": delta, "finish_reason": finish_reason}
    return {**_head(request, "chat.completion.chunk"), "choices": [choice]}


def _whole(request: ModelRequest, reply: ModelReply, usage: dict[str, Any]) -> dict[str, Any]:
    message: dict[str, Any] = {"role": "assistant", "content": reply.text or None}
    if reply.reasoning:
        message[reply.reasoning_field] = reply.reasoning
    if reply.calls:
        message["tool_calls"] = [
            _call(call, index, _arguments(call)) for index, call in enumerate(reply.calls)
        ]
    choice = {"index": 0, "message": message, "finish_reason": _reason(reply)}
    head = _head(request, "chat.completion")
    return {**head, "choices": [choice], "usage": usage}


def _head(request: ModelRequest, kind: str) -> dict[str, Any]:
    model = request.body.get("model", "fake")
    return {"id": "chatcmpl-fake", "object": kind, "created": 1, "model": model}


def _ready_calls(reply: ModelReply) -> list[dict[str, Any]]:
    """Return a reply's calls with their IDs and with the arguments as sent."""
    return [
        {
            "id": call.id or f"call_{call.name}_{index}",
            "name": call.name,
            "arguments": _arguments(call),
        }
        for index, call in enumerate(reply.calls)
    ]


def _arguments(call: ToolCall) -> str:
    return call.args if isinstance(call.args, str) else json.dumps(call.args)


def _call(call: ToolCall, index: int, arguments: str) -> dict[str, Any]:
    function = {"name": call.name, "arguments": arguments}
    return {"id": call.id or f"call_{call.name}_{index}", "type": "function", "function": function}


def _call_deltas(call: ToolCall, index: int) -> list[dict[str, Any]]:
    arguments = _arguments(call)
    half = len(arguments) // 2
    pieces: list[dict[str, Any]] = [{"index": index, **_call(call, index, "")}]
    pieces += [
        {"index": index, "function": {"arguments": piece}}
        for piece in (arguments[:half], arguments[half:])
    ]
    return [{"tool_calls": [piece]} for piece in pieces]


def _reason(reply: ModelReply) -> str:
    return reply.finish_reason or ("tool_calls" if reply.calls else "stop")


def text_of(content: object) -> str:
    if isinstance(content, list):
        return "".join(str(part.get("text", "")) for part in content if isinstance(part, dict))
    return str(content or "")
