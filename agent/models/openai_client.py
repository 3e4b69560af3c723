"""Client of OpenAI-compatible servers: an aiohttp transport, unconverted requests, normalized answers.

Imports the `openai` package: import this module by name, and only for a model that needs it.
"""

import hashlib
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from io import BytesIO
from types import TracebackType
from typing import Any, Self
from urllib.request import getproxies, proxy_bypass

import aiohttp
import anyio
import httpx2
import openai
from typing_extensions import override

from agent.clean_values import clean_json
from agent.models.answers import AnswerNormalizer, whole_answer
from agent.models.event_stream import AnswerFailed, EventReader, NoAnswer, read_whole
from agent.models.roles import arrange_messages
from agent.trace_context import trace_headers

CONNECTIONS = 1000
"""Maximum number of connections, as in the package's own client."""

READ_S = 600.0
CONNECT_S = 5.0
READ_BYTES = 16 * 1024
"""Bytes of an answer to parse at a time: about 80 deltas, which block the event loop for 1 ms."""

DRAIN_S = 0.5
"""How long to wait for the end of the response after an answer, seconds. Only then can the connection be reused."""

MAX_REQUEST_DEPTH = 200
"""Maximum nesting of a request. Tool schemas may be deep."""

TOKEN_LIMITS = ("max_tokens", "max_completion_tokens")
"""Names for the limit of an answer's tokens. OpenAI's newer models reject the first one, other servers the second."""

_OPTIONS = {
    "extra_headers": "headers",
    "extra_query": "params",
    "timeout": "timeout",
}
"""The arguments of `create` that are not fields of the request, and the package's names for them."""


class OpenAIHttpClient(httpx2.AsyncClient):
    """An HTTP client over aiohttp with the timeouts of the package's own client: connect 5 s, read 600 s.

    Attributes:
        thinks_first: Server and name of each model that is known to write only the closing tag of its thinking.
    """

    def __init__(self) -> None:
        self.thinks_first: set[tuple[str, str]] = set()
        super().__init__(
            transport=AiohttpTransport(),
            timeout=httpx2.Timeout(READ_S, connect=CONNECT_S),
            follow_redirects=True,
        )


