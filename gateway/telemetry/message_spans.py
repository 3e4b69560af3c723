"""MessageSpans: the spans of a message: intake, wait in the queue, deliveries, and the root span around them."""

from collections.abc import Mapping

from opentelemetry.context import Context
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.sampling import Decision
from opentelemetry.trace import Link, SpanContext, SpanKind, Status, StatusCode
from typing_extensions import override

from bus.conversation.record import TurnStage
from bus.tracing import MessageTracer
from gateway.telemetry.trace_ids import FIXED_IDS, RootIds, parent_context, traceparent_of
from store.inbox import InboxRow
from store.outbox import OutboxRow

SCOPE = "parley"
ROOT_NAME = "message"
_NANO = 1_000_000_000


class MessageSpans(MessageTracer):
    """Records messages as OpenTelemetry spans.

    Args:
        provider: Creates the spans; its ID generator is a `FixedIdGenerator`.
        installation: Identifies this database; part of the trace IDs.
    """

    def __init__(self, provider: TracerProvider, installation: str) -> None:
        self._tracer = provider.get_tracer(SCOPE)
        self._sampler = provider.sampler
        self._installation = installation

    @override
    def record_intake(self, row: InboxRow, *, started_at: float, ended_at: float) -> None:
        self._record("intake", row.id, started_at, ended_at, {"parley.channel": row.key.channel})

    @override
    def record_wait(self, row: InboxRow, *, ended_at: float) -> None:
        self._record("queue", row.id, row.received_at, ended_at, {})

    @override
    def record_end(
        self, row: InboxRow, *, outcome: str, ended_at: float, answered_by: InboxRow | None = None
    ) -> None:
        ids = self._ids(row.id)
        links = [Link(self._root(answered_by.id))] if answered_by is not None else []
        attributes: dict[str, str | int] = {
            "parley.channel": row.key.channel,
            "parley.kind": row.kind,
            "parley.outcome": outcome,
            "parley.conversation": row.conversation_id,
            "parley.starts": row.starts,
        }
        if row.thread_id:
            attributes["gen_ai.conversation.id"] = row.thread_id
        token = FIXED_IDS.set(ids)
        try:
            span = self._tracer.start_span(
                ROOT_NAME,
                Context(),
                SpanKind.CONSUMER,
                attributes,
                links,
                start_time=int(row.received_at * _NANO),
            )
        finally:
            FIXED_IDS.reset(token)
        if outcome == TurnStage.FAILED:
            span.set_status(Status(StatusCode.ERROR))
        span.end(int(max(ended_at, row.received_at) * _NANO))

    @override
    def record_delivery(
        self, row: OutboxRow, *, started_at: float, ended_at: float, error: str = ""
    ) -> None:
        inbox_id, _, what = row.key.partition(":")
        if not inbox_id.isdecimal():
            return  # an indicator, which answers no message
        attributes: dict[str, str | int] = {
            "parley.channel": row.conversation.channel,
            "parley.delivery": what,
            "parley.attempts": row.attempts,
        }
        kind = SpanKind.PRODUCER
        self._record("deliver", int(inbox_id), started_at, ended_at, attributes, kind, error)

    @override
    def traceparent(self, row: InboxRow) -> str:
        return traceparent_of(self._root(row.id))

    def _record(
        self,
        name: str,
        inbox_id: int,
        started_at: float,
        ended_at: float,
        attributes: Mapping[str, str | int],
        kind: SpanKind = SpanKind.INTERNAL,
        error: str = "",
    ) -> None:
        """Record a finished span as a child of a message's root span."""
        parent = parent_context(self._root(inbox_id))
        started = int(started_at * _NANO)
        span = self._tracer.start_span(name, parent, kind, attributes, start_time=started)
        if error:
            span.set_attribute("error.type", error)
            span.set_status(Status(StatusCode.ERROR))
        span.end(max(int(ended_at * _NANO), started))

    def _ids(self, inbox_id: int) -> RootIds:
        return RootIds.of_message(self._installation, inbox_id)

    def _root(self, inbox_id: int) -> SpanContext:
        """Return the root span of a message, recorded or not."""
        ids = self._ids(inbox_id)
        sampled = self._sampler.should_sample(Context(), ids.trace_id, ROOT_NAME, SpanKind.CONSUMER)
        is_sampled = sampled.decision is Decision.RECORD_AND_SAMPLE
        return ids.context(is_sampled=is_sampled)
