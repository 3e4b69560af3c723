"""Looks after sandboxes while they are open."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import anyio

from agent.sandbox.protocol import SandboxProvider


@asynccontextmanager
async def maintained(sandboxes: SandboxProvider) -> AsyncIterator[SandboxProvider]:
    """Let them look after themselves in the background; leaving ends that."""
    try:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(sandboxes.run_maintenance)
            yield sandboxes
            tasks.cancel_scope.cancel()
    except BaseExceptionGroup as raised:
        # The group wraps what was raised inside the caller's block: `tend` raises nothing.
        if len(raised.exceptions) != 1:
            raise
        raise raised.exceptions[0] from raised.exceptions[0].__cause__
