"""The status of a delegation, stored on its tool message. Pure.

Keys of `ToolMessage.additional_kwargs`, for clients that show delegations or sum up tokens:

- `subagent_status`: completed, failed, cancelled, timed_out or polling_timed_out
- `subagent_error`: why it did not complete; may be absent
- `subagent_stop_reason`: `turn_capped` if it answered because it reached its turn limit
- `subagent_token_usage`: the tokens its model calls used, in the form of `usage_metadata`; may be absent
"""

import re
from typing import Literal, TypeGuard, get_args

from langchain_core.messages import ToolMessage

TASK = "task"
"""The name of the tool that delegates."""

SubagentStatus = Literal["completed", "failed", "cancelled", "timed_out", "polling_timed_out"]
STATUSES: tuple[SubagentStatus, ...] = get_args(SubagentStatus)

STATUS_KEY = "subagent_status"
ERROR_KEY = "subagent_error"
STOP_REASON_KEY = "subagent_stop_reason"

_PREFIXES: tuple[tuple[str, SubagentStatus], ...] = (
    ("Task Succeeded. Result:", "completed"),
    ("Task polling timed out", "polling_timed_out"),
    ("Task timed out", "timed_out"),
    ("Task cancelled by user", "cancelled"),
    ("Task failed.", "failed"),
    ("Error", "failed"),
)
"""The beginnings of the tool's texts, with their statuses. The first match counts."""

_ERROR_PREFIX = re.compile(r"^(?:Task timed out\.|Task failed\.)?\s*(?:Error:)?\s*")


def status_kwargs(status: str, error: str | None = None) -> dict[str, str]:
    """Return the `additional_kwargs` for the end of a delegation.

    Raises:
        ValueError: The status does not exist.

    >>> status_kwargs("failed", "  no model ")
    {'subagent_status': 'failed', 'subagent_error': 'no model'}
    >>> status_kwargs("completed", " ")
    {'subagent_status': 'completed'}
    """
    if not _is_status(status):
        raise ValueError(f"there is no subagent status {status!r}")
    stamps = {STATUS_KEY: str(status)}
    if error and error.strip():
        stamps[ERROR_KEY] = error.strip()
    return stamps


def parse_status(text: str) -> SubagentStatus | None:
    """Parse the status from the tool's text; None = it has not ended.

    >>> parse_status("  Task Succeeded. Result: 42"), parse_status("Investigating ...")
    ('completed', None)
    """
    bare = text.strip()
    return next((status for prefix, status in _PREFIXES if bare.startswith(prefix)), None)


def parse_error(text: str) -> str | None:
    """Parse the reason why the delegation did not complete from the tool's text.

    >>> parse_error("Task failed. Error: no model"), parse_error("Task cancelled by user.")
    ('no model', None)
    """
    status = parse_status(text)
    if status in (None, "completed", "cancelled"):
        return None
    return _ERROR_PREFIX.sub("", text.strip(), count=1) or None


def with_status(message: ToolMessage) -> ToolMessage:
    """Return the tool's message with its status. Returns the same message if it has one or needs none."""
    if STATUS_KEY in message.additional_kwargs:
        return message
    status = parse_status(message.text)
    if status is None:
        return message
    stamps = status_kwargs(status, parse_error(message.text))
    return message.model_copy(update={"additional_kwargs": {**message.additional_kwargs, **stamps}})


def _is_status(status: str) -> TypeGuard[SubagentStatus]:
    return status in STATUSES
