"""The trace context of the current task as W3C `traceparent`, sent with requests to models and MCP servers."""

from collections.abc import Mapping
from contextvars import ContextVar

TRACEPARENT: ContextVar[str] = ContextVar("parley_traceparent", default="")
"""The current task's span (`00-{trace id}-{span id}-{flags}`); "" if the task is not traced."""

HEADER = "traceparent"


def trace_headers() -> Mapping[str, str]:
    """Return the trace headers for a request of the current task. Empty if the task is not traced.

    >>> trace_headers()
    {}
    """
    traceparent = TRACEPARENT.get()
    return {HEADER: traceparent} if traceparent else {}
