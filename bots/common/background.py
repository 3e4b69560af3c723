"""Background tasks of an adapter: optional work that must not delay an acknowledgement."""

import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import anyio
from anyio.abc import TaskGroup

from bus.errors import DeliveryError, unwrapped

log = logging.getLogger(__name__)

MAX_TASKS = 100
"""Maximum number of concurrent tasks. Further ones are dropped."""


class BackgroundTasks:
    """Runs tasks while the adapter runs. A failed task affects no other, and is logged.

    Args:
        channel: Instance name, for the log.
        timeout_s: How long one task may take.
    """

    def __init__(self, channel: str, *, timeout_s: float = 30.0) -> None:
        self._channel = channel
        self._timeout_s = timeout_s
        self._tasks: TaskGroup | None = None
        self._running = 0

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Accept tasks inside the block. Cancel running tasks at its end."""
        with unwrapped():
            async with anyio.create_task_group() as tasks:
                self._tasks = tasks
                try:
                    yield
                finally:
                    self._tasks = None
                    tasks.cancel_scope.cancel()

    def start(self, description: str, task: Callable[[], Awaitable[object]]) -> None:
        """Start a task. Returns at once. Drops the task if too many are running or the adapter is stopped."""
        if self._tasks is None or self._running >= MAX_TASKS:
            log.info("%s: %s: skipped", self._channel, description)
            return
        self._running += 1
        self._tasks.start_soon(self._run, description, task)

    async def _run(self, description: str, task: Callable[[], Awaitable[object]]) -> None:
        try:
            with anyio.fail_after(self._timeout_s):
                await task()
        except DeliveryError as error:
            log.info("%s: %s: %s", self._channel, description, error.user_message)
        except TimeoutError:
            log.info("%s: %s: timed out", self._channel, description)
        except Exception:  # The boundary of one task. The task is optional.
            log.exception("%s: %s failed", self._channel, description)
        finally:
            self._running -= 1
