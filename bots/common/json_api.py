"""HTTP client for a platform's JSON API: pooled connections, rate limit, errors mapped to DeliveryError."""

from collections.abc import Mapping
from typing import Any, Final

import httpx

from bots.common.limits import AccountLimiter, RateLimitExceeded
from bots.common.responses import release_stream
from bus.errors import DeliveryError

_NOT_SENT: Final = (httpx.ConnectError, httpx.ConnectTimeout, httpx.PoolTimeout)


class JsonApi:
    """Calls one platform's API with one bot account.

    Args:
        base_url: Where it is; never part of an error, it may contain a token.
        limiter: Limits of the account.
        headers: Of every call, such as Authorization.
        timeout_s: Deadline of connecting, and of waiting for bytes.
    """

    def __init__(
        self,
        base_url: str,
        limiter: AccountLimiter,
        *,
        headers: Mapping[str, str] | None = None,
        timeout_s: float = 30.0,
    ) -> None:
        self._limiter = limiter
        self._options: dict[str, Any] = {
            "base_url": base_url,
            "headers": headers,
            "timeout": timeout_s,
        }
        self._client: httpx.AsyncClient | None = None

    async def call(
        self,
        method: str,
        path: str,
        body: object = None,
        *,
        chat: str = "",
        share: float | None = None,
    ) -> dict[str, Any]:
        """Make one call and return the JSON object of the response.

        Args:
            method: HTTP method.
            path: Below `base_url`, with query.
            body: Sent as JSON; None = no body.
            chat: The chat that the call is about, for its limits.
            share: For optional calls, as in `AccountLimiter.acquire`.

        Raises:
            RateLimitExceeded: It was answered with 429; with the platform's Retry-After, or one second.
            DeliveryError: It failed otherwise. Retryable for 5xx and network errors; ambiguous if the request may
                have been carried out.
        """
        async with self._limiter.limit(chat, share=share):
            try:
                response = await self._open().request(method, path, json=body)
            except httpx.HTTPError as error:
                name = type(error).__name__
                ambiguous = not isinstance(error, _NOT_SENT)
                raise DeliveryError(
                    f"No answer ({name})", retryable=True, ambiguous=ambiguous
                ) from None
            release_stream(response)
            return _parse(response)

    async def close(self) -> None:
        """Close the connections; the next call opens them again."""
        client, self._client = self._client, None
        if client is not None:
            await client.aclose()

    def _open(self) -> httpx.AsyncClient:
        if self._client is None:
            self._client = httpx.AsyncClient(**self._options)
        return self._client


def _parse(response: httpx.Response) -> dict[str, Any]:
    status = response.status_code
    if status == httpx.codes.TOO_MANY_REQUESTS:
        after = response.headers.get("Retry-After", "")
        delay_s = float(after) if after.replace(".", "", 1).isdecimal() else 1.0
        raise RateLimitExceeded("Asked to wait (HTTP 429)", retry_after_s=delay_s)
    if not response.is_success:
        raise DeliveryError(f"HTTP {status}", retryable=response.is_server_error)
    try:
        value = response.json()
    except ValueError:
        value = None
    if not isinstance(value, dict):
        raise DeliveryError("The response is not a JSON object", retryable=True, ambiguous=True)
    return value
