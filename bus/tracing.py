"""MessageTracer: receives the progress of messages from the bus. Does nothing unless the gateway provides a tracer."""

from store.inbox import InboxRow
from store.outbox import OutboxRow


class MessageTracer:
    """Records nothing. Tracers override the methods, which must not raise or wait.

    All spans of a message belong to one trace. The trace ID follows from the inbox row, so it stays the same if another
    process resumes the message. Times are Unix seconds.
    """

    def record_intake(self, row: InboxRow, *, started_at: float, ended_at: float) -> None:
        """Record that a message was accepted."""

    def record_wait(self, row: InboxRow, *, ended_at: float) -> None:
        """Record that the turn of a message begins for the first time."""

    def record_end(
        self, row: InboxRow, *, outcome: str, ended_at: float, answered_by: InboxRow | None = None
    ) -> None:
        """Record that a message is finished.

        Args:
            row: The message.
            outcome: The final stage of its turn, or why it was canceled.
            ended_at: When it ended.
            answered_by: The message whose run took it; None = it had its own turn.
        """

    def record_delivery(
        self, row: OutboxRow, *, started_at: float, ended_at: float, error: str = ""
    ) -> None:
        """Record an attempt to send a message. `error` is the error's class; "" = it was sent."""

    def record_refusals(self) -> None:
        """Record that messages that were not accepted can now be read (`RefusalJournal`)."""

    def record_index(self) -> None:
        """Record that accepted messages were indexed, so that they can be found by the names of people and chats."""

    def record_takeover(self) -> None:
        """Record that a person has taken over a conversation, or handed it back."""

    def traceparent(self, row: InboxRow) -> str:  # noqa: ARG002 - for those that override it
        """Return the W3C trace context for requests on behalf of a message; "" = none."""
        return ""


NO_TRACER = MessageTracer()
"""Records nothing."""
