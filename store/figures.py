"""Figures of the service over time: messages and how their turns ended, response times, tokens and cost.

They are read from rows that exist for other reasons. Every statement reads one period from an index; only sampled
response times and the reasons for refusals require row lookups.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from store.database import Database, Params, Row

SAMPLE = 100
"""Answered messages to sample in a period, at least (up to twice as many): enough for p95, and takes 2 ms."""

_COUNT = """
SELECT count(*) AS messages, count(*) FILTER (WHERE outcome IS NULL OR outcome = 'waiting') AS answers,
    count(*) FILTER (WHERE outcome = 'failed') AS errors
FROM inbox INDEXED BY inbox_finished
WHERE state IN ('done', 'dead') AND kind = 'chat' AND received_at >= :since AND received_at < :until
"""
_COUNT_UNFINISHED = """
SELECT count(*) AS messages FROM inbox
WHERE state IN ('new', 'running') AND kind = 'chat' AND received_at >= :since AND received_at < :until
"""
_COUNT_REFUSED = """
SELECT count(*) AS refused FROM refused_message
WHERE received_at >= :since AND received_at < :until AND reason <> 'not_addressed'
"""
_COUNT_WAITING = (
    "SELECT count(*) AS waiting FROM inbox WHERE question IS NOT NULL AND outcome = 'waiting'"
)
_FIRST_TEXT, _FIRST_CARD = ":reply:0", ":card:0"
"""Suffixes of outbox keys: of an answer's first text, and of the message that grew into it (`bus.outbound.rows`)."""

_WAITS = """
SELECT inbox.received_at, outbox.updated_at AS answered_at, inbox.signed_at, card.updated_at AS opened_at
FROM inbox INDEXED BY inbox_finished
JOIN outbox ON outbox.key = CAST(inbox.id AS TEXT) || CAST(:first_text AS TEXT) AND outbox.state = 'delivered'
LEFT JOIN outbox AS card ON card.key = CAST(inbox.id AS TEXT) || CAST(:first_card AS TEXT) AND card.state = 'delivered'
WHERE inbox.state IN ('done', 'dead') AND kind = 'chat' AND (outcome IS NULL OR outcome = 'waiting')
    AND received_at >= :since AND received_at < :until AND inbox.id % CAST(:every AS BIGINT) = 0
"""
_USAGE = """
SELECT CAST(coalesce(sum(input_tokens + output_tokens), 0) AS BIGINT) AS tokens,
    CAST(coalesce(sum(cost_nano_usd), 0) AS BIGINT) AS cost_nano_usd
FROM model_usage WHERE started_at >= :since AND started_at < :until
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class PeriodFigures:
    """What happened in a period.

    Attributes:
        messages: Chat messages that were accepted.
        answers: Messages that were answered, including with a question.
        errors: Messages whose turn failed.
        refused: Messages that were not accepted, except those that people wrote to each other.
        signs_s: Seconds until people saw the first sign of a turn, for a sample of answered messages, ascending.
        answers_s: Seconds until the answer was delivered, for the same sample, ascending.
        tokens: Tokens of model calls, in runs that began in the period.
        cost_nano_usd: Cost of these calls, billionths of a US dollar.
    """

    messages: int = 0
    answers: int = 0
    errors: int = 0
    refused: int = 0
    signs_s: tuple[float, ...] = ()
    answers_s: tuple[float, ...] = ()
    tokens: int = 0
    cost_nano_usd: int = 0


class FigureStore:
    """Reads figures from the tables inbox, outbox and model_usage."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def read(self, since: float, until: float) -> PeriodFigures:
        """Return the figures of a period (Unix seconds). Raises StoreError."""
        period: Params = {"since": since, "until": until}
        [counts] = await self._database.read(_COUNT, period)
        [unfinished] = await self._database.read(_COUNT_UNFINISHED, period)
        [refused] = await self._database.read(_COUNT_REFUSED, period)
        [usage] = await self._database.read(_USAGE, period)
        answers = int(counts["answers"])
        sample: Params = {
            **period,
            "every": max(1, answers // SAMPLE),
            "first_text": _FIRST_TEXT,
            "first_card": _FIRST_CARD,
        }
        waits = await self._database.read(_WAITS, sample) if answers else []
        return PeriodFigures(
            messages=int(counts["messages"]) + int(unfinished["messages"]),
            answers=answers,
            errors=int(counts["errors"]),
            refused=int(refused["refused"]),
            signs_s=_waits(waits, "signed_at", "opened_at", "answered_at"),
            answers_s=_waits(waits, "answered_at"),
            tokens=int(usage["tokens"]),
            cost_nano_usd=int(usage["cost_nano_usd"]),
        )

    async def count_waiting(self) -> int:
        """Return how many messages are now waiting for a person's answer or approval. Raises StoreError."""
        [found] = await self._database.read(_COUNT_WAITING)
        return int(found["waiting"])


def _waits(rows: Sequence[Row], *signs: str) -> tuple[float, ...]:
    """Return the seconds from each message to the first of its signs, ascending. Clocks may jump."""
    first = (min(row[sign] for sign in signs if row[sign] is not None) for row in rows)
    return tuple(
        sorted(max(0.0, at - row["received_at"]) for at, row in zip(first, rows, strict=True))
    )
