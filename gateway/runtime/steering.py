"""SteeringQueue: messages for active runs, until the agent takes them (`agent.options.take_steering_messages`)."""

from collections.abc import Sequence

from langchain_core.messages import AnyMessage

MAX_PENDING_MESSAGES = 50
"""Messages that may wait for one run."""


class SteeringQueue:
    """The messages said to running runs. A run that nobody said anything to takes no memory but its id."""

    def __init__(self) -> None:
        self._waiting: dict[str, list[AnyMessage]] = {}

    def open(self, run_id: str) -> None:
        """From now on messages for a run are kept."""
        self._waiting.setdefault(run_id, [])

    def offer(self, run_id: str, messages: Sequence[AnyMessage]) -> bool:
        """Keep messages for a run, all or none; False = it is not open, or too many wait already."""
        waiting = self._waiting.get(run_id)
        if waiting is None or len(waiting) + len(messages) > MAX_PENDING_MESSAGES:
            return False
        waiting.extend(messages)
        return True

    def take(self, run_id: str) -> list[AnyMessage]:
        """Return what waits for a run, oldest first, and keep it no longer."""
        waiting = self._waiting.get(run_id)
        if not waiting:
            return []
        self._waiting[run_id] = []
        return waiting

    def close(self, run_id: str) -> list[AnyMessage]:
        """Keep nothing more for a run; return what it never took."""
        return self._waiting.pop(run_id, [])
