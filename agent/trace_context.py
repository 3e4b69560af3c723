"""The trace context of the current task, as W3C `traceparent`: what requests to models and MCP servers carry."""

from collections.abc import Mapping
from contextvars import ContextVar

TRACEPARENT: ContextVar[str] = ContextVar("parley_traceparent", default="")
"""The span that the current task works in (`00-{trace id}-{span id}-{flags}`); "" if it is not traced."""

HEADER = "traceparent"


def trace_headers() -> Mapping[str, str]:
    """Return the headers of a request that the current task sends; none if it is not traced.

    >>> trace_headers()
    {}
    """
    traceparent = TRACEPARENT.get()
    return {HEADER: traceparent} if traceparent else {}
