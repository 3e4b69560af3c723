"""An Anthropic-compatible model server on 127.0.0.1: scripted answers as streamed messages."""

import json
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Self
from uuid import uuid4

from aiohttp import web

from agent.models.scripted import split_words

Block = dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class AnthropicReply:
    """A scripted answer: thinking first, then text, then tool calls as (id, name, arguments)."""

    thinking: str = ""
    text: str = ""
    calls: tuple[tuple[str, str, dict[str, Any]], ...] = ()
    status: int = 200


class FakeAnthropic:
    """POST /v1/messages, streamed. `requests` are the bodies; `base_url` has no path."""

    def __init__(self, *answers: AnthropicReply) -> None:
        self.requests: list[dict[str, Any]] = []
        self.keys: list[str] = []
        self.base_url = ""
        self._answers = deque(answers)
        self._runner: web.AppRunner | None = None

    async def __aenter__(self) -> Self:
        app = web.Application()
        app.router.add_post("/v1/messages", self._message)
        self._runner = web.AppRunner(app, shutdown_timeout=0.2)
        await self._runner.setup()
        await web.TCPSite(self._runner, "127.0.0.1", 0).start()
        self.base_url = f"http://127.0.0.1:{self._runner.addresses[0][1]}"
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._runner is not None:
            await self._runner.cleanup()

    async def _message(self, request: web.Request) -> web.StreamResponse:
        self.requests.append(await request.json())
        given = request.headers.get("x-api-key") or request.headers.get("authorization") or ""
        self.keys.append(given.removeprefix("Bearer "))
        answer = self._answers.popleft() if self._answers else AnthropicReply(text="(done)")
        if answer.status != 200:
            error = {"type": "error", "error": {"type": "api_error", "message": "scripted"}}
            return web.json_response(error, status=answer.status)
        # Use each connection once, because the package caches connections and never closes them.
        headers = {"content-type": "text/event-stream", "connection": "close"}
        response = web.StreamResponse(headers=headers)
        response.force_close()
        await response.prepare(request)
        for event in _events(answer):
            line = f"event: {event['type']}\ndata: {json.dumps(event)}\n\n"
            await response.write(line.encode())
        return response


def _events(answer: AnthropicReply) -> Iterator[Block]:
    usage = {"input_tokens": 7, "output_tokens": 1}
    message: Block = {
        "id": f"msg_{uuid4().hex}",
        "type": "message",
        "role": "assistant",
        "model": "claude-fake",
        "content": [],
        "stop_reason": None,
        "stop_sequence": None,
        "usage": usage,
    }
    yield {"type": "message_start", "message": message}
    for index, (start, deltas) in enumerate(_blocks(answer)):
        yield {"type": "content_block_start", "index": index, "content_block": start}
        for delta in deltas:
            yield {"type": "content_block_delta", "index": index, "delta": delta}
        yield {"type": "content_block_stop", "index": index}
    reason = "tool_use" if answer.calls else "end_turn"
    delta = {"stop_reason": reason, "stop_sequence": None}
    yield {"type": "message_delta", "delta": delta, "usage": {"output_tokens": 9}}
    yield {"type": "message_stop"}


def _blocks(answer: AnthropicReply) -> Iterator[tuple[Block, list[Block]]]:
    """Yield each content block: its start, and its deltas."""
    if answer.thinking:
        deltas = [
            {"type": "thinking_delta", "thinking": answer.thinking},
            {"type": "signature_delta", "signature": "sig-1"},
        ]
        yield {"type": "thinking", "thinking": "", "signature": ""}, deltas
    if answer.text:
        texts = [{"type": "text_delta", "text": word} for word in split_words(answer.text)]
        yield {"type": "text", "text": ""}, texts
    for ref, name, arguments in answer.calls:
        text = json.dumps(arguments)
        half = len(text) // 2
        pieces = [
            {"type": "input_json_delta", "partial_json": piece}
            for piece in (text[:half], text[half:])
        ]
        yield {"type": "tool_use", "id": ref, "name": name, "input": {}}, pieces
