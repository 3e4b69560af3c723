"""Feishu REST client: connection pool, tenant token, error mapping."""

import json
import ssl
import time
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from ipaddress import ip_address
from typing import Any
from urllib.parse import urlsplit

import anyio
import httpx

from bots.feishu.errors import (
    TOKEN_CODES,
    FeishuError,
    FeishuResponse,
    error_from,
    invalid_domain_error,
)
from bots.feishu.timeouts import FeishuTimeouts
from bus.retry import Backoff

_TOKEN_PATH = "/open-apis/auth/v3/tenant_access_token/internal"  # noqa: S105 - a path
_FAILURE_DELAYS = Backoff()

QueryParams = Mapping[str, str | list[str]]
"""Query parameters. A list sends its parameter several times."""

_RENEW_S = 600.0
"""How long before a token expires to renew it, seconds.

The platform issues a new token in the last half hour, during which the old one stays valid.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class FeishuApp:
    """The app and its platform.

    Attributes:
        app_id: `cli_...`.
        app_secret: Never logged.
        domain: https://open.feishu.cn, https://open.larksuite.com, or a local server, without a slash at the end.
        channel: Instance name of the channel.
    """

    app_id: str
    app_secret: str = field(repr=False)
    domain: str
    channel: str = "feishu"

    @property
    def host(self) -> str:
        """The host name of the platform's server; "" if `domain` is not a URL."""
        try:
            parts = urlsplit(self.domain)
        except ValueError:
            return ""
        return parts.netloc if parts.scheme in {"http", "https"} and parts.hostname else ""

    @property
    def local(self) -> bool:
        """Whether the server runs on this machine, which proxies cannot reach."""
        name = urlsplit(self.domain).hostname if self.host else None
        try:
            return ip_address(name or "").is_loopback
        except ValueError:
            return name == "localhost"


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestBody:
    """A request's body, created for each attempt, because a stream can be read only once.

    Attributes:
        open: Returns the bytes, or a stream of them.
        headers: The content type, and the length if the body is a stream.
    """

    open: Callable[[], bytes | AsyncIterator[bytes]]
    headers: Mapping[str, str]


def json_body(value: Mapping[str, object]) -> RequestBody:
    """Return `value` as a JSON body. Lone surrogates, which UTF-8 cannot encode, become `?`."""
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    data = text.encode("utf-8", "replace")
    return RequestBody(
        open=lambda: data, headers={"content-type": "application/json; charset=utf-8"}
    )


