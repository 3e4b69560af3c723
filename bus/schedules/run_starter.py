"""The interfaces to the runtime: it starts the runs of the LangGraph API's schedules, and runs checks."""

from typing import Protocol

from store.schedules import Schedule


class RunStarter(Protocol):
    """Starts the runs of schedules of the LangGraph API."""

    async def start(self, schedule: Schedule, due_at: float) -> tuple[str, str]:
        """Start the run of a due time, once for each time. Return the IDs of the thread and the run.

        Raises:
            StoreError: Not started; try again.
            RunNotStarted: It cannot be started.
        """
        ...

    async def finish(self, schedule_id: str, thread_id: str) -> None:
        """Delete the thread of an ended run, if its schedule says so."""
        ...


class CheckRunner(Protocol):
    """Runs the checks of schedules in the sandboxes of threads."""

    async def run(self, thread_id: str, command: str) -> str:
        """Return the output of a command in a thread's sandbox. Raises CheckFailed."""
        ...


class CheckFailed(Exception):
    """A check could not be run. The message says why."""


class RunNotStarted(Exception):
    """A run cannot be started. The message says why."""
