"""The guardrail_decision table: tool calls that a guardrail denied, or that a person rejected or approved."""

from dataclasses import asdict, dataclass
from typing import Literal

from store.database import Database, Params
from store.rows import from_row

MAX_ROWS = 10_000
"""Maximum number of rows to keep. A model that repeats a denied call adds one each time."""

GuardrailOutcome = Literal["denied", "rejected", "approved"]
"""`denied`: by the provider. `rejected`, `approved`: by a person, or, with a code, because the provider failed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GuardrailDecisionRow:
    """A decision; see the comments of the table. Its arguments are not stored: they may hold secrets.

    Attributes:
        id: 0 before it is stored.
        thread_id: None = unknown.
        created_at: Unix seconds.
    """

    id: int = 0
    outcome: GuardrailOutcome
    tool: str
    server: str
    code: str
    policy: str
    reason: str
    is_subagent: bool
    thread_id: str | None
    person: str
    room: str
    created_at: float


# A thread without a row belongs to a program that embeds Parley.
_INSERT = """
INSERT INTO guardrail_decision (
    outcome, tool, server, code, policy, reason, is_subagent, thread_id, person, room, created_at)
VALUES (:outcome, :tool, :server, :code, :policy, :reason, :is_subagent,
    (SELECT thread_id FROM thread WHERE thread_id = :thread_id), :person, :room, :created_at)
"""
_PRUNE = """
DELETE FROM guardrail_decision WHERE id <= (SELECT max(id) FROM guardrail_decision) - CAST(:kept AS BIGINT)
"""
_LIST = """
SELECT * FROM guardrail_decision WHERE id < :before AND (:outcome = '' OR outcome = :outcome)
ORDER BY id DESC LIMIT :limit
"""
_FORGET = {
    "person": "DELETE FROM guardrail_decision WHERE person = :name",
    "room": "DELETE FROM guardrail_decision WHERE room = :name",
}


class GuardrailDecisions:
    """The guardrail_decision table."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def add(self, row: GuardrailDecisionRow) -> None:
        """Store a decision, and delete the oldest beyond `MAX_ROWS`. Raises StoreError."""
        new: Params = {**asdict(row), "is_subagent": int(row.is_subagent)}
        prune: Params = {"kept": MAX_ROWS}
        await self._database.transaction(lambda tx: tx.run_all([(_INSERT, new), (_PRUNE, prune)]))

    async def list_recent(
        self, *, limit: int, before: int, outcome: str = ""
    ) -> list[GuardrailDecisionRow]:
        """Return rows with an ID below `before`, newest first. Raises StoreError."""
        params: Params = {"limit": limit, "before": before, "outcome": outcome}
        rows = await self._database.read(_LIST, params)
        return [
            from_row(GuardrailDecisionRow, {**row, "is_subagent": bool(row["is_subagent"])})
            for row in rows
        ]

    async def forget(self, scope: str) -> None:
        """Delete the decisions about calls in a scope (`person:ID` or `room:ID`). Raises StoreError."""
        kind, _, name = scope.partition(":")
        if kind in _FORGET:
            await self._database.execute(_FORGET[kind], {"name": name})
