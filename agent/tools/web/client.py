"""HTTP client for the web tools, with time and size limits. Error messages contain no secrets.

Each tool call opens and closes its own connections. Calls are rare, and this way nothing must be closed later.
"""

import json
import logging
import ssl
import zlib
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from typing import Any

import anyio
import anyio.to_thread
import httpx

from agent.errors import WebError
from agent.network.url_guard import UrlGuard, guarded_client, parse_url
from agent.tools.web.keys import WebKeys

log = logging.getLogger(__name__)

AGENT = "Mozilla/5.0 (compatible; Parley/0.1)"
MAX_REDIRECTS = 5
MAX_FILE_BYTES = 30_000_000
"""Largest file to download, bytes. Pages have their own limit, `max_bytes`."""

HTML_TYPES = frozenset({"text/html", "application/xhtml+xml"})
UNKNOWN_TYPES = frozenset({"", "application/octet-stream", "binary/octet-stream"})
TEXT_TYPES = HTML_TYPES | {
    f"application/{name}"
    for name in ("json", "xml", "javascript", "x-ndjson", "yaml", "x-yaml", "toml")
}

_REDIRECTS = frozenset({301, 302, 303, 307, 308})
_STATUS_TEXTS = {
    401: "rejected the key; check `api_key` of this tool in the configuration",
    402: "has no quota left",
    403: "denied access",
    404: "found nothing",
    429: "limits the request rate; wait before you try again",
    432: "has no quota left",
    433: "has no quota left",
    451: "may not show this for legal reasons",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class WebResponse:
    """A response with its body.

    Attributes:
        url: The URL after redirects.
        media_type: Lower case, without parameters; "" if unknown.
        charset: The charset from its header, or None.
        body: Decompressed body. If it exceeded the limit, it is cut and `truncated` is set.
        headers: All headers, by lower-case name.
    """

    url: httpx.URL
    media_type: str
    charset: str | None
    body: bytes
    truncated: bool = False
    headers: Mapping[str, str] = field(default_factory=dict)

    @property
    def is_file(self) -> bool:
        """Whether this is a file to download, neither a page nor text."""
        if self.media_type in UNKNOWN_TYPES:
            return b"\0" in self.body[:8192] or self.body.startswith(b"%PDF-")
        is_text = self.media_type.startswith("text/") or self.media_type in TEXT_TYPES
        return not is_text and not self.media_type.endswith(("+json", "+xml"))

    @property
    def text(self) -> str:
        """Return the body as text. Replaces invalid bytes."""
        try:
            return self.body.decode(self.charset or "utf-8", "replace")
        except LookupError:  # unknown charset
            return self.body.decode("utf-8", "replace")


class WebClient:
    """Sends the requests of one configured tool.

    Args:
        keys: The tool's configuration.
        service: The name of the service, for messages.
        guard: Checks URLs that the model chose.
    """

    def __init__(self, keys: WebKeys, service: str, guard: UrlGuard | None = None) -> None:
        self.keys = keys
        self.guard = guard or UrlGuard(allow_private_hosts=keys.allow_private_hosts)
        self._service = service
        self._tls: ssl.SSLContext | None = None

    def url(self, path: str, public: str) -> str:
        """Return the URL of a path of the service."""
        return f"{(self.keys.base_url or public).rstrip('/')}{path}"

    async def call(
        self,
        method: str,
        url: str,
        *,
        headers: Mapping[str, str] | None = None,
        content: object = None,
        query: Mapping[str, str] | None = None,
    ) -> WebResponse:
        """Call the service at its configured address with `content` as JSON. Does not follow redirects.

        Raises:
            WebError: There is no response, it has an error status, or it exceeds the limit.
        """
        tls = await self._tls_context()
        async with (
            _errors_explained(self._service, self.keys.timeout),
            httpx.AsyncClient(verify=tls, timeout=self.keys.timeout) as client,
            client.stream(
                method, url, headers=self._headers(headers), json=content, params=query
            ) as response,
        ):
            _require_success(response, self._service)
            return await _read(response, self.keys.max_bytes, whole=self._service)

    async def json(
        self,
        method: str,
        url: str,
        *,
        headers: Mapping[str, str] | None = None,
        content: object = None,
        query: Mapping[str, str] | None = None,
    ) -> dict[str, Any]:
        """Call the service and return its JSON object.

        Raises:
            WebError: See `call`. Also raised if the response is not a JSON object.
        """
        answer = await self.call(method, url, headers=headers, content=content, query=query)
        try:
            found = json.loads(answer.body)
        except (ValueError, RecursionError) as error:
            raise WebError(f"{self._service} returned something that is not JSON.") from error
        if not isinstance(found, dict):
            raise WebError(f"{self._service} returned unexpected JSON.")
        return found

    async def fetch(self, url: str) -> WebResponse:
        """Fetch a page or file that the model chose, through the guard. A page over the limit is truncated.

        Raises:
            WebError: The URL is blocked by the guard (also after a redirect) or unreachable, the response has an error
                status, or a file exceeds MAX_FILE_BYTES.
        """
        tls = await self._tls_context()
        target = parse_url(url)
        async with (
            _errors_explained("the page", self.keys.timeout),
            guarded_client(self.guard, tls, timeout_s=self.keys.timeout) as client,
        ):
            for _ in range(MAX_REDIRECTS + 1):
                async with client.stream("GET", target, headers=self._headers(None)) as response:
                    if response.status_code not in _REDIRECTS or "location" not in response.headers:
                        _require_success(response, "The page")
                        return await _read_page_or_file(response, self.keys.max_bytes)
                    target = _next(response)
            raise WebError(f"The page redirects more than {MAX_REDIRECTS} times.")

    def auth_headers(self) -> dict[str, str]:
        """Return the authorization header.

        Raises:
            WebError: There is no key.
        """
        if self.keys.api_key is None:
            raise WebError(
                f"{self._service} needs a key: the operator must set `api_key` of this tool in the configuration."
            )
        return {"Authorization": f"Bearer {self.keys.api_key}"}

    def _headers(self, further: Mapping[str, str] | None) -> dict[str, str]:
        return {"User-Agent": AGENT, "Accept-Encoding": "gzip", **(further or {})}

    async def _tls_context(self) -> ssl.SSLContext:
        if self._tls is None:
            # Not on the event loop: loading certificates takes about 20 ms.
            self._tls = await anyio.to_thread.run_sync(httpx.create_ssl_context)
        return self._tls


@asynccontextmanager
async def _errors_explained(who: str, timeout_s: float) -> AsyncIterator[None]:
    """Limit the time, and convert errors to WebErrors without httpx messages, which may quote URLs."""
    try:
        with anyio.fail_after(timeout_s):
            yield
    except (TimeoutError, httpx.TimeoutException) as error:
        raise WebError(f"No response from {who} within {timeout_s:g} seconds.") from error
    except (httpx.HTTPError, httpx.InvalidURL, OSError, zlib.error) as error:
        log.debug("web request failed: %s", type(error).__name__)
        raise WebError(f"No usable response from {who} ({type(error).__name__}).") from error


def _require_success(response: httpx.Response, who: str) -> None:
    if not response.is_success:
        status = response.status_code
        text = "has an error" if response.is_server_error else "rejected the request"
        raise WebError(f"{who} {_STATUS_TEXTS.get(status, text)} (HTTP {status}).")


def _next(response: httpx.Response) -> httpx.URL:
    try:
        joined = response.url.join(response.headers["location"])
    except (httpx.InvalidURL, ValueError) as error:
        raise WebError("The page redirects to an invalid URL.") from error
    return parse_url(joined)


async def _read_page_or_file(response: httpx.Response, limit: int) -> WebResponse:
    kind = _media_type(response)
    is_page = kind.startswith("text/") or kind in TEXT_TYPES
    answer = await _read(response, limit if is_page else max(limit, MAX_FILE_BYTES))
    if answer.is_file:
        if answer.truncated:
            raise WebError(f"The file is larger than {MAX_FILE_BYTES // 1_000_000} MB.")
        return answer
    is_over = len(answer.body) > limit
    return replace(answer, body=answer.body[:limit], truncated=answer.truncated or is_over)


def _media_type(response: httpx.Response) -> str:
    return str(response.headers.get("content-type", "")).partition(";")[0].strip().lower()


async def _read(response: httpx.Response, limit: int, *, whole: str | None = None) -> WebResponse:
    """Read a body. The limit applies during decompression, which stops decompression bombs.

    Args:
        response: An open stream.
        limit: Decompressed bytes.
        whole: The sender, named in the error if the body is too long; None = truncate the body.

    Raises:
        WebError: The body exceeds the limit, or uses a compression that was not requested.
    """
    body = bytearray()
    unpack = _unpacker(response.headers.get("content-encoding", ""))
    async for chunk in response.aiter_raw():
        body += unpack(chunk, limit + 1 - len(body)) if unpack else chunk
        if len(body) > limit:
            break
    if whole is not None and len(body) > limit:
        raise WebError(f"{whole} returned more than {limit} bytes.")
    return WebResponse(
        url=response.url,
        media_type=_media_type(response),
        charset=response.charset_encoding,
        body=bytes(body[:limit]),
        truncated=len(body) > limit,
        headers=dict(response.headers),
    )


def _unpacker(coding: str) -> Callable[[bytes, int], bytes] | None:
    coding = coding.strip().lower()
    if coding in ("", "identity"):
        return None
    if coding not in ("gzip", "x-gzip", "deflate"):
        raise WebError("The response uses an unsupported compression.")
    return zlib.decompressobj(wbits=47).decompress  # 32 + 15: gzip or zlib, by header
