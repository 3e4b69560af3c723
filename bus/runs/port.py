"""Runs and ThreadFiles: the two ways from a conversation to an agent, whichever server it is at.

`gateway/embedded_runs.py` executes runs in this process; `bus/runs/remote.py` has a LangGraph Server execute them
(`channels.langgraph_url`). `gateway/embedded_files.py` reads and writes the files of threads in this process;
`bus/runs/remote_files.py` asks another gateway (`channels.gateway_url`). `tests/contracts/test_runs.py` and
`test_thread_files.py` hold both classes of each to the same behavior.
"""

from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from http import HTTPStatus
from pathlib import Path
from typing import Any, Protocol

from bus.errors import AgentThreadBusy, AgentThreadNotFound, AgentUnavailable, RunError
from bus.runs.requests import AgentRunRequest, SteeringMessage
from bus.runs.stream import RunPart

ACTIVE_STATUSES = ("pending", "running")
"""The statuses of a run that has not ended."""


FIND_LIMIT = 20
"""Maximum number of a thread's newest runs to search for the run of a message."""


def error_of_status(status: int, *, refused: str, unavailable: str) -> RunError:
    """Convert an HTTP status of 400 or more to an error. `refused` and `unavailable` are texts for it."""
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
        position: Its position among the run's events, in the server's own form; "" = the server gives none.
        part: Its content.
    """

    position: str
    part: RunPart


class Runs(Protocol):
    """Threads and runs. Every method raises `RunError`, and no other error, if the server fails.

    After a `retryable` `RunError`, the same call may succeed. `AgentThreadNotFound` means that the server does not have
    the thread, and `AgentThreadBusy` that another run holds it.
    """

    async def create_thread(self, thread_id: str, metadata: Mapping[str, str]) -> None:
        """Create a thread. Does not change an existing one."""

    async def start(self, request: AgentRunRequest) -> str:
        """Start a run after the other runs of its thread. Return its ID. It runs even if no one reads its events.

        Some servers respond only when the run begins.
        """

    def events(
        self, thread_id: str, run_id: str, after: str = ""
    ) -> AsyncGenerator[StreamedPart, None]:
        """Yield the events of a run until it ends. Close the generator if you stop early.

        Args:
            thread_id: The thread.
            run_id: The run.
            after: The position of the last event that was read; "" = from the first event. If the server has dropped
                events, it yields the thread's state instead. Servers without positions start again.
        """

    async def find_run(
        self, thread_id: str, run_id: str | None, message_id: str
    ) -> tuple[str, str] | None:
        """Return the ID and status of the newest run that answers a message; None if there is none."""

    async def get_status(self, thread_id: str, run_id: str) -> str:
        """Return the status of a run."""

    async def get_state(self, thread_id: str) -> Mapping[str, Any]:
        """Return the present values of a thread as JSON, with its interrupts; empty for a new thread."""

    async def cancel(self, thread_id: str, run_id: str) -> None:
        """Cancel a run. Does nothing if it has ended."""

    async def inject(self, thread_id: str, run_id: str, steering: SteeringMessage) -> bool:
        """Inject a message into a run. Return whether the run accepted it; False = it accepts no messages now.

        Raises:
            SteeringUnsupported: The server cannot do this.
        """

    async def rewind(self, thread_id: str, message_id: str, *others: str) -> None:
        """Remove a message and everything after it from a thread. Does nothing if the thread does not contain it.

        Args:
            thread_id: The thread.
            message_id: The message's ID.
            others: Further IDs that it may have. The first one in the thread counts.

        Raises:
            AgentThreadBusy: A run holds the thread.
            RewindUnsupported: The server cannot do this.
        """


@dataclass(frozen=True, slots=True, kw_only=True)
class ThreadFile:
    """A file of a thread, open for reading.

    Attributes:
        mime: Its MIME type.
        chunks: Its bytes; read them once. Raises DeliveryError.
    """

    mime: str
    chunks: AsyncIterator[bytes]


def uploaded_file(name: str, size_bytes: int, path: str) -> Mapping[str, Any]:
    """Return an upload as `additional_kwargs.files` of a human message names it."""
    return {"filename": name, "size": size_bytes, "path": path, "status": "uploaded"}


class ThreadFiles(Protocol):
    """The files of threads. No file is ever in memory as a whole.

    Every method raises `DeliveryError`; one that is `retryable` may be followed by the same call.
    """

    async def put(self, thread_id: str, name: str, source: Path) -> Mapping[str, Any]:
        """Copy a file to the uploads of a thread, under a name; documents are converted to text.

        Returns the file as `additional_kwargs.files` of a human message names it.
        """

    def open(self, thread_id: str, path: str) -> AbstractAsyncContextManager[ThreadFile | None]:
        """Open a file of a thread by its virtual path; None = there is no such file, or it may not be read."""
