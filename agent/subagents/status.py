"""How a delegation ended, as it is stamped on the tool's message. Pure.

Keys of `ToolMessage.additional_kwargs`, for clients that show delegations and for whoever sums up tokens:

- `subagent_status`: completed, failed, cancelled, timed_out or polling_timed_out
- `subagent_error`: why it did not complete; absent when there is nothing to say
- `subagent_stop_reason`: `turn_capped` when it answered because its turns were used up
- `subagent_token_usage`: what its model calls used, as `usage_metadata` of messages; absent when nothing is known
"""

import re
from collections.abc import Mapping
from typing import Any, Literal, TypeGuard, get_args

from langchain_core.messages import AnyMessage, ToolMessage
from langchain_core.messages.ai import UsageMetadata

TASK = "task"
"""The name of the tool that delegates."""

Status = Literal["completed", "failed", "cancelled", "timed_out", "polling_timed_out"]
STATUSES: tuple[Status, ...] = get_args(Status)

STATUS_KEY = "subagent_status"
ERROR_KEY = "subagent_error"
STOP_REASON_KEY = "subagent_stop_reason"
USAGE_KEY = "subagent_token_usage"

_PREFIXES: tuple[tuple[str, Status], ...] = (
    ("Task Succeeded. Result:", "completed"),
    ("Task polling timed out", "polling_timed_out"),
    ("Task timed out", "timed_out"),
    ("Task cancelled by user", "cancelled"),
    ("Task failed.", "failed"),
    ("Error", "failed"),
)
"""How texts of the tool begin; the first that fits holds."""

_LEADS = re.compile(r"^(?:Task timed out\.|Task failed\.)?\s*(?:Error:)?\s*")


def stamp(status: str, error: str | None = None) -> dict[str, str]:
    """Return the keys that say how a delegation ended.

    Raises:
        ValueError: There is no such status.

    >>> stamp("failed", "  no model ")
    {'subagent_status': 'failed', 'subagent_error': 'no model'}
    >>> stamp("completed", " ")
    {'subagent_status': 'completed'}
    """
    if not _known(status):
        raise ValueError(f"there is no subagent status {status!r}")
    stamps = {STATUS_KEY: str(status)}
    if error and error.strip():
        stamps[ERROR_KEY] = error.strip()
    return stamps


def status_of(text: str) -> Status | None:
    """Read from a text of the tool how the delegation ended; None = not at an end.

    >>> status_of("  Task Succeeded. Result: 42"), status_of("Investigating ...")
    ('completed', None)
    """
    bare = text.strip()
    return next((status for prefix, status in _PREFIXES if bare.startswith(prefix)), None)


def error_of(text: str) -> str | None:
    """Read from a text of the tool why the delegation did not complete.

    >>> error_of("Task failed. Error: no model"), error_of("Task cancelled by user.")
    ('no model', None)
    """
    status = status_of(text)
    if status in (None, "completed", "cancelled"):
        return None
    return _LEADS.sub("", text.strip(), count=1) or None


def stamped(message: ToolMessage) -> ToolMessage:
    """Return a result of the tool with its stamp; one that has a stamp, or needs none, is returned itself."""
    if STATUS_KEY in message.additional_kwargs:
        return message
    status = status_of(message.text)
    if status is None:
        return message
    stamps = stamp(status, error_of(message.text))
    return message.model_copy(update={"additional_kwargs": {**message.additional_kwargs, **stamps}})


def delegated_usage(message: AnyMessage) -> UsageMetadata | None:
    """Return the tokens that a delegation used, from the message that its tool answered with.

    A run's totals are the sum of `usage_metadata` of its AI messages and of this of its tool messages.
    """
    if not isinstance(message, ToolMessage):
        return None
    usage = message.additional_kwargs.get(USAGE_KEY)
    return _usage(usage) if isinstance(usage, Mapping) else None


def _usage(given: Mapping[str, Any]) -> UsageMetadata:
    return UsageMetadata(
        input_tokens=int(given.get("input_tokens") or 0),
        output_tokens=int(given.get("output_tokens") or 0),
        total_tokens=int(given.get("total_tokens") or 0),
    )


def _known(status: str) -> TypeGuard[Status]:
    return status in STATUSES
