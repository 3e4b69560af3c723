"""Tasks that run beside a block of code, and end with it."""

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import anyio

from bus.errors import unwrapped


@asynccontextmanager
async def run_beside(*works: Callable[[], Awaitable[None]]) -> AsyncIterator[None]:
    """Run functions while the block runs; cancel them at the end of the block, and wait for their ends.

    Raises what the block or a function raises, and not in a group.

    What is cancelled is a scope inside the tasks, so that they return: of one that ends by its cancellation, anyio
    keeps the exception in a cycle of references, and with it the frames of all that the task did, until the oldest
    objects are looked at for garbage. With two such tasks a turn, that was some 10 MB in 5,000 turns.
    """
    scopes = [anyio.CancelScope() for _ in works]

    async def run(work: Callable[[], Awaitable[None]], scope: anyio.CancelScope) -> None:
        with scope:
            if not scope.cancel_called:
                await work()

    with unwrapped():
        async with anyio.create_task_group() as tasks:
            for work, scope in zip(works, scopes, strict=True):
                tasks.start_soon(run, work, scope)
            try:
                yield
            finally:
                for scope in scopes:
                    scope.cancel()
