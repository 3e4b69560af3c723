"""Looks up the sessions of browsers, in a copy of the table that is at most a few seconds old."""

import time
from collections.abc import Callable

from starlette.datastructures import Headers
from starlette.requests import cookie_parser

from gateway.api_tokens import ApiTokenLookup
from gateway.table_copy import TableCopy
from store.api_tokens import token_digest
from store.console_sessions import PREFIX, ConsoleSession, ConsoleSessionStore

CSRF_HEADER = "x-csrf-token"
"""The header that a request with a cookie must send to change something. Pages of other sites cannot read its value."""

ROTATE_AFTER_S = 3600.0
"""Age from which a session's secret is replaced when the page asks for its session, seconds."""


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
        self._sessions = TableCopy[ConsoleSession]("sessions", store, clock=clock)
        self._tokens = tokens
        self._admin_digest = admin_digest
        self._now = now

    async def find(self, secret: str) -> ConsoleSession | None:
        """Return the session or unopened link with this secret. None if the database cannot be read."""
        if not secret.startswith(PREFIX):
            return None
        digest = token_digest(secret)
        found = await self._sessions.find(lambda one: one.accepts(digest, now=self._now()))
        return found if found is not None and await self._is_backed(found) else None

    async def has_ended(self, session_id: str) -> bool:
        """Return whether a session was ended or has expired. False if the database cannot be read."""
        found = await self._sessions.find(lambda one: one.id == session_id)
        lives = found is not None and found.expires_at > self._now()
        if found is not None and lives and await self._is_backed(found):
            return False
        return self._sessions.is_readable

    async def _is_backed(self, session: ConsoleSession) -> bool:
        if session.token_digest == self._admin_digest:
            return True
        return await self._tokens.find_digest(session.token_digest) is not None


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
