"""The refused_message table: messages that were not accepted, and why."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass

from store.database import Database, Params, Row
from store.rows import from_row

MAX_ROWS = 100_000
"""Maximum number of rows to keep. Busy groups have many messages that are not for the bot."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RefusedRow:
    """A message that was not accepted; see the comments of the table.

    Attributes:
        id: 0 before it is stored.
        body: The encoded message (bus/messages.py) without its text, if it can be answered later; "" otherwise.
        received_at: Unix seconds.
    """

    id: int = 0
    channel: str
    workspace: str
    chat: str
    topic: str
    is_private: bool
    place: str
    user_id: str
    user_name: str
    text: str
    origin: str = ""
    reason: str
    received_at: float
    body: str = ""


_INSERT = """
INSERT INTO refused_message (
    channel, workspace, chat, topic, is_private, place, user_id, user_name, text, origin, reason, received_at, body)
VALUES (:channel, :workspace, :chat, :topic, :is_private, :place, :user_id, :user_name, :text, :origin, :reason,
    :received_at, :body)
"""
_PRUNE = """
DELETE FROM refused_message WHERE id <= (SELECT max(id) FROM refused_message) - CAST(:kept AS BIGINT)
"""
_COUNT = """
SELECT reason, count(*) AS rows FROM refused_message WHERE channel = :channel GROUP BY reason
"""
_DELETE = "DELETE FROM refused_message WHERE id = :id"
_GET = "SELECT * FROM refused_message WHERE id = :id"
_FILTERS = {
    "channel": "channel = :channel",
    "workspace": "workspace = :workspace",
    "chat": "chat = :chat",
    "person": "user_id = :person",
    "reason": "reason = :reason",
}


class RefusedMessages:
    """The refused_message table."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def add(self, rows: Sequence[RefusedRow]) -> None:
        """Store rows, and delete the oldest beyond `MAX_ROWS`. Raises StoreError."""
        new = [(_INSERT, {**asdict(row), "is_private": int(row.is_private)}) for row in rows]
        prune = (_PRUNE, {"kept": MAX_ROWS})
        await self._database.transaction(lambda tx: tx.run_all([*new, prune]))

    async def delete(self, row_id: int) -> None:
        """Delete a row, because its message was accepted after all. Raises StoreError."""
        await self._database.transaction(lambda tx: tx.run(_DELETE, {"id": row_id}))

    async def get(self, row_id: int) -> RefusedRow | None:
        """Return a row. Raises StoreError."""
        rows = await self._database.read(_GET, {"id": row_id})
        return _refused(rows[0]) if rows else None

    async def list_recent(
        self,
        *,
        limit: int,
        before: int,
        text: str = "",
        with_not_addressed: bool = True,
        topic: str | None = None,
        since: float | None = None,
        until: float | None = None,
        **filters: str,
    ) -> list[RefusedRow]:
        """Return rows with an ID below `before`, newest first.

        Args:
            limit: Maximum number.
            before: Only rows with an ID below it.
            text: A part of the text or of a name, ignoring case; "" = any.
            with_not_addressed: Whether to include messages that people wrote to each other.
            topic: The topic; "" = outside of topics, None = any.
            since: Received at this time or later, Unix seconds; None = at any time.
            until: Received at this time or earlier, Unix seconds; None = at any time.
            filters: `channel`, `workspace`, `chat`, `person` (a user's ID) or `reason`; "" = any.
        """
        params: dict[str, str | int | float] = {"limit": limit, "before": before}
        conditions = ["id < :before"]
        if not with_not_addressed:
            conditions.append("reason <> 'not_addressed'")  # as in refused_message_shown
        for column, compared, bound in (
            ("topic", "=", topic),
            ("received_at", ">=", since),
            ("received_at", "<=", until),
        ):
            if bound is not None:
                name = f"bound{len(params)}"
                conditions.append(f"{column} {compared} :{name}")
                params[name] = bound
        for name, value in filters.items():
            if value:
                conditions.append(_FILTERS[name])
                params[name] = value
        if text:
            conditions.append("lower(text || ' ' || user_name || ' ' || place) LIKE :text")
            params["text"] = f"%{text.lower()}%"
        statement = f"""
        SELECT * FROM refused_message WHERE {" AND ".join(conditions)} ORDER BY id DESC LIMIT :limit
        """  # noqa: S608 - literals of this module only
        found: Params = params
        return [_refused(row) for row in await self._database.read(statement, found)]

    async def count_by_reason(self, channel: str) -> dict[str, int]:
        """Return the number of kept messages of a channel by reason. Raises StoreError."""
        rows = await self._database.read(_COUNT, {"channel": channel})
        return {str(row["reason"]): int(row["rows"]) for row in rows}


def _refused(row: Row) -> RefusedRow:
    return from_row(RefusedRow, {**row, "is_private": bool(row["is_private"])})
