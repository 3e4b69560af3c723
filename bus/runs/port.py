"""Runs and ThreadFiles: the interfaces through which a conversation reaches an agent, whatever server the agent is on.

`gateway/embedded_runs.py` executes runs in this process; `bus/runs/remote.py` lets a LangGraph Server execute them
(`channels.langgraph_url`). `gateway/embedded_files.py` reads and writes the files of threads in this process;
`bus/runs/remote_files.py` asks another gateway (`channels.gateway_url`). `tests/contracts/test_runs.py` and
`test_thread_files.py` hold both classes of each to the same behavior.
"""

import logging
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, replace
from http import HTTPStatus
from pathlib import Path
from typing import Any, Protocol

from bus.errors import (
    AgentThreadBusy,
    AgentThreadNotFound,
    AgentUnavailable,
    RewindUnsupported,
    RunError,
)
from bus.runs.requests import AgentRunRequest, SteeringMessage
from bus.runs.stream import RunPart, has_message

log = logging.getLogger(__name__)

ACTIVE_STATUSES = ("pending", "running")
"""The statuses of a run that has not ended."""


STARTED_STATUSES = (*ACTIVE_STATUSES, "success")
"""The statuses of a run after which the same message gets no other run."""

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
        position: Its position among the run's events, in the server's format; "" = the server gives none.
        part: Its content.
    """

    position: str
    part: RunPart


class Runs(Protocol):
    """Threads and runs. Every method raises `RunError`, and no other error, if the server fails.

    After a `retryable` `RunError`, the same call may succeed. `AgentThreadNotFound` means that the server does not have
    the thread, and `AgentThreadBusy` means that another run holds it.
    """

    async def create_thread(self, thread_id: str, metadata: Mapping[str, str]) -> None:
        """Create a thread. Does not change an existing one."""

    async def start(self, request: AgentRunRequest) -> str:
        """Start the run of a message after the other runs of its thread. Return its ID.

        If a run of the message is pending, running or successful, return that run instead. After a failed or lost run,
        continue from the thread's last checkpoint if it contains the message or took the answer. Otherwise, the run
        begins with the message, after the message that it replaces (`rewind_point`) has been removed from the thread. A
        run continues even if no one reads its events. Some servers respond only when the run begins.

        Raises:
            RewindUnsupported: The server cannot remove the replaced message from the thread.
        """

    def events(
        self, thread_id: str, run_id: str, after: str = ""
    ) -> AsyncGenerator[StreamedPart, None]:
        """Yield the events of a run until it ends. Close the generator if you stop early.

        Args:
            thread_id: The thread.
            run_id: The run.
            after: The position of the last event read; "" = start with the first event. If the server has dropped
                events, it yields the thread's state instead. Servers without positions start from the beginning.
        """

    async def find_run(
        self, thread_id: str, run_id: str | None, message_id: str
    ) -> tuple[str, str] | None:
        """Return the ID and status of the newest run that answers a message; None if there is none."""

    async def get_status(self, thread_id: str, run_id: str) -> str:
        """Return the status of a run."""

    async def get_state(self, thread_id: str) -> Mapping[str, Any]:
        """Return the current values of a thread as JSON, with its interrupts; empty for a new thread."""

    async def cancel(self, thread_id: str, run_id: str, message_id: str = "") -> bool:
        """Cancel a run. Return whether it was active.

        Args:
            thread_id: The thread.
            run_id: The run; "" = the newest run of the message, whose ID is unknown.
            message_id: The message.
        """

    async def inject(self, thread_id: str, run_id: str, steering: SteeringMessage) -> bool:
        """Inject a message into a run. Return whether the run accepted it; False = it is not accepting messages.

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


async def begin_again(runs: Runs, request: AgentRunRequest) -> str | AgentRunRequest:
    """Return the run that already answers a message, or how to start its run now. See `Runs.start`."""
    text = request.text
    if request.is_again:
        found = await runs.find_run(
            request.thread_id, request.known_run_id or None, request.message_id
        )
        if found is not None and found[1] in STARTED_STATUSES:
            return found[0]
        # An answer to a thread's interrupt is not a message in the thread. The answer's run shows that it arrived.
        has_answer = found is not None and request.answers_question
        if has_answer or has_message(await runs.get_state(request.thread_id), request.message_id):
            text = None  # the run continues from the work already done
    point = request.inbound.rewind_point
    if point is not None and text is not None:
        try:
            await runs.rewind(request.thread_id, point.message_id, *point.earlier_ids)
        except RewindUnsupported:
            if not point.allow_duplicate:
                raise
            log.info("thread %s keeps a message that is answered again", request.thread_id)
    return replace(request, text=text if request.resume is None else None)


async def find_active(runs: Runs, thread_id: str, message_id: str) -> str:
    """Return the run of a message that has not ended; "" if there is none."""
    found = await runs.find_run(thread_id, None, message_id)
    return found[0] if found is not None and found[1] in ACTIVE_STATUSES else ""


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
    """Return an upload in the form of a human message's `additional_kwargs.files`."""
    return {"filename": name, "size": size_bytes, "path": path, "status": "uploaded"}


class ThreadFiles(Protocol):
    """The files of threads. No file is ever completely in memory.

    Every method raises `DeliveryError`. After a `retryable` one, the same call may succeed.
    """

    async def put(self, thread_id: str, name: str, source: Path) -> Mapping[str, Any]:
        """Copy a file to the uploads of a thread under a name. Documents are converted to text.

        Returns the file in the form of a human message's `additional_kwargs.files`.
        """

    def open(self, thread_id: str, path: str) -> AbstractAsyncContextManager[ThreadFile | None]:
        """Open a file of a thread by its virtual path. Return None if it does not exist or may not be read."""