class FeishuRestClient:
    """Calls Feishu's API for one app.

    While `shared_pool` is open, calls share its connections. At other times, each call opens its own connection, so
    that a stopping service can still send its last answers.

    Failures without a stated wait (unreachable, HTTP 5xx, unreadable responses) get a `retry_after_s`. It grows with
    every failure of any call until one succeeds, so that callers do not overload a broken platform.

    Attributes:
        divide_limit: As in `AccountLimiter`.
        on_refused: Called when Feishu gives no token because it refuses the app's ID and secret.
    """

    def __init__(
        self, app: FeishuApp, timeouts: FeishuTimeouts, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._app = app
        self._timeouts = timeouts
        self._clock = clock
        self._tls = ssl.create_default_context() if app.domain.startswith("https:") else None
        self._pool: httpx.AsyncClient | None = None
        self._calls = 0
        self._failures = 0
        self._idle = anyio.Event()
        self._token = ""
        self._renew_at = 0.0
        self._token_lock = anyio.Lock()
        self.divide_limit: Callable[[int], int] = lambda limit: limit
        self.on_refused: Callable[[], None] = lambda: None

    @property
    def channel(self) -> str:
        """Instance name of the channel."""
        return self._app.channel

    @property
    def tls(self) -> ssl.SSLContext | None:
        """The TLS settings for other connections to the platform; None = plain HTTP."""
        return self._tls

    @asynccontextmanager
    async def shared_pool(self) -> AsyncIterator[None]:
        """Keep connections open between calls. At the end, wait briefly for calls in progress."""
        if not self._app.host:
            yield
            return
        self._pool = pool = self._client()
        try:
            yield
        finally:
            self._pool = None
            with anyio.CancelScope(shield=True):
                with anyio.move_on_after(self._timeouts.close_s):
                    while self._calls:
                        self._idle = anyio.Event()
                        await self._idle.wait()
                with anyio.move_on_after(self._timeouts.close_s):
                    await pool.aclose()

    async def call(
        self,
        method: str,
        path: str,
        *,
        params: QueryParams | None = None,
        body: RequestBody | None = None,
        limit_s: float | None = None,
    ) -> Mapping[str, Any]:
        """Call the API with the tenant token. Renews it once if it is rejected. Return `data`.

        Raises:
            FeishuError: The call failed. The error says whether and when to retry.
        """
        asked = FeishuRequest(method, path, params or {}, body, limit_s or self._timeouts.call_s)
        return (await self.request(asked)).data

    async def request(self, request: "FeishuRequest") -> FeishuResponse:
        """Like `call`, but return the whole successful response. Raises FeishuError."""
        try:
            answer = await self._request(request)
        except FeishuError as error:
            if error.retryable and error.retry_after_s is None:
                self._failures += 1
                error.retry_after_s = _FAILURE_DELAYS.wait_s(self._failures)
            raise
        self._failures = 0
        return answer

    async def _request(self, request: "FeishuRequest") -> FeishuResponse:
        async with self._connections() as client:
            token = await self._tenant_token(client)
            answer = await self._send(client, request, token)
            if answer.code in TOKEN_CODES:
                self.discard_token(token)
                answer = await self._send(client, request, await self._tenant_token(client))
        if not answer.ok:
            raise error_from(answer)
        return answer

    async def authenticate(self) -> None:
        """Get a tenant token if there is none. This verifies the ID and secret. Raises FeishuError."""
        async with self._connections() as client:
            await self._tenant_token(client)

    async def post_without_token(self, path: str, value: Mapping[str, object]) -> FeishuResponse:
        """POST without a token and return the response, whatever its code.

        Raises:
            FeishuError: There was no response.
        """
        request = FeishuRequest("POST", path, {}, json_body(value), self._timeouts.call_s)
        async with self._connections() as client:
            return await self._send(client, request, "")

    @asynccontextmanager
    async def stream(
        self, path: str, *, silence_s: float
    ) -> AsyncIterator[tuple[str, httpx.Response]]:
        """GET with the tenant token. Yield the token and the response with its unread body, whatever its status.

        Raises:
            FeishuError: There was no response, or no token.
        """
        async with self._connections() as client, AsyncExitStack() as stack:
            token = await self._tenant_token(client)
            headers = {"authorization": f"Bearer {token}"}
            timeout = httpx.Timeout(silence_s, connect=min(5.0, self._timeouts.call_s))
            request = client.stream("GET", path, headers=headers, timeout=timeout)
            try:
                response = await stack.enter_async_context(request)
            except httpx.HTTPError as error:
                failure = error_from(error)
                failure.ambiguous = False  # A GET changes nothing.
                raise failure from error
            yield token, response

    def discard_token(self, token: str) -> None:
        """Drop a rejected token, unless another task has renewed it."""
        if self._token == token:
            self._token = ""

    def _client(self) -> httpx.AsyncClient:
        return httpx.AsyncClient(
            base_url=self._app.domain,
            # Maximum silence, seconds. The whole call has its own time limit.
            timeout=httpx.Timeout(self._timeouts.call_s, connect=min(5.0, self._timeouts.call_s)),
            limits=httpx.Limits(
                max_connections=50, max_keepalive_connections=10, keepalive_expiry=30.0
            ),
            verify=self._tls or False,
            trust_env=not self._app.local,
        )

    @asynccontextmanager
    async def _connections(self) -> AsyncIterator[httpx.AsyncClient]:
        if not self._app.host:
            raise invalid_domain_error()
        self._calls += 1
        try:
            if self._pool is not None:
                yield self._pool
            else:
                async with self._client() as client:
                    yield client
        finally:
            self._calls -= 1
            if not self._calls:
                self._idle.set()

    async def _tenant_token(self, client: httpx.AsyncClient) -> str:
        """Return a token that does not expire soon. If this fails, the actual request was not sent."""
        try:
            with anyio.fail_after(self._timeouts.call_s):
                async with self._token_lock:
                    if not self._token or self._clock() >= self._renew_at:
                        self._store_token(await self._fetch_token(client))
                    return self._token
        except TimeoutError as error:
            raise FeishuError("Feishu did not issue a token in time", retryable=True) from error
        except FeishuError as error:
            error.ambiguous = False
            if error.refused:
                self.on_refused()
            raise

    async def _fetch_token(self, client: httpx.AsyncClient) -> FeishuResponse:
        secrets = {"app_id": self._app.app_id, "app_secret": self._app.app_secret}
        request = FeishuRequest("POST", _TOKEN_PATH, {}, json_body(secrets), self._timeouts.call_s)
        return await self._send(client, request, "")

    def _store_token(self, answer: FeishuResponse) -> None:
        token = answer.data.get("tenant_access_token")
        if not answer.ok or not isinstance(token, str) or not token:
            raise error_from(answer)
        life_s = answer.data.get("expire")
        life_s = float(life_s) if isinstance(life_s, int | float) else 0.0
        self._token = token
        self._renew_at = self._clock() + life_s - min(_RENEW_S, life_s / 4)

    async def _send(
        self, client: httpx.AsyncClient, request: "FeishuRequest", token: str
    ) -> FeishuResponse:
        headers = {"authorization": f"Bearer {token}"} if token else {}
        content = None
        if request.body is not None:
            headers |= request.body.headers
            content = request.body.open()
        try:
            with anyio.fail_after(request.limit_s):
                response = await client.request(
                    request.method,
                    request.path,
                    params=request.params,
                    content=content,
                    headers=headers,
                )
        except (httpx.HTTPError, TimeoutError) as error:
            raise error_from(error) from error
        _release_stream(response)
        return _parse_response(response)


@dataclass(frozen=True, slots=True)
class FeishuRequest:
    """One call. `limit_s` is its time limit."""

    method: str
    path: str
    params: QueryParams = field(default_factory=dict)
    body: RequestBody | None = None
    limit_s: float = 20.0


def _parse_response(response: httpx.Response) -> FeishuResponse:
    try:
        body = response.json()
    except (ValueError, RecursionError):
        body = None
    if not isinstance(body, dict) or not isinstance(body.get("code"), int):
        return FeishuResponse(status=response.status_code, code=None, headers=response.headers)
    data = body.get("data")
    return FeishuResponse(
        status=response.status_code,
        code=body["code"],
        msg=str(body.get("msg") or ""),
        headers=response.headers,
        # Responses of the token and bot endpoints have no `data`. Their fields are next to `code`.
        data=data if isinstance(data, dict) else body,
    )


def _release_stream(response: httpx.Response) -> None:
    """Separate a response from its stream after it was read.

    The two refer to each other. If they stayed connected, both would remain in memory, with the request and the
    connection's objects, until a full garbage collection.
    """
    response.stream = httpx.ByteStream(b"")
