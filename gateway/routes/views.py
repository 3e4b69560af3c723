"""Converts rows to the REST API's form: conversations, pairings, tokens. Commands also use it."""

from dataclasses import asdict
from datetime import UTC, datetime, timedelta
from typing import Any

from store.api_tokens import ApiToken
from store.conversations import Conversation
from store.pairings import Pairing


def iso_time(seconds: float | None) -> str | None:
    """Return a time (Unix seconds) as ISO 8601 with a time zone.

    >>> iso_time(0.0), iso_time(None)
    ('1970-01-01T00:00:00+00:00', None)
    """
    return None if seconds is None else datetime.fromtimestamp(seconds, UTC).isoformat()


def since_time(since: datetime | timedelta) -> datetime:
    """Return a time, or the time that is a duration before now, in UTC. A time without a zone is in UTC.

    A time outside the years 1 to 9999 becomes the first or the last time that Python can represent.

    >>> since_time(datetime(2026, 1, 1)).isoformat()
    '2026-01-01T00:00:00+00:00'
    >>> since_time(timedelta(days=3_650_000)).year, since_time(timedelta(days=-3_650_000)).year
    (1, 9999)
    """
    now = datetime.now(UTC)
    is_past = since > timedelta() if isinstance(since, timedelta) else since.year < now.year
    try:
        if isinstance(since, timedelta):
            return now - since
        return since.replace(tzinfo=since.tzinfo or UTC).astimezone(UTC)
    except OverflowError:
        return datetime(1, 1, 1, tzinfo=UTC) if is_past else datetime(9999, 12, 31, tzinfo=UTC)


def conversation_view(row: Conversation) -> dict[str, Any]:
    """Return a conversation."""
    return {
        "id": row.id,
        **asdict(row.key),
        "thread_id": row.thread_id,
        "last_seq": row.last_seq,
        "pending": row.pending,
        "taken_over_by": row.taken_over_by,
        "taken_over_at": iso_time(row.taken_over_at),
        "created_at": iso_time(row.created_at),
        "updated_at": iso_time(row.updated_at),
    }


def pairing_view(row: Pairing) -> dict[str, Any]:
    """Return a pairing."""
    return {
        "code": row.code,
        "channel": row.channel,
        "workspace": row.workspace,
        "user_id": row.user_id,
        "user_name": row.user_name,
        "text": row.text,
        "created_at": iso_time(row.created_at),
        "approved_at": iso_time(row.approved_at),
    }


def api_token_view(token: ApiToken, used_at: float | None = None) -> dict[str, Any]:
    """Return a named token, without its hash."""
    return {
        "name": token.name,
        "scope": token.scope,
        "created_at": iso_time(token.created_at),
        "expires_at": iso_time(token.expires_at),
        "last_used_at": iso_time(used_at),
    }
