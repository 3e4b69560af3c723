"""Named API tokens. The table has a row for each token until the token is revoked; nothing prunes it."""

import hashlib
import secrets
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Literal

from store.database import Database, Params, Transaction
from store.errors import RowConflict, RowNotFound
from store.rows import from_row

PREFIX = "parley_"
"""Every token begins with this, so that people and secret scanners recognize it."""

TokenScope = Literal["read", "operator", "admin"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ApiToken:
    """A named token.

    Attributes:
        name: Unique.
        digest: SHA-256 of the token, hexadecimal. The token has 256 random bits, so it needs no salt.
        scope: The requests it permits (`gateway/token_scopes.py`).
        created_at: Unix seconds.
        expires_at: Unix seconds; None = never.
    """

    name: str
    digest: str
    scope: TokenScope
    created_at: float
    expires_at: float | None = None


_INSERT = """
INSERT INTO api_token (name, digest, scope, created_at, expires_at)
VALUES (:name, :digest, :scope, :created_at, :expires_at)
"""
_FIND = "SELECT * FROM api_token WHERE name = :name"
_LIST = "SELECT * FROM api_token ORDER BY name"
_DELETE = "DELETE FROM api_token WHERE name = :name"
_ROTATE = "UPDATE api_token SET digest = :digest WHERE name = :name"


class ApiTokenStore:
    """The api_token table.

    Attributes:
        changes: Number of changes made through this object. Cached copies of the table compare it.
        used_at: When this process last accepted a token, Unix seconds, by digest. It is not stored.
    """

    def __init__(self, database: Database, *, now: Callable[[], float] = time.time) -> None:
        self._database = database
        self._now = now
        self.changes = 0
        self.used_at: dict[str, float] = {}

    async def create(self, name: str, scope: TokenScope, *, lifetime_s: float | None = None) -> str:
        """Create a token and return it. It cannot be read again.

        Raises:
            RowConflict: a token with this name exists.
            StoreError: the database cannot be written.
        """
        value, now = _new_token(), self._now()
        token = ApiToken(
            name=name,
            digest=token_digest(value),
            scope=scope,
            created_at=now,
            expires_at=None if lifetime_s is None else now + lifetime_s,
        )

        def work(tx: Transaction) -> None:
            tx.lock("api_token")
            if tx.run(_FIND, {"name": name}):
                raise RowConflict(f"There is a token named {name}.")
            tx.run(_INSERT, asdict(token))

        await self._database.transaction(work)
        self.changes += 1
        return value

    async def rotate(self, name: str) -> str:
        """Replace a token with a new one of the same name and return it. The old one stops working at once.

        Raises:
            RowNotFound: The token does not exist.
            StoreError: the database cannot be written.
        """
        value = _new_token()
        params: Params = {"name": name, "digest": token_digest(value)}

        def work(tx: Transaction) -> None:
            if not tx.run(_FIND, {"name": name}):
                raise _unknown(name)
            tx.run(_ROTATE, params)

        await self._database.transaction(work)
        self.changes += 1
        return value

    async def list_all(self) -> list[ApiToken]:
        """Return all tokens by name, expired ones too. Raises StoreError."""
        return [from_row(ApiToken, row) for row in await self._database.read(_LIST, {})]

    async def revoke(self, name: str) -> None:
        """Delete a token. Raises RowNotFound, StoreError."""

        def work(tx: Transaction) -> None:
            if not tx.run(_FIND, {"name": name}):
                raise _unknown(name)
            tx.run(_DELETE, {"name": name})

        await self._database.transaction(work)
        self.changes += 1


def token_digest(value: str) -> str:
    """Return the hash that is stored for a token."""
    return hashlib.sha256(value.encode("utf-8", "surrogateescape")).hexdigest()


def _new_token() -> str:
    return PREFIX + secrets.token_urlsafe(32)


def _unknown(name: str) -> RowNotFound:
    return RowNotFound(f"There is no token named {name}.")
