"""Looks up named tokens by hash, in a copy of the table that is at most a few seconds old."""

import logging
import math
import time
from collections.abc import Callable
from contextvars import ContextVar

import anyio

from store.api_tokens import PREFIX, ApiToken, ApiTokenStore, token_digest
from store.errors import StoreError

TOKEN_SCOPE: ContextVar[str] = ContextVar("TOKEN_SCOPE", default="")
"""The scope of the current request's named token; "" = the admin token, or none."""

log = logging.getLogger(__name__)

MAX_AGE_S = 2.0
"""How long a token may still work after another process revoked it, seconds."""

MAX_AGE_UNKNOWN_S = 0.2
"""How long a new token of another process may not work yet, seconds. Limits the reads that wrong tokens cause."""


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
        self._store = store
        self._clock = clock
        self._now = now
        self._read_at = -math.inf
        self._changes = 0
        self._is_readable = True
        self._reading = anyio.Lock()
        self._by_digest: dict[str, ApiToken] = {}

    async def find(self, value: str) -> ApiToken | None:
        """Return the unexpired token with this value. None if the database cannot be read."""
        return await self.find_digest(token_digest(value)) if value.startswith(PREFIX) else None

    async def has_ended(self, digest: str) -> bool:
        """Return whether a token was revoked or has expired. False if the database cannot be read."""
        return await self.find_digest(digest) is None and self._is_readable

    async def find_digest(self, digest: str) -> ApiToken | None:
        """Return the unexpired token whose value has this hash. None if the database cannot be read."""
        if self._is_outdated(digest):
            async with self._reading:  # Another task may have read the table meanwhile.
                if self._is_outdated(digest):
                    await self._read()
        token = self._by_digest.get(digest)
        if token is None or (token.expires_at is not None and token.expires_at <= self._now()):
            return None
        return token

    def _is_outdated(self, digest: str) -> bool:
        age_s = self._clock() - self._read_at
        max_age_s = MAX_AGE_S if digest in self._by_digest else MAX_AGE_UNKNOWN_S
        return age_s > max_age_s or self._changes != self._store.changes

    async def _read(self) -> None:
        started_at, self._changes = self._clock(), self._store.changes
        try:
            tokens = await self._store.list_all()
            self._is_readable = True
        except StoreError as error:
            # The token may have been revoked in the meantime, so drop the old copy.
            log.warning("the API tokens could not be read: %s", error)
            tokens, self._is_readable = [], False
        self._by_digest = {token.digest: token for token in tokens}
        self._read_at = started_at
