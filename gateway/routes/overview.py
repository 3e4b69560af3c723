"""GET /api/findings and /api/figures: the service's problems and how to fix them, and its figures over time."""

import time
from collections.abc import Sequence
from functools import partial
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Query
from pydantic import BaseModel

from agent.usage.limits import NANO
from gateway.dependencies import BusDep, ServicesDep
from gateway.figures import Period, Span, percentile
from gateway.findings import find_findings
from gateway.readiness import find_broken_channels
from gateway.routes.views import iso_time

router = APIRouter()

AGAIN_S = 2.0
"""Minimum age of findings for the checks to run again on request, seconds."""

Severity = Literal["problem", "warning", "note", "ok"]


class Finding(BaseModel):
    """The result of a check. `area` is a part of the service, or a channel; `fix` says what to do; null = nothing."""

    area: str
    subject: str
    severity: Severity
    text: str
    fix: str | None


class FindingList(BaseModel):
    """The results of all checks, problems first, and when they were made. `severity` is the worst one."""

    looked_at: str
    severity: Severity
    findings: list[Finding]


class FiguresView(BaseModel):
    """The figures of a period. Waits are null without answers; they are estimated from samples of at least 100.

    Attributes:
        messages: Accepted chat messages.
        answers: Messages that were answered, a question included.
        errors: Messages whose turn failed.
        refused: Messages that were not accepted, except messages that people wrote to each other.
        sign_p50_s: Seconds until people saw the first sign of an answer.
        answer_p50_s: Seconds until the answer was delivered.
        tokens: Tokens of model calls, cached ones included.
    """

    messages: int
    answers: int
    errors: int
    refused: int
    sign_p50_s: float | None
    sign_p95_s: float | None
    answer_p50_s: float | None
    answer_p95_s: float | None
    tokens: int
    cost_usd: float


class PeriodView(FiguresView):
    """The figures of one period of a chart."""

    since: str


class Waiting(BaseModel):
    """Things that wait for somebody now: undelivered messages, open questions, and requests for approval."""

    pending: int
    failed: int
    uncertain: int
    waiting: int
    people: int


class FiguresList(BaseModel):
    """The figures of a span as a whole and in periods, oldest first; the last period has not ended."""

    span: Span
    looked_at: str
    period_s: float
    total: FiguresView
    periods: list[PeriodView]
    now: Waiting


@router.get("/findings", response_model=FindingList)
async def list_findings(
    services: ServicesDep,
    *,
    again: Annotated[
        bool, Query(description="Run the checks now, and ask the platforms about broken channels")
    ] = False,
) -> dict[str, Any]:
    """List problems and how to fix them. The checks run at most every 30 seconds and cost nothing."""
    rows, looked_at = await services.findings.get(
        partial(find_findings, services, asks_platforms=again),
        fresh_s=AGAIN_S if again else None,
        key=find_broken_channels(
            services, now=time.time()
        ),  # Show a channel that breaks at once, without waiting for the next check.
    )
    worst = rows[0]["severity"] if rows else "ok"
    return {"looked_at": iso_time(looked_at), "severity": worst, "findings": rows}


@router.get("/figures", response_model=FiguresList)
async def get_figures(services: ServicesDep, bus: BusDep, span: Span = "day") -> dict[str, Any]:
    """Return messages, answers, errors, waits, tokens and cost of the last hour, day or week."""
    periods, looked_at = await services.figures.read(span)
    deliveries = await bus.outbox.count_by_state()
    return {
        "span": span,
        "looked_at": iso_time(looked_at),
        "period_s": periods[0].until - periods[0].since,
        "total": _figures(periods),
        "periods": [{"since": iso_time(one.since), **_figures([one])} for one in periods],
        "now": {
            "pending": deliveries.get("pending", 0) + deliveries.get("sending", 0),
            "failed": deliveries.get("failed", 0),
            "uncertain": deliveries.get("uncertain", 0),
            "waiting": await services.figures.count_waiting(),
            "people": await bus.pairings.count_open(),
        },
    }


def _figures(periods: Sequence[Period]) -> dict[str, Any]:
    """Return the figures of some periods together."""
    found = [one.figures for one in periods]
    signs = [(one.signs_s, one.answers) for one in found]
    answers = [(one.answers_s, one.answers) for one in found]
    return {
        "messages": sum(one.messages for one in found),
        "answers": sum(one.answers for one in found),
        "errors": sum(one.errors for one in found),
        "refused": sum(one.refused for one in found),
        "sign_p50_s": percentile(signs, 50),
        "sign_p95_s": percentile(signs, 95),
        "answer_p50_s": percentile(answers, 50),
        "answer_p95_s": percentile(answers, 95),
        "tokens": sum(one.tokens for one in found),
        "cost_usd": sum(one.cost_nano_usd for one in found) / NANO,
    }
