"""Looks up the sessions of browsers, in a copy of the table that is at most a few seconds old."""

import logging
import math
import time
from collections.abc import Callable

import anyio
from starlette.datastructures import Headers
from starlette.requests import cookie_parser

from gateway.api_tokens import MAX_AGE_S, MAX_AGE_UNKNOWN_S, ApiTokenLookup
from store.console_sessions import PREFIX, ConsoleSession, ConsoleSessionStore, secret_digest
from store.errors import StoreError

CSRF_HEADER = "x-csrf-token"
"""What a request with a cookie must send to change something: another page cannot read it."""

ROTATE_AFTER_S = 3600.0
"""Age from which a session's secret is replaced when the page asks for its session, seconds."""

log = logging.getLogger(__name__)


class SessionLookup:
    """Finds the session of a secret, while the token that opened it is valid.

    Args:
        store: The table.
        tokens: The named tokens.
        admin_digest: SHA-256 of the admin token.
        clock: Monotonic seconds.
        now: Unix seconds.
    """

    def __init__(
        self,
        store: ConsoleSessionStore,
        *,
        tokens: ApiTokenLookup,
        admin_digest: str,
        clock: Callable[[], float] = time.monotonic,
        now: Callable[[], float] = time.time,
    ) -> None:
        self._store = store
        self._tokens = tokens
        self._admin_digest = admin_digest
        self._clock = clock
        self._now = now
        self._read_at = -math.inf
        self._changes = 0
        self._is_readable = True
        self._reading = anyio.Lock()
        self._sessions: list[ConsoleSession] = []

    async def find(self, secret: str) -> ConsoleSession | None:
        """Return the session or unopened link with this secret. None if the database cannot be read."""
        if not secret.startswith(PREFIX):
            return None
        digest = secret_digest(secret)
        found = self._match(digest)
        if self._is_outdated(is_known=found is not None):
            async with self._reading:  # Another task may have read the table meanwhile.
                if self._is_outdated(is_known=self._match(digest) is not None):
                    await self._read()
            found = self._match(digest)
        return found if found is not None and await self._is_backed(found) else None

    async def has_ended(self, session_id: str) -> bool:
        """Return whether a session was ended or has expired. False if the database cannot be read."""
        if self._is_outdated(is_known=True):
            async with self._reading:
                if self._is_outdated(is_known=True):
                    await self._read()
        now = self._now()
        lives = [one for one in self._sessions if one.id == session_id and one.expires_at > now]
        return self._is_readable and not (lives and await self._is_backed(lives[0]))

    def _match(self, digest: str) -> ConsoleSession | None:
        now = self._now()
        return next((one for one in self._sessions if one.accepts(digest, now=now)), None)

    async def _is_backed(self, session: ConsoleSession) -> bool:
        if session.token_digest == self._admin_digest:
            return True
        return await self._tokens.find_digest(session.token_digest) is not None

    def _is_outdated(self, *, is_known: bool) -> bool:
        age_s = self._clock() - self._read_at
        max_age_s = MAX_AGE_S if is_known else MAX_AGE_UNKNOWN_S
        return age_s > max_age_s or self._changes != self._store.changes

    async def _read(self) -> None:
        started_at, self._changes = self._clock(), self._store.changes
        try:
            self._sessions = await self._store.list_all()
            self._is_readable = True
        except StoreError as error:
            log.warning("the sessions could not be read: %s", error)
            self._sessions, self._is_readable = [], False
        self._read_at = started_at


def cookie_name(headers: Headers) -> str:
    """Return the name of the session's cookie. Cookies ignore ports, and several services may run on one host.

    >>> cookie_name(Headers({"host": "127.0.0.1:8001"})), cookie_name(Headers({"host": "bot.example"}))
    ('parley_session_8001', 'parley_session')
    """
    port = headers.get("host", "").rpartition(":")[2]
    return f"parley_session_{port}" if port.isascii() and port.isdigit() else "parley_session"


def secret_from_cookie(headers: Headers) -> str:
    """Return the session's secret in a request; "" = none."""
    return cookie_parser(headers.get("cookie", "")).get(cookie_name(headers), "")
