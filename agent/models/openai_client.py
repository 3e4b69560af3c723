"""Calls of OpenAI-compatible servers: an aiohttp transport, requests sent as they are, streams in whole reads.

Imports the `openai` package: import this module by name, and only for a model that needs it.
"""

import json
from collections.abc import AsyncIterator, Iterator
from types import TracebackType
from typing import Any, Self
from urllib.request import getproxies, proxy_bypass

import aiohttp
import httpx2
import openai
import orjson
from openai.resources.chat.completions import AsyncCompletions
from typing_extensions import override

from agent.trace_context import trace_headers

CONNECTIONS = 1000
"""Most connections at once, as in the package's own client."""

READ_S = 600.0
CONNECT_S = 5.0
READ_BYTES = 16 * 1024
"""Most bytes of an answer that are parsed at once: some 80 deltas, 1 ms of CPU, in which all others wait."""

_WALKED = ("messages", "tools")
"""The arguments of `create` that hold nearly all of a request."""


class OpenAIHttpClient(httpx2.AsyncClient):
    """An HTTP client over aiohttp with the timeouts of the package's own client: connect 5 s, read 600 s."""

    def __init__(self) -> None:
        super().__init__(
            transport=AiohttpTransport(),
            timeout=httpx2.Timeout(READ_S, connect=CONNECT_S),
            follow_redirects=True,
        )


class AiohttpTransport(httpx2.AsyncBaseTransport):
    """Sends the package's requests with aiohttp, for a quarter of the CPU of the usual transport.

    The transport that comes with the package calls every connection that the server closes a timeout of its opening.
    """

    def __init__(self) -> None:
        self._session: aiohttp.ClientSession | None = None

    @override
    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        """Send a request; the response's body is read later. Raises httpx2.TransportError."""
        if self._session is None:
            connector = aiohttp.TCPConnector(limit=CONNECTIONS)
            self._session = aiohttp.ClientSession(connector=connector, auto_decompress=False)
        waits = request.extensions.get("timeout", {})
        try:
            response = await self._session.request(
                request.method,
                str(request.url),
                headers=[*request.headers.multi_items(), *trace_headers().items()],
                data=await request.aread() or None,
                allow_redirects=False,
                proxy=_proxy_url(request.url),
                timeout=aiohttp.ClientTimeout(
                    sock_connect=waits.get("connect"), sock_read=waits.get("read")
                ),
            )
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            raise _transport_error(error, request) from error
        return httpx2.Response(
            response.status,
            headers=response.raw_headers,
            stream=_ResponseBody(response, request),
            request=request,
        )

    @override
    async def aclose(self) -> None:
        """Close all connections."""
        if self._session is not None:
            await self._session.close()


class _ResponseBody(httpx2.AsyncByteStream):
    def __init__(self, response: aiohttp.ClientResponse, request: httpx2.Request) -> None:
        self._response = response
        self._request = request

    @override
    async def __aiter__(self) -> AsyncIterator[bytes]:
        try:
            async for data in self._response.content.iter_chunked(READ_BYTES):
                yield data
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            raise _transport_error(error, self._request) from error

    @override
    async def aclose(self) -> None:
        self._response.release()


def _proxy_url(url: httpx2.URL) -> str | None:
    """Return the proxy that the environment names for a URL. aiohttp would read .netrc as well, against the API key."""
    if proxy_bypass(url.host):
        return None
    proxies = getproxies()
    return proxies.get(url.scheme) or proxies.get("all")


def _transport_error(error: Exception, request: httpx2.Request) -> httpx2.TransportError:
    kind: type[httpx2.TransportError] = httpx2.ReadError
    match error:
        case aiohttp.ConnectionTimeoutError():
            kind = httpx2.ConnectTimeout
        case TimeoutError():
            kind = httpx2.ReadTimeout
        case aiohttp.ClientConnectorError():
            kind = httpx2.ConnectError
        case aiohttp.InvalidURL() | aiohttp.NonHttpUrlClientError():
            kind = httpx2.UnsupportedProtocol
    return kind(type(error).__name__, request=request)


