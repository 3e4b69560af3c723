"""What is done once Slack was answered: it must not delay an acknowledgement, and nothing depends on it."""

import logging
from collections.abc import Awaitable, Callable

import anyio
from anyio.abc import TaskGroup

from bots.slack.errors import SlackError

_log = logging.getLogger(__name__)

MAX_ERRANDS = 100
"""At work at once; of more, the newest are left undone."""

Errand = Callable[[], Awaitable[object]]


class Errands:
    """Runs errands while the adapter runs; each fails alone, with a line in the log.

    Args:
        limit_s: How long one may take.
    """

    def __init__(self, limit_s: float) -> None:
        self._limit_s = limit_s
        self._tasks: TaskGroup | None = None
        self._at_work = 0

    async def run(self, work: Callable[[], Awaitable[None]]) -> None:
        """Do `work`; as long as it goes on, errands are run beside it."""
        async with anyio.create_task_group() as tasks:
            self._tasks = tasks
            try:
                await work()
            finally:
                self._tasks = None
                tasks.cancel_scope.cancel()

    def start(self, what: str, errand: Errand) -> None:
        """Run an errand; returns at once."""
        if self._tasks is None or self._at_work >= MAX_ERRANDS:
            _log.info("slack: %s is left undone", what)
            return
        self._at_work += 1
        self._tasks.start_soon(self._run, what, errand)

    async def _run(self, what: str, errand: Errand) -> None:
        try:
            with anyio.fail_after(self._limit_s):
                await errand()
        except (SlackError, TimeoutError) as error:
            _log.info("slack: %s: %s", what, error)
        finally:
            self._at_work -= 1
