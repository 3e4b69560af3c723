"""Runs: the one door from a conversation to an agent, whichever server executes it.

`gateway/embedded_runs.py` executes runs in this process. `bus/runs/remote.py` has a LangGraph Server execute them
(`channels.langgraph_url`). `tests/contracts/test_runs.py` holds both to the same behavior.
"""

from collections.abc import AsyncGenerator, Mapping
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any, Protocol

from bus.errors import AgentThreadBusy, AgentThreadNotFound, AgentUnavailable, RunError
from bus.runs.requests import AgentRunRequest, SteeringMessage
from bus.runs.stream import RunPart

ACTIVE_STATUSES = ("pending", "running")
"""The statuses of a run that has not ended."""


FIND_LIMIT = 20
"""How many of a thread's newest runs are searched for the run of a message."""


def error_of_status(status: int, *, refused: str, unavailable: str) -> RunError:
    """Return what an HTTP status of 400 or more means for a turn; `refused` and `unavailable` are its texts."""
    if status == HTTPStatus.CONFLICT:
        return AgentThreadBusy()
    if status == HTTPStatus.NOT_FOUND:
        return AgentThreadNotFound()
    if status >= HTTPStatus.INTERNAL_SERVER_ERROR or status == HTTPStatus.TOO_MANY_REQUESTS:
        return AgentUnavailable(unavailable)
    return RunError(refused)


@dataclass(frozen=True, slots=True)
class StreamedPart:
    """A part of the stream of a run.

    Attributes:
        position: Where it stands among the events of its run, as the server names that; "" = the server does not.
        part: What it says.
    """

    position: str
    part: RunPart


class Runs(Protocol):
    """Threads and runs. Every method raises `RunError`, and no other error for what the server does.

    A `RunError` that is `retryable` may be followed by the same call. `AgentThreadNotFound` says that the server has no
    such thread; `AgentThreadBusy`, that another run holds it.
    """

    async def create_thread(self, thread_id: str, metadata: Mapping[str, str]) -> None:
        """Create a thread; an existing one is left as it is."""

    async def start(self, request: AgentRunRequest) -> str:
        """Start a run behind those of its thread, and return its id. It goes on if nobody reads its events.

        Some servers answer only when the run begins.
        """

    def events(
        self, thread_id: str, run_id: str, after: str = ""
    ) -> AsyncGenerator[StreamedPart, None]:
        """Yield the events of a run until it ends. Close the generator if you stop early.

        Args:
            thread_id: The thread.
            run_id: The run.
            after: The position of the last event that was read; "" = from the first. Servers that have dropped events
                yield the thread's state instead of them; servers without positions start again.
        """

    async def find_run(
        self, thread_id: str, run_id: str | None, message_id: str
    ) -> tuple[str, str] | None:
        """Return the id and status of the newest run that answers a message; None if there is none."""

    async def get_status(self, thread_id: str, run_id: str) -> str:
        """Return the status of a run."""

    async def get_state(self, thread_id: str) -> Mapping[str, Any]:
        """Return the present values of a thread as JSON, with what it is interrupted by; empty for a new thread."""

    async def cancel(self, thread_id: str, run_id: str) -> None:
        """End a run now; one that has ended is fine."""

    async def inject(self, thread_id: str, run_id: str, steering: SteeringMessage) -> bool:
        """Inject a message into a run; return whether the run accepts it. False = it accepts none now.

        Raises:
            SteeringUnsupported: The server cannot do this.
        """

    async def rewind(self, thread_id: str, message_id: str, *others: str) -> None:
        """Remove a message and everything after it from a thread; do nothing if it is not there.

        Args:
            thread_id: The thread.
            message_id: The id of the message.
            others: Further ids that it may have; the first of them in the thread counts.

        Raises:
            AgentThreadBusy: A run holds the thread.
            RewindUnsupported: The server cannot do this.
        """
