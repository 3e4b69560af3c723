"""Pairing: requests for access, and approved people."""

import time
from collections.abc import Callable
from dataclasses import asdict, dataclass

from store.database import Database, Params, Transaction
from store.errors import RowNotFound
from store.rows import from_row


@dataclass(frozen=True, slots=True, kw_only=True)
class Pairing:
    """A request for access. `code` has 8 characters without 0, O, 1, I and expires after one hour."""

    code: str
    channel: str
    workspace: str
    user_id: str
    user_name: str
    chat: str
    created_at: float
    approved_at: float | None


CODE_TTL_S = 3600.0
"""Lifetime of a code, seconds."""

_OPEN_OF_PERSON = """
SELECT * FROM pairing
WHERE channel = :channel AND workspace = :workspace AND user_id = :user_id AND approved_at IS NULL
"""
_DROP_EXPIRED = "DELETE FROM pairing WHERE approved_at IS NULL AND created_at <= :expired"
_COUNT_OPEN = (
    "SELECT count(*) AS open FROM pairing WHERE channel = :channel AND approved_at IS NULL"
)
_INSERT = """
INSERT INTO pairing (code, channel, workspace, user_id, user_name, chat, created_at)
VALUES (:code, :channel, :workspace, :user_id, :user_name, :chat, :created_at)
"""
_APPROVE = """
UPDATE pairing SET approved_at = :now
WHERE code = :code AND approved_at IS NULL AND created_at > :expired
"""
_APPROVED = "SELECT * FROM pairing WHERE code = :code AND approved_at IS NOT NULL"
_REVOKE = """
DELETE FROM pairing WHERE channel = :channel AND user_id = :user_id AND approved_at IS NOT NULL
RETURNING code
"""
_IS_PAIRED = """
SELECT 1 FROM pairing
WHERE channel = :channel AND workspace = :workspace AND user_id = :user_id AND approved_at IS NOT NULL
LIMIT 1
"""
_LISTING = """
SELECT * FROM pairing WHERE approved_at IS NOT NULL OR created_at > :expired
ORDER BY created_at DESC, code
"""


class PairingStore:
    """The pairing table."""

    def __init__(self, database: Database, *, now: Callable[[], float] = time.time) -> None:
        self._database = database
        self._now = now

    async def request(self, new: Pairing, *, max_open: int = 100) -> Pairing | None:
        """Return this person's open request, or store `new`. None if the channel has `max_open` open requests."""

        def work(tx: Transaction) -> Pairing | None:
            tx.lock("pairing")
            tx.run(_DROP_EXPIRED, {"expired": new.created_at - CODE_TTL_S})
            params = asdict(new)
            if earlier := tx.run(_OPEN_OF_PERSON, params):
                return from_row(Pairing, earlier[0])
            if tx.run(_COUNT_OPEN, params)[0]["open"] >= max_open:
                return None
            tx.run(_INSERT, params)
            return new

        return await self._database.transaction(work)

    async def approve(self, code: str, *, now: float) -> Pairing:
        """Approve the person of a code. Raises RowNotFound (unknown or expired).

        Approving a code again returns the same row.
        """
        params: Params = {"code": code.strip().upper(), "now": now, "expired": now - CODE_TTL_S}

        def work(tx: Transaction) -> Pairing:
            tx.run(_APPROVE, params)
            rows = tx.run(_APPROVED, params)
            if not rows:
                raise RowNotFound(
                    "There is no open pairing request with this code. Codes expire after one hour."
                )
            return from_row(Pairing, rows[0])

        return await self._database.transaction(work)

    async def add_approved(self, new: Pairing, *, now: float) -> None:
        """Store a pairing that needs no code, unless the person is approved already."""
        params: Params = {**asdict(new), "now": now, "expired": 0.0}

        def work(tx: Transaction) -> None:
            tx.lock("pairing")
            if not tx.run(_IS_PAIRED, params):
                tx.run(_INSERT, params)
                tx.run(_APPROVE, params)

        await self._database.transaction(work)

    async def revoke(self, channel: str, user_id: str) -> bool:
        """Revoke a person's access. False if they had none."""
        params: Params = {"channel": channel, "user_id": user_id}
        return bool(await self._database.transaction(lambda tx: tx.run(_REVOKE, params)))

    async def is_paired(self, channel: str, workspace: str, user_id: str) -> bool:
        """Return whether this person is approved."""
        params: Params = {"channel": channel, "workspace": workspace, "user_id": user_id}
        return bool(await self._database.read(_IS_PAIRED, params))

    async def list_all(self) -> list[Pairing]:
        """Return open requests and approved people, newest first."""
        rows = await self._database.read(_LISTING, {"expired": self._now() - CODE_TTL_S})
        return [from_row(Pairing, row) for row in rows]
