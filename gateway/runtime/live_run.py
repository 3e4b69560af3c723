"""LiveRun: a run in this process, with its status, events and cancellation."""

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import anyio

from agent.langgraph_internals import node_tasks
from agent.thread_queue import QueueTicket
from gateway.runtime.event_log import EventLog
from gateway.runtime.lifecycle import CancelAction, RunResult, can_transition, is_final
from gateway.runtime.serialization import dumps
from store.runs import Run, RunStatus

CANCEL_RETRY_S = 1.0
"""How long a run that was told to stop is left alone before it is told again, seconds."""

CANCEL_RETRIES = 3
"""How often it is told again. What still goes on then is cut off from the run when Parley stops."""

_LOST = dumps({"__error__": {"error": "InternalError", "message": "The run was lost."}})


@dataclass(slots=True, eq=False, kw_only=True)
class LiveRun:
    """A run that waits, runs, or ended a short while ago.

    Attributes:
        row: The run as it is shown; its status is kept up to date here.
        temporary: Its thread exists for this run alone and has no rows.
        cancel_action: How it is to be stopped, once somebody asked for it.
        values: The thread's values so far; None again after the end.
        encoded_values: The same as JSON where they were sent, so that a long thread is not put into JSON twice.
        result: What `join` answers after the end: the values, `{}` for a stopped run, or `__error__`. JSON.
        in_graph: The graph has begun: from then on it is the graph's own tasks that may overhear a stop.
        unconsumed_ids: Ids of the messages that were said to the run and never looked at by its agent.
        finished: Set when the end is on disk and told.
    """

    row: Run
    graph_id: str
    ticket: QueueTicket
    temporary: bool
    log: EventLog = field(default_factory=EventLog)
    values: Mapping[str, Any] | None = None
    encoded_values: bytes | None = None
    result: bytes = _LOST
    cancel_action: CancelAction | None = None
    task: asyncio.Task[Any] | None = None
    in_graph: bool = False
    unconsumed_ids: tuple[str, ...] = ()
    finished: anyio.Event = field(default_factory=anyio.Event)

    @property
    def run_id(self) -> str:
        """The run's id."""
        return self.row.run_id

    @property
    def thread_id(self) -> str:
        """Its thread's id."""
        return self.row.thread_id

    @property
    def is_finished(self) -> bool:
        """Whether it has ended."""
        return is_final(self.row.status)

    def transition_to(
        self, status: RunStatus, *, now: float, failure: dict[str, str] | None = None
    ) -> None:
        """Change the status. Raises ValueError for a change that a run's life does not have."""
        if not can_transition(self.row.status, status):
            raise ValueError(f"A run that is {self.row.status} cannot become {status}.")
        self.row = replace(self.row, status=status, updated_at=now, error=failure)

    def finish(self, outcome: RunResult, *, now: float) -> None:
        """Take the outcome, and let go of all that only a running graph needs.

        Ended runs are kept by the thousand; as bytes they cost the garbage collector nothing.
        """
        failure = outcome.failure.as_dict() if outcome.failure else None
        if (
            failure is None
            and outcome.values
            and outcome.values is self.values
            and self.encoded_values
        ):
            self.result = self.encoded_values
        else:
            self.result = dumps({"__error__": failure} if failure else outcome.values or {})
        self.transition_to(outcome.status, now=now, failure=failure)
        self.values = self.encoded_values = None

    def values_json(self) -> bytes | None:
        """Return the thread's values so far, as JSON."""
        if self.is_finished:
            return self.result
        return self.encoded_values or (None if self.values is None else dumps(self.values))

    def request_cancel(self, action: CancelAction) -> None:
        """Stop the graph now: its task is cancelled, and with it the model's request. The first call counts."""
        if self.cancel_action is not None or self.is_finished:
            return
        self.cancel_action = action
        if self.task is not None:
            # Not by a cancel scope: a scope would cancel the graph's own cleaning up again and again, and with it
            # the checkpoint of what was done so far.
            self.task.cancel()
            asyncio.get_running_loop().call_later(
                CANCEL_RETRY_S, self._cancel_again, CANCEL_RETRIES
            )
        self.ticket.ready.set()

    def _cancel_again(self, times: int) -> None:
        """Tell those again who did not hear: in Python 3.11 a cancellation can be lost (in `asyncio.wait_for`).

        The run's own task is left alone once the graph runs. It waits for its steps there and then writes the
        checkpoint of what they did, which must not be cut short.
        """
        if self.task is None or not times:
            return
        deaf = node_tasks(self.run_id) if self.in_graph else [self.task]
        for task in deaf:
            task.cancel()
        asyncio.get_running_loop().call_later(CANCEL_RETRY_S, self._cancel_again, times - 1)
