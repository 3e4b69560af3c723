"""LocalRun: a run in this process, with its status, events and cancellation."""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from langchain_core.messages import AnyMessage
from langgraph.runtime import RunControl

from agent.langgraph_internals import step_tasks
from agent.lazy_event import LazyEvent
from agent.thread_queue import QueueTicket
from gateway.runtime.event_log import EventLog
from gateway.runtime.lifecycle import CancelAction, RunResult, can_transition, is_final
from gateway.runtime.serialization import dumps
from gateway.runtime.webhooks import webhook_body
from gateway.runtime.write_retry import WriteRetry
from store.run_webhooks import RunWebhook
from store.runs import Run, RunStatus

CANCEL_RETRY_S = 1.0
"""Time between a cancellation and its first repetition, seconds."""

CANCEL_RETRIES = 3
"""How many times a cancellation is repeated. A run that still ignores it is abandoned when Parley stops."""

EVENTS_PER_ATTEMPT = 1_000_000_000
"""Events of a run's second attempt are numbered from here, events of the third from twice this number, and so on,
because a dead process's last number is unknown."""

RUN_BYTES = 2000
"""Size of an ended run without its events: the objects and their attributes."""

_LOST = dumps({"__error__": {"error": "InternalError", "message": "The run was lost."}})


@dataclass(slots=True, eq=False, kw_only=True)
class LocalRun:
    """A run that is pending, running, or recently finished.

    Attributes:
        row: The run's row, with its current status.
        temporary: Whether the thread exists for this run only and has no rows.
        webhook_url: The URL to post its result to. None = the result is not posted.
        restartable: Whether it continues at another node, or after a restart, when this process ends.
        attempt: The number of this attempt, from 1. Each process that executes the run makes another attempt.
        crashes: Number of attempts that ended with their process.
        messages: The messages that were injected into earlier attempts.
        started_at: When it began to wait for its thread, Unix seconds.
        cancel_action: How to cancel it. None = nobody has canceled it.
        values: The thread's values so far. None after the end.
        encoded_values: The values as JSON, if they were sent, so that long threads are not encoded twice.
        is_interrupted: Whether the graph waits for an answer.
        result: See `result`. None = the data of the last `values` event.
        control: Makes the graph end before its next step.
        in_graph: Whether the graph has started. From then on, its own tasks may lose a cancellation.
        unconsumed_ids: Ids of steering messages that the agent never took.
        write_retry: Repeats its writes while the database cannot be written.
        is_handed_over: Whether it continues at another node. If so, it no longer starts or ends here, and clients that
            wait for it are disconnected when this process ends.
        finished: Set when the end is on disk and published.
        stopped: Set when no part of it runs here anymore.
    """

    row: Run
    graph_id: str
    ticket: QueueTicket
    temporary: bool
    webhook_url: str | None = None
    restartable: bool = False
    attempt: int = 1
    crashes: int = 0
    messages: Sequence[AnyMessage] = ()
    started_at: float = 0.0
    log: EventLog = field(default_factory=EventLog)
    values: Any = None
    encoded_values: bytes | None = None
    is_interrupted: bool = False
    _result: bytes | None = _LOST
    cancel_action: CancelAction | None = None
    task: asyncio.Task[Any] | None = None
    control: RunControl = field(default_factory=RunControl)
    in_graph: bool = False
    unconsumed_ids: tuple[str, ...] = ()
    write_retry: WriteRetry = field(init=False)
    is_handed_over: bool = False
    finished: LazyEvent = field(default_factory=LazyEvent)
    stopped: LazyEvent = field(default_factory=LazyEvent)

    def __post_init__(self) -> None:
        self.write_retry = WriteRetry(self.row.run_id)

    @property
    def run_id(self) -> str:
        """The run's ID."""
        return self.row.run_id

    @property
    def thread_id(self) -> str:
        """The ID of its thread."""
        return self.row.thread_id

    @property
    def attempt_id(self) -> tuple[str, int]:
        """The run's ID and attempt, because another node may have events of an earlier attempt."""
        return self.run_id, self.attempt

    @property
    def is_finished(self) -> bool:
        """Whether it has ended."""
        return is_final(self.row.status)

    @property
    def result(self) -> bytes:
        """The result that `join` returns after the end: the values, `{}` without values, or `__error__`. JSON."""
        return self._result or self.log.final_state() or b"{}"

    @property
    def own_result(self) -> bytes | None:
        """The result after the end, if it is not the data of the last `values` event."""
        return self.log.stored()[1]

    @property
    def stored_bytes(self) -> int:
        """Its size in memory, once it has ended."""
        return RUN_BYTES + self.log.bytes

    def transition_to(
        self, status: RunStatus, *, now: float, failure: dict[str, str] | None = None
    ) -> None:
        """Change the status. Raises ValueError for a transition that does not exist."""
        if not can_transition(self.row.status, status):
            raise ValueError(f"A run that is {self.row.status} cannot become {status}.")
        self.row = replace(self.row, status=status, updated_at=now, error=failure)

    def finish(self, outcome: RunResult, *, now: float) -> None:
        """Record the result, and release the data that only a running graph needs.

        Thousands of finished runs are kept. As bytes, they cost the garbage collector nothing.
        """
        failure = outcome.failure.as_dict() if outcome.failure else None
        if failure is None and self._has_encoded(outcome):
            self._result = None
        else:
            values = {} if outcome.values is None else outcome.values
            self._result = dumps({"__error__": failure} if failure else values)
        self.transition_to(outcome.status, now=now, failure=failure)
        self.values = self.encoded_values = None

    def webhook(self, outcome: RunResult, *, now: float) -> RunWebhook | None:
        """Return the webhook of a result. None = nothing to post. Call it before `finish`."""
        if self.webhook_url is None:
            return None
        failure = outcome.failure.as_dict() if outcome.failure else None
        ended = replace(self.row, status=outcome.status, updated_at=now, error=failure)
        values = self.encoded_values if self._has_encoded(outcome) else None
        if values is None:
            values = dumps({} if outcome.values is None else outcome.values)
        body = webhook_body(ended, values, started_at=self.started_at)
        return RunWebhook(run_id=self.run_id, url=self.webhook_url, body=body)

    def _has_encoded(self, outcome: RunResult) -> bool:
        return self.encoded_values is not None and outcome.values is self.values

    def open_log(self, max_bytes: Callable[[], int]) -> None:
        """Begin the event log with the event that contains the attempt's number. `max_bytes`: as in `EventLog`."""
        first = first_event_number(self.attempt)
        self.log = EventLog(state=self.values_json, max_bytes=max_bytes, first=first)
        started = {"run_id": self.run_id, "attempt": self.attempt, "thread_id": self.thread_id}
        self.log.append("metadata", dumps(started))

    def close_log(self) -> None:
        """Add the `end` event, and end the event log.

        The log keeps no reference to this run, so both are freed without garbage collection.
        """
        end: dict[str, Any] = {"run_id": self.run_id, "status": self.row.status}
        if self.unconsumed_ids:
            end["untaken"] = self.unconsumed_ids
        self.log.append("end", dumps(end))
        self.log.close(self._result)

    async def next_attempt(self) -> "LocalRun | None":
        """Return the next attempt, if the log ended without the run's end. None = the run has ended."""
        return None

    def seal(self) -> None:
        """Compress the events of an ended run, and drop its request if the database has it too."""
        if self.own_result is not None:
            self._result = None  # The log contains it.
        self.log.seal()
        if not self.temporary:
            self.row = replace(self.row, kwargs={}, metadata={})

    def values_json(self) -> bytes | None:
        """Return the thread's values so far, as JSON."""
        return self.encoded_values or (None if self.values is None else dumps(self.values))

    def request_cancel(self, action: CancelAction) -> None:
        """Cancel the run's task, and thereby the model's request. Later calls do nothing."""
        if self.cancel_action is not None or self.is_finished:
            return
        self.cancel_action = action
        self.write_retry.give_up()
        if self.task is not None:
            # Not with a cancel scope: a scope cancels repeatedly, and so also the graph's cleanup and the checkpoint of
            # the steps done so far.
            self.task.cancel()
            asyncio.get_running_loop().call_later(
                CANCEL_RETRY_S, self._cancel_again, CANCEL_RETRIES
            )
        self.ticket.ready.set()

    def _cancel_again(self, times: int) -> None:
        """Cancel again: in Python 3.11 a cancellation can get lost (in `asyncio.wait_for`).

        Once the graph runs, the run's own task is not canceled again. It waits for its steps and then writes their
        checkpoint, which must not be interrupted.
        """
        if self.task is None or not times:
            return
        deaf = step_tasks(self.run_id) if self.in_graph else [self.task]
        for task in deaf:
            task.cancel()
        asyncio.get_running_loop().call_later(CANCEL_RETRY_S, self._cancel_again, times - 1)


def first_event_number(attempt: int) -> int:
    """Return the number of an attempt's first event.

    >>> first_event_number(1), first_event_number(2)
    (1, 1000000001)
    """
    return (attempt - 1) * EVENTS_PER_ATTEMPT + 1
