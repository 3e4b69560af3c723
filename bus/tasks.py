"""Tasks that run next to a block of code and end with it."""

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import anyio

from bus.errors import unwrapped


@asynccontextmanager
async def run_beside(*works: Callable[[], Awaitable[None]]) -> AsyncIterator[None]:
    """Run functions while the block runs. At the end of the block, cancel them and wait for them.

    Raises what the block or a function raises, without an exception group.

    Cancels a scope inside each task instead of the task, so that the task returns. If a task ends with its
    cancellation, anyio keeps the exception and the task's frames in a reference cycle until a full garbage collection.
    With two such tasks per turn, this took about 10 MB in 5,000 turns.
    """
    if not works:
        yield
        return
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
