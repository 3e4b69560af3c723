"""The current run, for log lines. Set in the run's task and inherited by the tasks it starts."""

from contextvars import ContextVar
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class RunLogContext:
    """The IDs of a run and its thread."""

    thread_id: str
    run_id: str


CURRENT_RUN: ContextVar[RunLogContext | None] = ContextVar("parley_run", default=None)
"""None outside of runs."""