class DirectCompletions:
    """AsyncCompletions whose `create` sends messages and tools as they are, and streams dictionaries.

    The package walks through its arguments by their type annotations, to rename fields and to read files. What
    LangChain passes has neither. With the agent's tools the walk takes 6 ms of CPU, a fifth of a turn (measured). It
    also makes an object of every token, which LangChain turns into a dictionary again.

    Args:
        completions: An `AsyncCompletions`.
    """

    def __init__(self, completions: AsyncCompletions) -> None:
        self._completions = completions

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401 - whatever else the class has
        return getattr(self._completions, name)

    async def create(self, *, extra_body: Any = None, **arguments: Any) -> Any:  # noqa: ANN401 - the package's types
        """Create a completion; arguments, results and exceptions are those of `AsyncCompletions.create`."""
        body = {name: arguments.pop(name) for name in _WALKED if name in arguments}
        created: Any = await self._completions.create(
            messages=[], extra_body={**body, **(extra_body or {})}, **arguments
        )
        return ChunkStream(created) if isinstance(created, openai.AsyncStream) else created


class ChunkStream:
    """The chunks of a streamed completion as dictionaries; deltas that arrive together are one chunk.

    Args:
        stream: The package's stream, of which nothing was read.
    """

    def __init__(self, stream: openai.AsyncStream[Any]) -> None:
        self._stream = stream
        self._event: list[bytes] = []

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self._stream.close()

    async def __aiter__(self) -> AsyncIterator[dict[str, Any]]:
        """Yield the chunks.

        Raises:
            openai.APIError: The server reported an error, or the connection broke.
            json.JSONDecodeError: An event is not JSON.
        """
        response, rest = self._stream.response, b""
        try:
            async for data in response.aiter_bytes():
                *lines, rest = (rest + data).split(b"\n")
                for chunk in merge_deltas(self._parse(lines)):
                    yield chunk
        except httpx2.TimeoutException as error:
            raise openai.APITimeoutError(request=response.request) from error
        except httpx2.RequestError as error:
            raise openai.APIConnectionError(request=response.request) from error
        for chunk in self._parse([rest, b""]):
            yield chunk

    def _parse(self, lines: list[bytes]) -> Iterator[dict[str, Any]]:
        for line in lines:
            if line.startswith(b"data:"):
                self._event.append(line.removeprefix(b"data:").strip())
            elif not line.strip() and self._event:
                data = b"\n".join(self._event)
                self._event.clear()
                if not data.startswith(b"[DONE]"):
                    yield self._chunk(_parse_json(data))

    def _chunk(self, chunk: Any) -> dict[str, Any]:  # noqa: ANN401 - parsed JSON
        if not isinstance(chunk, dict) or chunk.get("error"):
            error = chunk.get("error") if isinstance(chunk, dict) else None
            message = error.get("message") if isinstance(error, dict) else None
            raise openai.APIError(
                message=str(message or "An error occurred during streaming"),
                request=self._stream.response.request,
                body=error,
            )
        return chunk


def _parse_json(data: bytes) -> Any:  # noqa: ANN401 - JSON
    try:
        return orjson.loads(data)
    except orjson.JSONDecodeError:
        return json.loads(data.decode("utf-8", "replace"))  # it accepts half a surrogate pair


def merge_deltas(chunks: Iterator[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """Join neighboring chunks that only continue a text. A chunk with anything else stays as it is.

    >>> def chunk(**delta): return {"id": "c", "choices": [{"index": 0, "delta": delta, "finish_reason": None}]}
    >>> merged = merge_deltas(iter([chunk(content="a"), chunk(content="b"), chunk(content="", tool_calls=[])]))
    >>> [one["choices"][0]["delta"] for one in merged]
    [{'content': 'ab'}, {'content': '', 'tool_calls': []}]
    """
    last: dict[str, Any] | None = None
    pieces: dict[str, list[str]] = {}
    for chunk in chunks:
        delta = _text_delta(chunk)
        if last is not None and pieces and delta and delta.keys() == pieces.keys():
            for name, text in delta.items():
                pieces[name].append(text)
            continue
        if last is not None:
            yield _joined(last, pieces)
        last, pieces = chunk, {name: [text] for name, text in delta.items()}
    if last is not None:
        yield _joined(last, pieces)


def _text_delta(chunk: dict[str, Any]) -> dict[str, str]:
    """Return the delta of a chunk that holds nothing but text; {} of another."""
    choices = chunk.get("choices") or []
    if len(choices) != 1 or chunk.get("usage"):
        return {}
    choice = choices[0]
    delta = choice.get("delta") or {}
    if choice.get("finish_reason") or choice.get("logprobs") or "role" in delta:
        return {}
    return delta if all(isinstance(text, str) for text in delta.values()) else {}


def _joined(chunk: dict[str, Any], pieces: dict[str, list[str]]) -> dict[str, Any]:
    if all(len(texts) == 1 for texts in pieces.values()):
        return chunk
    delta = {name: "".join(texts) for name, texts in pieces.items()}
    return {**chunk, "choices": [{**chunk["choices"][0], "delta": delta}]}
