"""The wire form of runs and timestamps. Pure."""

from datetime import UTC, datetime
from typing import Any

from store.runs import Run


def run_view(run: Run) -> dict[str, Any]:
    """Return a Run of the wire format."""
    return {
        "run_id": run.run_id,
        "thread_id": run.thread_id,
        "assistant_id": run.assistant_id,
        "metadata": run.metadata,
        "status": run.status,
        "kwargs": run.kwargs,
        "multitask_strategy": run.multitask_strategy,
        "created_at": format_timestamp(run.created_at),
        "updated_at": format_timestamp(run.updated_at),
    }


def format_timestamp(seconds: float) -> str:
    """Return a time in the API's format.

    >>> format_timestamp(0.5)
    '1970-01-01T00:00:00.500000+00:00'
    """
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="microseconds")
