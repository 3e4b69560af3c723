"""Console sessions: a browser's cookie, or a one-time link that becomes a session when it is opened."""

import secrets
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass

from store.api_tokens import TokenScope
from store.api_tokens import token_digest as hash_secret
from store.database import Database, Params, Transaction
from store.errors import RowNotFound
from store.rows import from_row

PREFIX = "parley_session_"
"""Every session secret begins with this, so that secret scanners recognize it."""

LINK_S = 12 * 3600.0
"""How long a link works, seconds."""

IDLE_S = 7 * 24 * 3600.0
"""A session ends after this time without a rotation, seconds. An open page rotates its session every hour."""

OVERLAP_S = 60.0
"""How long the old secret still works after a rotation, seconds. Other tabs send it until they see the new one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsoleSession:
    """A session, or a link that has not been opened yet. Times are Unix seconds.

    Attributes:
        id: Its public name.
        digest: SHA-256 of its secret, hexadecimal.
        former_digest: SHA-256 of the secret before the last rotation; "" = none.
        csrf: The token that requests that change something must send in addition to the cookie.
        scope: The requests it permits.
        token: The name of the token that opened it; "" = the admin token, or a link.
        token_digest: SHA-256 of that token. The session ends with it.
        address: The client that opened it; "" = a link that has not been opened.
        browser: Its User-Agent.
        rotated_at: When its secret was created.
        expires_at: When it ends unless its secret is rotated first.
    """

    id: str
    digest: str
    former_digest: str = ""
    csrf: str
    scope: TokenScope
    token: str
    token_digest: str
    address: str
    browser: str
    created_at: float
    rotated_at: float
    expires_at: float

    @property
    def is_link(self) -> bool:
        """Whether it is a link that has not been opened yet."""
        return not self.address

    def accepts(self, digest: str, *, now: float) -> bool:
        """Return whether a secret with this digest is valid for it now."""
        if self.expires_at <= now:
            return False
        is_former = digest == self.former_digest and now < self.rotated_at + OVERLAP_S
        return digest == self.digest or is_former


_INSERT = """
INSERT INTO console_session (
    id, digest, former_digest, csrf, scope, token, token_digest, address, browser, created_at, rotated_at, expires_at)
VALUES (
    :id, :digest, :former_digest, :csrf, :scope, :token, :token_digest, :address, :browser, :created_at, :rotated_at,
    :expires_at)
"""
_DROP_EXPIRED = "DELETE FROM console_session WHERE expires_at <= :now"
_TAKE_LINK = "DELETE FROM console_session WHERE id = :id AND address = '' RETURNING id"
_LIST = "SELECT * FROM console_session WHERE expires_at > :now ORDER BY created_at DESC, id"
_DELETE = "DELETE FROM console_session WHERE id = :id RETURNING id"
_ROTATE = """
UPDATE console_session SET former_digest = digest, digest = :digest, rotated_at = :now, expires_at = :expires_at
WHERE id = :id AND digest = :former RETURNING id
"""


class ConsoleSessionStore:
    """The console_session table.

    Attributes:
        changes: Number of changes made through this object. Cached copies of the table compare it.
        now: The wall clock.
    """

    def __init__(self, database: Database, *, now: Callable[[], float] = time.time) -> None:
        self._database = database
        self.now = now
        self.changes = 0

    async def create_link(self, *, token_digest: str, scope: TokenScope = "admin") -> str:
        """Create a link and return its secret, which opens one session. Raises StoreError."""
        value, now = _new_secret(), self.now()
        link = ConsoleSession(
            id=secrets.token_hex(8),
            digest=hash_secret(value),
            csrf=secrets.token_urlsafe(24),
            scope=scope,
            token="",
            token_digest=token_digest,
            address="",
            browser="",
            created_at=now,
            rotated_at=now,
            expires_at=now + LINK_S,
        )
        await self._insert(link)
        return value

    async def open(
        self,
        *,
        scope: TokenScope,
        token: str,
        token_digest: str,
        address: str,
        browser: str,
        link_id: str = "",
    ) -> tuple[ConsoleSession, str]:
        """Create a session; return it with its secret, which cannot be read again.

        `link_id`: the link that opens it. A link works only once.

        Raises:
            RowNotFound: The link has already been opened.
            StoreError: The database cannot be written.
        """
        value, now = _new_secret(), self.now()
        session = ConsoleSession(
            id=secrets.token_hex(8),
            digest=hash_secret(value),
            csrf=secrets.token_urlsafe(24),
            scope=scope,
            token=token,
            token_digest=token_digest,
            address=address or "unknown",
            browser=browser,
            created_at=now,
            rotated_at=now,
            expires_at=now + IDLE_S,
        )
        await self._insert(session, link_id)
        return session, value

    async def rotate(self, session: ConsoleSession) -> str | None:
        """Replace a session's secret and return the new one. None if another request just did so. Raises StoreError."""
        value, now = _new_secret(), self.now()
        params: Params = {
            "id": session.id,
            "digest": hash_secret(value),
            "former": session.digest,
            "now": now,
            "expires_at": now + IDLE_S,
        }
        rotated = await self._database.transaction(lambda tx: tx.run(_ROTATE, params))
        self.changes += 1
        return value if rotated else None

    async def list_all(self) -> list[ConsoleSession]:
        """Return the sessions and unopened links, newest first. Raises StoreError."""
        rows = await self._database.read(_LIST, {"now": self.now()})
        return [from_row(ConsoleSession, row) for row in rows]

    async def revoke(self, session_id: str) -> None:
        """End a session. Raises RowNotFound, StoreError."""
        ended = await self._database.transaction(lambda tx: tx.run(_DELETE, {"id": session_id}))
        self.changes += 1
        if not ended:
            raise RowNotFound("There is no such session.")

    async def _insert(self, session: ConsoleSession, link_id: str = "") -> None:
        def work(tx: Transaction) -> None:
            tx.run(_DROP_EXPIRED, {"now": session.created_at})
            if link_id and not tx.run(_TAKE_LINK, {"id": link_id}):
                raise RowNotFound("This link was used before.")
            tx.run(_INSERT, asdict(session))

        await self._database.transaction(work)
        self.changes += 1


def _new_secret() -> str:
    return PREFIX + secrets.token_urlsafe(32)
