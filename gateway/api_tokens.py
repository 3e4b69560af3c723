"""Looks up named tokens by hash, in a copy of the table that is at most a few seconds old."""

import time
from collections.abc import Callable
from contextvars import ContextVar

from gateway.table_copy import TableCopy
from store.api_tokens import PREFIX, ApiToken, ApiTokenStore, token_digest

TOKEN_SCOPE: ContextVar[str] = ContextVar("TOKEN_SCOPE", default="")
"""The scope of the current request's named token; "" = the admin token or no token."""


class ApiTokenLookup:
    """Finds the row of a token.

    Args:
        store: The table.
        clock: Monotonic seconds.
        now: Unix seconds.
    """

    def __init__(
        self,
        store: ApiTokenStore,
        *,
        clock: Callable[[], float] = time.monotonic,
        now: Callable[[], float] = time.time,
    ) -> None:
        self._tokens = TableCopy[ApiToken]("API tokens", store, clock=clock)
        self._store = store
        self._now = now

    async def find(self, value: str) -> ApiToken | None:
        """Return the unexpired token with this value. None if the database cannot be read."""
        if not value.startswith(PREFIX):
            return None
        token = await self.find_digest(token_digest(value))
        if token is not None:
            self._store.used_at[token.digest] = self._now()
        return token

    async def has_ended(self, digest: str) -> bool:
        """Return whether a token was revoked or has expired. False if the database cannot be read."""
        return await self.find_digest(digest) is None and self._tokens.is_readable

    async def find_digest(self, digest: str) -> ApiToken | None:
        """Return the unexpired token whose value has this hash. None if the database cannot be read."""
        token = await self._tokens.find(lambda one: one.digest == digest)
        if token is None or (token.expires_at is not None and token.expires_at <= self._now()):
            return None
        return token
