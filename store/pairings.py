"""Pairing: requests for access, and approved people."""

import time
from collections.abc import Callable
from dataclasses import asdict, dataclass

from store.conversations import ConversationKey
from store.database import Database, Params, Transaction
from store.errors import RowNotFound
from store.outbox import NewOutboxRow, insert_outbox_rows
from store.rows import from_row


@dataclass(frozen=True, slots=True, kw_only=True)
class Pairing:
    """A request for access, or an approval.

    Attributes:
        code: 8 characters without 0, O, 1, I. It expires after one hour.
        user_id: A person, or `group:` and the ID of a chat.
        user_name: What the person or group is called; "" = unknown.
        chat, topic: Where the request was made.
        text: The beginning of the message that asked for access; "" once they are approved.
        notice: The encoded message (bus/messages.py) about the approval; "" = none, or already sent.
    """

    code: str
    channel: str
    workspace: str
    user_id: str
    user_name: str
    chat: str
    topic: str = ""
    text: str = ""
    notice: str = ""
    created_at: float
    approved_at: float | None = None
    revoked_at: float | None = None


CODE_TTL_S = 3600.0
"""Lifetime of a code, and of the undo of a revocation, seconds."""

TELL_AFTER_S = 10.0
"""How long an approval can be undone before the person is notified, seconds. The console offers this for 8 seconds."""

_OPEN_OF_PERSON = """
SELECT * FROM pairing
WHERE channel = :channel AND workspace = :workspace AND user_id = :user_id AND approved_at IS NULL
"""
_DROP_EXPIRED = "DELETE FROM pairing WHERE approved_at IS NULL AND created_at <= :expired"
_DROP_OPEN_OF_PERSON = """
DELETE FROM pairing
WHERE channel = :channel AND workspace = :workspace AND user_id = :user_id AND approved_at IS NULL
"""
_COUNT_OPEN = (
    "SELECT count(*) AS open FROM pairing WHERE channel = :channel AND approved_at IS NULL"
)
_COUNT_ALL = (
    "SELECT count(*) AS open FROM pairing WHERE approved_at IS NULL AND created_at > :expired"
)
_INSERT = """
INSERT INTO pairing (code, channel, workspace, user_id, user_name, chat, topic, text, notice, created_at)
VALUES (:code, :channel, :workspace, :user_id, :user_name, :chat, :topic, :text, :notice, :created_at)
"""
_GET = "SELECT * FROM pairing WHERE code = :code"
_APPROVE = """
UPDATE pairing SET approved_at = :now, text = '', notice = '' WHERE code = :code RETURNING *
"""
# A revocation may concern several workspaces.
_RESTORE = """
UPDATE pairing SET revoked_at = NULL
WHERE channel = :channel AND user_id = :user_id AND revoked_at = :revoked_at RETURNING *
"""
_REVOKE = """
UPDATE pairing SET revoked_at = :now
WHERE channel = :channel AND user_id = :user_id AND approved_at IS NOT NULL AND revoked_at IS NULL
RETURNING *
"""
_DROP_NOTICE = "DELETE FROM outbox WHERE key = :key AND state = 'pending' AND attempts = 0"
_PAIRED = """
SELECT * FROM pairing
WHERE channel = :channel AND workspace = :workspace AND user_id = :user_id AND approved_at IS NOT NULL
    AND revoked_at IS NULL
LIMIT 1
"""
_LISTING = """
SELECT * FROM pairing WHERE revoked_at IS NULL AND (approved_at IS NOT NULL OR created_at > :expired)
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
        """Approve the person with this code, and put the message that tells them into the outbox.

        Approving a code again returns the same row, and undoes a revocation of the last hour.

        Raises:
            RowNotFound: The code is unknown or expired.
        """
        name = code.strip().upper()

        def work(tx: Transaction) -> Pairing:
            tx.lock("pairing")
            rows = tx.run(_GET, {"code": name})
            found = from_row(Pairing, rows[0]) if rows else None
            if found is None or _is_expired(found, now):
                raise RowNotFound(
                    "There is no open pairing request with this code. Codes expire after one hour."
                )
            if found.approved_at is None:
                return _approve(tx, found, now=now)
            if found.revoked_at is None:
                return found
            restored = [from_row(Pairing, row) for row in tx.run(_RESTORE, asdict(found))]
            tx.run_all([(_DROP_OPEN_OF_PERSON, asdict(one)) for one in restored])
            return next(one for one in restored if one.code == name)

        return await self._database.transaction(work)

    async def admit(self, new: Pairing, *, now: float) -> Pairing:
        """Approve a person or group without a code: approve their open request, or store `new` if they have none.

        Return the row. Someone who is already approved stays approved.
        """
        params = asdict(new)

        def work(tx: Transaction) -> Pairing:
            tx.lock("pairing")
            if paired := tx.run(_PAIRED, params):
                return from_row(Pairing, paired[0])
            if opened := tx.run(_OPEN_OF_PERSON, params):
                return _approve(tx, from_row(Pairing, opened[0]), now=now)
            tx.run(_INSERT, params)
            return _approve(tx, new, now=now)

        return await self._database.transaction(work)

    async def revoke(self, channel: str, user_id: str) -> bool:
        """Revoke a person's access. False if they had none.

        `approve` with their code undoes it within an hour. A person who has not been notified of the approval yet gets
        no message.
        """
        params: Params = {"channel": channel, "user_id": user_id, "now": self._now()}

        def work(tx: Transaction) -> bool:
            revoked = tx.run(_REVOKE, params)
            tx.run_all([(_DROP_NOTICE, {"key": notice_key(row["code"])}) for row in revoked])
            return bool(revoked)

        return await self._database.transaction(work)

    async def is_paired(self, channel: str, workspace: str, user_id: str) -> bool:
        """Return whether this person is approved."""
        params: Params = {"channel": channel, "workspace": workspace, "user_id": user_id}
        return bool(await self._database.read(_PAIRED, params))

    async def count_open(self) -> int:
        """Return the number of open requests."""
        [row] = await self._database.read(_COUNT_ALL, {"expired": self._now() - CODE_TTL_S})
        return int(row["open"])

    async def list_all(self) -> list[Pairing]:
        """Return open requests and approved people, newest first."""
        rows = await self._database.read(_LISTING, {"expired": self._now() - CODE_TTL_S})
        return [from_row(Pairing, row) for row in rows]


def notice_key(code: str) -> str:
    """Return the outbox key of the message that tells a person about their approval.

    >>> notice_key("ABCD2345")
    'approved:ABCD2345'
    """
    return f"approved:{code}"


def _is_expired(found: Pairing, now: float) -> bool:
    if found.approved_at is None:
        return found.created_at <= now - CODE_TTL_S
    return found.revoked_at is not None and found.revoked_at <= now - CODE_TTL_S


def _approve(tx: Transaction, found: Pairing, *, now: float) -> Pairing:
    """Approve an open request. The notice is in the outbox before anyone can read that the request was approved."""
    if found.notice:
        key = ConversationKey(
            channel=found.channel, workspace=found.workspace, chat=found.chat, topic=found.topic
        )
        notice = NewOutboxRow(
            key=notice_key(found.code),
            conversation=key,
            body=found.notice,
            not_before=now + TELL_AFTER_S,
        )
        insert_outbox_rows(tx, [notice], now=now)
    return from_row(Pairing, tx.run(_APPROVE, {"code": found.code, "now": now})[0])
