"""Opens task groups for the background tasks of a service."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import anyio
from anyio.abc import TaskGroup


@asynccontextmanager
async def background_tasks() -> AsyncIterator[TaskGroup]:
    """Open a task group. Leaving the block cancels its tasks and waits for them.

    An error in the block is raised as it is, not in an exception group. An error in a task cancels the block and is
    raised in a group, so tasks should handle their own errors.
    """
    raised: Exception | None = None
    async with anyio.create_task_group() as tasks:
        try:
            yield tasks
        except Exception as error:  # noqa: BLE001 - raised again below, outside the task group
            raised = error
        tasks.cancel_scope.cancel()
    if raised is not None:
        raise raised
