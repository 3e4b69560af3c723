"""Derives trace IDs from stored messages, and converts W3C trace contexts to and from text."""

import hashlib
from contextvars import ContextVar
from dataclasses import dataclass

from opentelemetry.context import Context
from opentelemetry.sdk.trace.id_generator import RandomIdGenerator
from opentelemetry.trace import (
    NonRecordingSpan,
    Span,
    SpanContext,
    TraceFlags,
    set_span_in_context,
)
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator
from typing_extensions import override

from agent.trace_context import HEADER

_TRACE_BYTES, _SPAN_BYTES = 16, 8
_PROPAGATOR = TraceContextTextMapPropagator()


@dataclass(frozen=True, slots=True)
class RootIds:
    """The IDs of a message's trace and of its root span."""

    trace_id: int
    span_id: int

    @classmethod
    def of_message(cls, installation: str, inbox_id: int) -> "RootIds":
        """Return the IDs of a message, which are always the same, in every process.

        >>> RootIds.of_message("x", 1) == RootIds.of_message("x", 1) != RootIds.of_message("y", 1)
        True
        """
        found = hashlib.blake2b(
            f"{installation}:{inbox_id}".encode(), digest_size=_TRACE_BYTES + _SPAN_BYTES
        ).digest()
        return cls(
            trace_id=int.from_bytes(found[:_TRACE_BYTES]) or 1,
            span_id=int.from_bytes(found[_TRACE_BYTES:]) or 1,
        )

    def context(self, *, is_sampled: bool) -> SpanContext:
        """Return the root span as the parent of spans that are recorded before it."""
        flags = TraceFlags(TraceFlags.SAMPLED if is_sampled else TraceFlags.DEFAULT)
        return SpanContext(self.trace_id, self.span_id, is_remote=True, trace_flags=flags)


FIXED_IDS: ContextVar[RootIds | None] = ContextVar("parley_fixed_ids", default=None)
"""The IDs of the root span about to be created; None = random IDs."""


class FixedIdGenerator(RandomIdGenerator):
    """Generates random IDs unless `FIXED_IDS` is set."""

    @override
    def generate_trace_id(self) -> int:
        fixed = FIXED_IDS.get()
        return fixed.trace_id if fixed else super().generate_trace_id()

    @override
    def generate_span_id(self) -> int:
        fixed = FIXED_IDS.get()
        return fixed.span_id if fixed else super().generate_span_id()


def context_of(traceparent: str) -> Context:
    """Return the context of a W3C `traceparent`; an empty context if it is "" or invalid."""
    return _PROPAGATOR.extract({HEADER: traceparent}, Context())


def parent_context(span: SpanContext) -> Context:
    """Return the context for the children of a span."""
    return set_span_in_context(NonRecordingSpan(span), Context())


def traceparent_of(span: Span | SpanContext) -> str:
    """Return a span as W3C `traceparent`; "" if it is invalid."""
    context = span if isinstance(span, SpanContext) else span.get_span_context()
    if not context.is_valid:
        return ""
    return f"00-{context.trace_id:032x}-{context.span_id:016x}-{context.trace_flags & 3:02x}"