class AiohttpTransport(httpx2.AsyncBaseTransport):
    """Sends the package's requests with aiohttp, for a quarter of the CPU of the usual transport.

    The package's own aiohttp transport reports every connection closed by the server as a connect timeout.

    It reads the environment's proxies when it is created, like other HTTP clients.
    """

    def __init__(self) -> None:
        self._session: aiohttp.ClientSession | None = None
        self._proxies = getproxies()

    @override
    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        """Send a request and return before the response's body is read. Raises httpx2.TransportError."""
        if self._session is None:
            connector = aiohttp.TCPConnector(limit=CONNECTIONS)
            self._session = aiohttp.ClientSession(connector=connector, auto_decompress=False)
        waits = request.extensions.get("timeout", {})
        body = await request.aread()
        try:
            response = await self._session.request(
                request.method,
                str(request.url),
                headers=[*request.headers.multi_items(), *trace_headers().items()],
                data=BytesIO(body)
                if body
                else None,  # send in pieces: a body of 4 MB would block other tasks
                allow_redirects=False,
                proxy=self._proxy_url(request.url),
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

    def _proxy_url(self, url: httpx2.URL) -> str | None:
        """Return the proxy for a URL. aiohttp's own lookup would also read .netrc, overriding the API key."""
        proxy = self._proxies.get(url.scheme) or self._proxies.get("all")
        return None if proxy is None or proxy_bypass(url.host) else proxy


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
    """AsyncCompletions with a `create` that sends messages and tools unchanged and returns normalized dictionaries.

    The package walks through its arguments to rename fields and read files, neither of which LangChain needs. With the
    agent's tools this takes 6 ms of CPU, a fifth of a turn (measured). The package also creates an object for every
    token, which LangChain converts back to a dictionary.

    Args:
        client: The package's client.
        base_url: The server.
        names_token_limit: The server's name for the limit of an answer's tokens: one of `TOKEN_LIMITS`.
        thinks_first: Server and name of each model that writes only the closing tag of its thinking; this class adds
            entries.

    Attributes:
        server: A short name for the server. Its fields in messages are sent only to this server.
        names_token_limit: The given name, or the other one if the server accepted only that.
    """

    def __init__(
        self,
        client: openai.AsyncOpenAI,
        *,
        base_url: str,
        names_token_limit: str,
        thinks_first: set[tuple[str, str]],
    ) -> None:
        self.server = hashlib.blake2b(base_url.encode(), digest_size=6).hexdigest()
        self._client = client
        self.names_token_limit = names_token_limit
        self._thinks_first = thinks_first

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401 - any other attribute
        return getattr(self._client.chat.completions, name)

    @property
    def with_raw_response(self) -> "_RawCompletions":
        """The same calls, but with the response's headers."""
        return _RawCompletions(self)

    async def create(self, **arguments: Any) -> Any:  # noqa: ANN401 - the package's types
        """Create a completion. Takes the arguments and raises the exceptions of `AsyncCompletions.create`."""
        return (await self.create_raw(**arguments)).parse()

    async def create_raw(self, **arguments: Any) -> "_RawAnswer":  # noqa: ANN401 - the package's types
        """Create a completion and return when its headers have arrived."""
        arguments["messages"] = arrange_messages(arguments["messages"])
        limit = arguments.pop("max_completion_tokens", None)
        if limit is None:
            return await self._send(arguments)
        name = self.names_token_limit
        (other,) = set(TOKEN_LIMITS) - {name}
        try:
            return await self._send({**arguments, name: limit})
        except (openai.BadRequestError, openai.UnprocessableEntityError) as error:
            if name not in str(error):
                raise
            answer = await self._send({**arguments, other: limit})
            self.names_token_limit = other
            return answer

    async def _send(self, arguments: Mapping[str, Any]) -> "_RawAnswer":
        body = {name: value for name, value in arguments.items() if name not in _OPTIONS}
        body |= body.pop("extra_body", None) or {}
        options = openai.RequestOptions(security={"bearer_auth": True})
        for name in _OPTIONS & arguments.keys():
            options[_OPTIONS[name]] = arguments[name]  # type: ignore[literal-required]  # one of these
        is_stream = bool(body.get("stream"))
        try:
            response = await self._post(body, options, is_stream=is_stream)
        except UnicodeEncodeError:  # an old thread may contain half a surrogate pair
            body = {name: clean_json(value, MAX_REQUEST_DEPTH) for name, value in body.items()}
            response = await self._post(body, options, is_stream=is_stream)
        return _RawAnswer(response, self, model=str(body.get("model")), is_stream=is_stream)

    async def _post(
        self, body: Mapping[str, Any], options: openai.RequestOptions, *, is_stream: bool
    ) -> httpx2.Response:
        """Send a request with the package's key, retries and errors. The body of a stream is unread."""
        return await self._client.post(
            "/chat/completions",
            cast_to=httpx2.Response,
            body=body,
            options=options,
            stream=is_stream,
            stream_cls=openai.AsyncStream[Any],
        )  # type: ignore[return-value]  # `cast_to`, also of a stream

    def normalizer(self, model: str) -> AnswerNormalizer:
        """Return the normalizer for a model's next answer."""
        thinks_first = (self.server, model) in self._thinks_first
        return AnswerNormalizer(server=self.server, ends_thinking_alone=thinks_first)

    def learn(self, model: str, answer: AnswerNormalizer) -> None:
        """Record how a model marks its thinking, from a finished answer."""
        if answer.ends_thinking_alone:
            self._thinks_first.add((self.server, model))
        else:
            self._thinks_first.discard((self.server, model))


@dataclass(frozen=True, slots=True)
class _RawCompletions:
    """The interface that LangChain calls for whole answers, and for answers with headers."""

    completions: DirectCompletions

    async def create(self, **arguments: Any) -> "_RawAnswer":  # noqa: ANN401 - the package's types
        return await self.completions.create_raw(**arguments)


class _RawAnswer:
    """An answer whose headers have arrived."""

    def __init__(
        self,
        response: httpx2.Response,
        completions: DirectCompletions,
        *,
        model: str,
        is_stream: bool,
    ) -> None:
        self.http_response = response
        self.headers = response.headers
        self._completions = completions
        self._model = model
        self._is_stream = is_stream

    def parse(self) -> "ChunkStream | dict[str, Any]":
        """Return the stream or the whole answer. Raises openai.APIError if it is an error or not an answer."""
        answer = self._completions.normalizer(self._model)
        response = self.http_response
        learn = partial(self._completions.learn, self._model, answer)
        if self._is_stream:
            return ChunkStream(response, answer, learn)
        with _package_errors(response.request):
            for chunk in read_whole(response.content):
                answer.add(chunk)
            if not answer.has_ended:
                raise NoAnswer("no answer in it")
        chunks = [chunk for chunk in (answer.take(), answer.finish()) if chunk is not None]
        learn()
        return whole_answer(chunks)


class ChunkStream:
    """The chunks of a streamed completion as dictionaries. Deltas that arrive together form one chunk.

    Args:
        response: The response; its body must be unread.
        answer: Normalizes the answer.
        on_end: Called when the answer is finished.
    """

    def __init__(
        self, response: httpx2.Response, answer: AnswerNormalizer, on_end: Callable[[], None]
    ) -> None:
        self._response = response
        self._answer = answer
        self._on_end = on_end
        self._reader = EventReader()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self._response.aclose()

    async def __aiter__(self) -> AsyncIterator[dict[str, Any]]:
        """Yield the chunks. The last one has the finish reason and the usage.

        Raises:
            openai.APIError: The server reported an error, the connection broke, or the answer is incomplete.
        """
        answer, reader = self._answer, self._reader
        with _package_errors(self._response.request):
            body, rest = self._data(), b""
            async for data in body:
                *lines, rest = (rest + data).split(b"\n")
                self._read(lines)
                if (chunk := answer.take()) is not None:
                    yield chunk
                if reader.is_done or answer.is_full:
                    break
            if reader.is_done:
                await _drain(body)
            for last in reader.end(rest):
                answer.add(last)
        if not (answer.has_ended or reader.is_done or answer.is_full):
            raise openai.APIConnectionError(
                message="The answer ended early.", request=self._response.request
            )
        yield answer.finish()
        self._on_end()

    async def _data(self) -> AsyncIterator[bytes]:
        try:
            async for data in self._response.aiter_bytes():
                yield data
        except httpx2.RequestError:
            # Some servers break the connection after the end of the answer.
            if not (self._answer.has_ended or self._reader.is_done):
                raise

    def _read(self, lines: list[bytes]) -> None:
        for chunk in self._reader.read(lines):
            self._answer.add(chunk)


async def _drain(body: AsyncIterator[bytes]) -> None:
    """Read the rest of the response after an answer; most servers send nothing more."""
    with anyio.move_on_after(DRAIN_S):
        async for _ in body:
            pass


@contextmanager
def _package_errors(request: httpx2.Request) -> Iterator[None]:
    """Convert errors of the connection and of the server to the package's errors."""
    try:
        yield
    except httpx2.TimeoutException as error:
        raise openai.APITimeoutError(request=request) from error
    except httpx2.RequestError as error:
        raise openai.APIConnectionError(request=request) from error
    except AnswerFailed as failed:
        said = failed.error
        body = {"message": said.message, "code": said.code, "type": said.kind}
        raise openai.APIError(message=said.message, request=request, body=body) from failed
    except NoAnswer as odd:
        message = f"The server's answer is not a model's answer: {odd}"
        raise openai.APIConnectionError(message=message, request=request) from odd
