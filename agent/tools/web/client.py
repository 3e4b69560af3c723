"""HTTP requests of the web tools: bounded in time and size, their failures as texts without secrets.

A client lives as long as one tool call: calls are rare, and so nothing stays open that somebody would have to close.
"""

import json
import logging
import ssl
import zlib
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import anyio
import anyio.to_thread
import httpx

from agent.errors import WebError
from agent.network.url_guard import UrlGuard, guarded_client, parse_url
from agent.tools.web.keys import WebKeys

logger = logging.getLogger(__name__)

AGENT = "Mozilla/5.0 (compatible; Parley/0.1)"
MAX_REDIRECTS = 5

_REDIRECTS = frozenset({301, 302, 303, 307, 308})
_TOLD = {
    401: "refused the key; check `api_key` of this tool in the configuration",
    402: "says that its quota is used up",
    403: "refused access",
    404: "has nothing there",
    429: "is asked too often; wait before the next try",
    432: "says that its quota is used up",
    433: "says that its quota is used up",
    451: "may not show this",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class WebResponse:
    """An answer that was read.

    Attributes:
        url: Where it came from, after redirects.
        media_type: Its media type, lower case, without parameters; empty when none was told.
        charset: As its header says, or None.
        body: Unpacked; cut at the limit where `truncated` is set.
    """

    url: httpx.URL
    media_type: str
    charset: str | None
    body: bytes
    truncated: bool = False

    @property
    def text(self) -> str:
        """Return the body as text; what does not fit the charset is replaced."""
        try:
            return self.body.decode(self.charset or "utf-8", "replace")
        except LookupError:  # a charset that nobody knows
            return self.body.decode("utf-8", "replace")


class WebClient:
    """Sends the requests of one configured tool.

    Args:
        keys: The tool's keys.
        service: The name of the service for people.
        guard: Judges URLs that the model chose.
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
        """Ask the service, whose address the operator chose; `content` is sent as JSON. Redirects are not followed.

        Raises:
            WebError: It did not answer, or not with success, or with too much.
        """
        tls = await self._loaded()
        async with (
            _explained(self._service, self.keys.timeout),
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
        """Ask as `call` does and return the JSON object that is answered.

        Raises:
            WebError: As `call`, or the answer is no JSON object.
        """
        answer = await self.call(method, url, headers=headers, content=content, query=query)
        try:
            found = json.loads(answer.body)
        except (ValueError, RecursionError) as error:
            raise WebError(f"{self._service} answered with something that is not JSON.") from error
        if not isinstance(found, dict):
            raise WebError(f"{self._service} answered with something unexpected.")
        return found

    async def fetch(self, url: str) -> WebResponse:
        """Get a page that the model chose, through the guard; a body beyond the limit is cut.

        Raises:
            WebError: Refused by the guard (also after a redirect), unreachable, or not a success.
        """
        tls = await self._loaded()
        where = parse_url(url)
        async with (
            _explained("the page", self.keys.timeout),
            guarded_client(self.guard, tls, timeout_s=self.keys.timeout) as client,
        ):
            for _ in range(MAX_REDIRECTS + 1):
                async with client.stream("GET", where, headers=self._headers(None)) as response:
                    if response.status_code not in _REDIRECTS or "location" not in response.headers:
                        _require_success(response, "The page")
                        return await _read(response, self.keys.max_bytes)
                    where = _next(response)
            raise WebError(f"The page redirects more than {MAX_REDIRECTS} times.")

    def auth_headers(self) -> dict[str, str]:
        """Return the header with the key.

        Raises:
            WebError: There is none.
        """
        if self.keys.api_key is None:
            raise WebError(
                f"{self._service} needs a key: the operator has to set `api_key` of this tool in the configuration."
            )
        return {"Authorization": f"Bearer {self.keys.api_key}"}

    def _headers(self, further: Mapping[str, str] | None) -> dict[str, str]:
        return {"User-Agent": AGENT, "Accept-Encoding": "gzip", **(further or {})}

    async def _loaded(self) -> ssl.SSLContext:
        if self._tls is None:
            # Some 20 ms for the certificates: off the loop.
            self._tls = await anyio.to_thread.run_sync(httpx.create_ssl_context)
        return self._tls


@asynccontextmanager
async def _explained(who: str, timeout_s: float) -> AsyncIterator[None]:
    """Bound the work in time, and turn what goes wrong into a WebError. Texts of httpx may quote URLs: not shown."""
    try:
        with anyio.fail_after(timeout_s):
            yield
    except (TimeoutError, httpx.TimeoutException) as error:
        raise WebError(f"No answer from {who} within {timeout_s:g} seconds.") from error
    except (httpx.HTTPError, httpx.InvalidURL, OSError, zlib.error) as error:
        logger.debug("a web request failed: %s", type(error).__name__)
        raise WebError(f"No usable answer from {who} ({type(error).__name__}).") from error


def _require_success(response: httpx.Response, who: str) -> None:
    if not response.is_success:
        status = response.status_code
        told = "cannot answer now" if response.is_server_error else "refused the request"
        raise WebError(f"{who} {_TOLD.get(status, told)} (HTTP {status}).")


def _next(response: httpx.Response) -> httpx.URL:
    try:
        joined = response.url.join(response.headers["location"])
    except (httpx.InvalidURL, ValueError) as error:
        raise WebError("The page redirects to something that is not a URL.") from error
    return parse_url(joined)


async def _read(response: httpx.Response, limit: int, *, whole: str | None = None) -> WebResponse:
    """Read a body, unpacking it with the limit in force, so that nothing small unpacks into something huge.

    Args:
        response: An open stream.
        limit: Bytes, unpacked.
        whole: Who is to be blamed when the body is longer; None = it is cut.

    Raises:
        WebError: Longer than the limit, or packed in a way that was not asked for.
    """
    body = bytearray()
    unpack = _unpacker(response.headers.get("content-encoding", ""))
    async for chunk in response.aiter_raw():
        body += unpack(chunk, limit + 1 - len(body)) if unpack else chunk
        if len(body) > limit:
            break
    if whole is not None and len(body) > limit:
        raise WebError(f"{whole} answered with more than {limit} bytes.")
    kind = response.headers.get("content-type", "").partition(";")[0].strip().lower()
    return WebResponse(
        url=response.url,
        media_type=kind,
        charset=response.charset_encoding,
        body=bytes(body[:limit]),
        truncated=len(body) > limit,
    )


def _unpacker(coding: str) -> Callable[[bytes, int], bytes] | None:
    coding = coding.strip().lower()
    if coding in ("", "identity"):
        return None
    if coding not in ("gzip", "x-gzip", "deflate"):
        raise WebError("The answer is packed in a way that was not asked for.")
    return zlib.decompressobj(wbits=47).decompress  # 32 + 15: gzip or zlib, told by the header
