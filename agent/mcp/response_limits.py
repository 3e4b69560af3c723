"""Limits and repairs a server's HTTP responses: the SDK buffers whole messages and rejects odd ones."""

import re
from collections.abc import AsyncIterator, Mapping
from typing import Any

import httpx
from typing_extensions import override

from agent.errors import McpServerUnusable
from agent.mcp.message_repair import repair_message

MAX_MESSAGE_BYTES = 32 * 1024 * 1024
"""Longest accepted message, bytes. Bounds memory."""

TOO_LONG = "it sends messages that are too long"
COMPRESSED = "it sends compressed responses although the request allows none"

_HEADERS = {"Accept-Encoding": "identity"}
"""Request no compression: a compressed response could expand a thousandfold."""

_EVENT_ENDS = (b"\n\n", b"\r\r", b"\r\n\r\n")
_LINE_END = re.compile(rb"(\r\n|\r|\n)")
_OVERLAP = 3
"""Number of bytes at the end of a chunk to check for the beginning of an event's end mark."""


def limited_client(
    *,
    headers: Mapping[str, str] | None = None,
    **options: Any,  # noqa: ANN401 - httpx's own types
) -> httpx.AsyncClient:
    """Return an HTTP client whose responses are limited. `options` are httpx's.

    Reading a response raises McpServerUnusable if it is compressed or a message is too long.
    """
    return httpx.AsyncClient(
        headers={**(headers or {}), **_HEADERS},
        event_hooks={"response": [_limit_response]},
        **options,
    )


async def _limit_response(response: httpx.Response) -> None:
    """Limit the size of a response, or of each event in a stream, and repair its messages.

    Raises McpServerUnusable if it is compressed.
    """
    if response.headers.get("content-encoding", "identity").strip().lower() != "identity":
        raise McpServerUnusable(COMPRESSED)
    stream = response.stream
    if isinstance(stream, httpx.AsyncByteStream):
        is_stream = response.headers.get("content-type", "").lower().startswith("text/event-stream")
        limited = _LimitedStream(stream, _EVENT_ENDS if is_stream else ())
        response.stream = _RepairedEvents(limited) if is_stream else _RepairedBody(limited)


class _LimitedStream(httpx.AsyncByteStream):
    """A body with a size limit per message. `ends` are the byte sequences that end a message."""

    def __init__(self, body: httpx.AsyncByteStream, ends: tuple[bytes, ...]) -> None:
        self._body = body
        self._ends = ends

    @override
    async def __aiter__(self) -> AsyncIterator[bytes]:
        size, last = 0, b""
        async for chunk in self._body:
            seen = last + chunk
            begins = max(
                (seen.rfind(end) + len(end) for end in self._ends if end in seen), default=0
            )
            size = len(seen) - begins if begins else size + len(chunk)
            if size > MAX_MESSAGE_BYTES:
                raise McpServerUnusable(TOO_LONG)
            last = seen[-_OVERLAP:]
            yield chunk

    @override
    async def aclose(self) -> None:
        await self._body.aclose()


class _RepairedBody(httpx.AsyncByteStream):
    """A body with a single message."""

    def __init__(self, body: httpx.AsyncByteStream) -> None:
        self._body = body

    @override
    async def __aiter__(self) -> AsyncIterator[bytes]:
        yield repair_message(b"".join([chunk async for chunk in self._body]))

    @override
    async def aclose(self) -> None:
        await self._body.aclose()


class _RepairedEvents(_RepairedBody):
    """A body with a stream of events. Each data line is one message."""

    @override
    async def __aiter__(self) -> AsyncIterator[bytes]:
        pieces: list[bytes] = []
        async for chunk in self._body:
            *ended, rest = _LINE_END.split(chunk)
            if ended:
                ended[0] = b"".join((*pieces, ended[0]))
                ended[::2] = map(_repaired_line, ended[::2])
                yield b"".join(ended)
                pieces = []
            pieces.append(rest)
        yield _repaired_line(b"".join(pieces))


def _repaired_line(line: bytes) -> bytes:
    """Return a line of an event stream with its message repaired."""
    data = line.removeprefix(b"data:").strip() if line.startswith(b"data:") else b""
    return b"data: " + repair_message(data) if data.startswith(b"{") else line
