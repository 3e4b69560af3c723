"""Selects the limits that apply to a model call. Pure."""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

from agent.config.usage import UsageLimitConfig, UsageLimitsConfig
from agent.usage.owner import UsageOwner
from store.usage import NO_LIMIT, UsageCounter, UsageLimit, UsageScope

NANO = 1_000_000_000
"""Costs are in billionths of a US dollar, because a short call costs less than a millionth."""

_MONTH_CHARS = len("2026-11")


def limits_for(config: UsageLimitsConfig, owner: UsageOwner, day: str) -> list[UsageLimit]:
    """Return the limits of a call on a UTC day (2026-11-28).

    >>> limits = UsageLimitsConfig.model_validate({"service": {"cost_per_month": 2}})
    >>> [(one.counter.period, one.max_nano_usd) for one in limits_for(limits, UsageOwner(), "2026-11-28")]
    [('2026-11', 2000000000)]
    """
    scopes: tuple[tuple[UsageScope, str, UsageLimitConfig], ...] = (
        ("person", owner.person, config.person),
        ("room", owner.room, config.room),
        ("agent", owner.agent, config.agent),
        ("service", "", config.service),
    )
    return [
        UsageLimit(
            counter=UsageCounter(scope=scope, name=name, period=period),
            max_tokens=NO_LIMIT if tokens is None else tokens,
            max_nano_usd=NO_LIMIT if cost is None else round(cost * NANO),
        )
        for scope, name, limit in scopes
        if name or scope == "service"
        for period, tokens, cost in _periods(limit, day)
        if tokens is not None or cost is not None
    ]


def limit_texts(limit: UsageLimit) -> dict[str, str]:
    """Return the amount and the end of a limit as text for people.

    >>> limit_texts(UsageLimit(counter=UsageCounter(scope="service", name="", period="2026-11"), max_tokens=5_000))
    {'amount': '5,000 tokens', 'resets': '2026-12-01 00:00 UTC'}
    """
    is_tokens = limit.max_tokens >= 0
    amount = f"{limit.max_tokens:,} tokens" if is_tokens else f"${limit.max_nano_usd / NANO:,.2f}"
    return {"amount": amount, "resets": f"{resets_at(limit.counter.period):%Y-%m-%d %H:%M} UTC"}


def resets_at(period: str) -> datetime:
    """Return when a period ends.

    >>> resets_at("2026-12").isoformat(), resets_at("2026-11-28").isoformat()
    ('2027-01-01T00:00:00+00:00', '2026-11-29T00:00:00+00:00')
    """
    if len(period) > _MONTH_CHARS:
        return datetime.fromisoformat(period).replace(tzinfo=UTC) + timedelta(days=1)
    year, month = map(int, period.split("-"))
    return datetime(year + month // 12, month % 12 + 1, 1, tzinfo=UTC)


def _periods(limit: UsageLimitConfig, day: str) -> Iterator[tuple[str, int | None, float | None]]:
    yield day, limit.tokens_per_day, limit.cost_per_day
    yield day[:_MONTH_CHARS], limit.tokens_per_month, limit.cost_per_month
