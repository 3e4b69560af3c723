"""Retries a run's checkpoint writes while the database cannot be written to."""

from collections.abc import Awaitable, Callable
from contextvars import ContextVar
from functools import partial

from store.transaction import Transaction, UnitRunner

WRITE_RETRY: ContextVar[Callable[[Callable[[], Awaitable[None]]], Awaitable[None]] | None] = (
    ContextVar("parley_write_retry", default=None)
)
"""Awaits a write, repeating it as needed; None = try once.

A context variable, because LangGraph saves checkpoints in its own tasks.
"""


async def submit_with_retry(writer: UnitRunner, work: Callable[[Transaction], None]) -> None:
    """Run `work`, retried by the context's `WRITE_RETRY` if it is set. Raises StoreUnavailable."""
    retry = WRITE_RETRY.get()
    if retry is None:
        await writer.submit(work)
    else:
        await retry(partial(writer.submit, work))
