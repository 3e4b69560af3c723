"""OAuth tokens for MCP servers over HTTP; cached until shortly before they expire."""

import math
from collections.abc import AsyncGenerator, Callable
from dataclasses import dataclass
from typing import Any

import anyio
import httpx
from typing_extensions import override

from agent.errors import McpServerUnusable
from agent.mcp.server_config import McpOAuthConfig

FETCH_S = 15.0
DEFAULT_LIFETIME_S = 3600.0
"""Lifetime of a token if the response does not name one."""
UNAUTHORIZED = 401
RESERVED = frozenset({"grant_type", "client_id", "client_secret", "refresh_token"})
"""Fields that extra parameters cannot replace."""

MakeClient = Callable[[], httpx.AsyncClient]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Token:
    header: str
    expires_at: float


class OAuthTokenSource:
    """Provides the `Authorization` header of one server. Concurrent callers share one token request.

    Args:
        config: The server's OAuth settings.
        make_client: Creates the HTTP client of one request.
        clock: Seconds; tests replace it.
    """

    def __init__(
        self,
        config: McpOAuthConfig,
        make_client: MakeClient,
        clock: Callable[[], float] = anyio.current_time,
    ) -> None:
        self._config = config
        self._make_client = make_client
        self._clock = clock
        self._token: _Token | None = None
        # The server may rotate the refresh token with every response.
        self._refresh_token = config.refresh_token
        self._lock = anyio.Lock()

    async def header(self) -> str:
        """Return `{type} {token}`.

        Raises:
            McpServerUnusable: No token is available; the message contains no secret.
        """
        if (token := self._valid()) is None:
            async with self._lock:
                if (token := self._valid()) is None:
                    token = self._token = await self._fetch()
        return token.header

    def invalidate(self, header: str) -> None:
        """Discard the cached token if it is still this one."""
        if self._token is not None and self._token.header == header:
            self._token = None

    def _valid(self) -> _Token | None:
        token = self._token
        return token if token is not None and self._clock() < token.expires_at else None

    async def _fetch(self) -> _Token:
        form = self._form()
        try:
            with anyio.fail_after(FETCH_S):
                async with self._make_client() as client:
                    answer = await client.post(self._config.token_url, data=form)
        except (httpx.HTTPError, httpx.InvalidURL, TimeoutError) as error:
            raise McpServerUnusable(
                f"the token server cannot be reached ({type(error).__name__})"
            ) from error
        if not answer.is_success:
            raise McpServerUnusable(f"the token server responded with HTTP {answer.status_code}")
        try:
            found = answer.json()
        except ValueError as error:
            raise McpServerUnusable("the token server's response is not JSON") from error
        return self._read(found if isinstance(found, dict) else {})

    def _form(self) -> dict[str, str]:
        config = self._config
        needed = {
            "client_credentials": ("client_id", "client_secret"),
            "refresh_token": ("refresh_token",),
        }[config.grant_type]
        given = {
            "client_id": config.client_id,
            "client_secret": config.client_secret,
            "refresh_token": self._refresh_token,
        }
        lacking = [name for name in needed if not given[name]]
        if lacking:
            raise McpServerUnusable(
                f"oauth: {config.grant_type} needs {' and '.join(lacking)}: set it, or the variable it refers to"
            )
        if config.grant_type == "client_credentials":
            given["refresh_token"] = None
        form = {k: v for k, v in config.extra_token_params.items() if k not in RESERVED}
        form["grant_type"] = config.grant_type
        named = {**given, "scope": config.scope, "audience": config.audience}
        return {**form, **{key: value for key, value in named.items() if value}}

    def _read(self, answer: dict[str, Any]) -> _Token:
        config = self._config
        token = answer.get(config.token_field)
        if not isinstance(token, str) or not token:
            raise McpServerUnusable(f"the token server's response has no {config.token_field!r}")
        rotated = answer.get("refresh_token")
        if isinstance(rotated, str) and rotated:
            self._refresh_token = rotated
        kind = answer.get(config.token_type_field) or config.default_token_type
        # Some token servers return `bearer`, which some resource servers reject.
        kind = "Bearer" if str(kind).lower() == "bearer" else str(kind)
        lifetime = _seconds(answer.get(config.expires_in_field))
        return _Token(
            header=f"{kind} {token}",
            expires_at=self._clock() + lifetime - config.refresh_skew_seconds,
        )


class OAuthTokenAuth(httpx.Auth):
    """Adds the token to every request; after a 401, retries once with a new token."""

    def __init__(self, source: OAuthTokenSource) -> None:
        self._source = source

    @override
    async def async_auth_flow(
        self, request: httpx.Request
    ) -> AsyncGenerator[httpx.Request, httpx.Response]:
        header = await self._source.header()
        request.headers["Authorization"] = header
        answer = yield request
        if answer.status_code == UNAUTHORIZED:
            self._source.invalidate(header)
            request.headers["Authorization"] = await self._source.header()
            yield request


def _seconds(value: object) -> float:
    try:
        seconds = float(value)  # type: ignore[arg-type]
    except (TypeError, ValueError):
        return DEFAULT_LIFETIME_S
    return seconds if math.isfinite(seconds) and seconds > 0 else DEFAULT_LIFETIME_S
