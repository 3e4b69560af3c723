"""SteeringQueue: messages for active runs, until the agent takes them (`agent.options.take_steering_messages`)."""

from collections.abc import Sequence

from langchain_core.messages import AnyMessage

MAX_PENDING_MESSAGES = 50
"""Maximum number of messages that can wait for one run."""


class SteeringQueue:
    """Steering messages by run."""

    def __init__(self) -> None:
        self._waiting: dict[str, list[AnyMessage]] = {}

    def open(self, run_id: str) -> None:
        """Accept messages for a run from now on."""
        self._waiting.setdefault(run_id, [])

    def offer(self, run_id: str, messages: Sequence[AnyMessage]) -> bool:
        """Add messages for a run, all or none. False = the run is not open, or its queue is full."""
        waiting = self._waiting.get(run_id)
        if waiting is None or len(waiting) + len(messages) > MAX_PENDING_MESSAGES:
            return False
        waiting.extend(messages)
        return True

    def restore(self, run_id: str, messages: Sequence[AnyMessage]) -> None:
        """Put any number of messages before the waiting messages of an open run."""
        self._waiting[run_id][:0] = messages

    def retract(self, run_id: str, messages: Sequence[AnyMessage]) -> None:
        """Remove the messages that were not taken."""
        ids = {message.id for message in messages}
        waiting = self._waiting.get(run_id, [])
        waiting[:] = [message for message in waiting if message.id not in ids]

    def take(self, run_id: str) -> list[AnyMessage]:
        """Remove and return the messages for a run, oldest first."""
        waiting = self._waiting.get(run_id)
        if not waiting:
            return []
        self._waiting[run_id] = []
        return waiting

    def close(self, run_id: str) -> list[AnyMessage]:
        """Accept no more messages for a run, and return the messages that it never took."""
        return self._waiting.pop(run_id, [])
