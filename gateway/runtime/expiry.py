"""Deletes or prunes threads and items whose time to live has expired."""

import logging
from collections.abc import Awaitable, Callable

import anyio

from gateway.runtime.runs import RunManager
from store.errors import StoreError
from store.nodes import Nodes
from store.threads import Thread

EXPIRY_INTERVAL_S = 30.0
"""Check interval, seconds. Times to live are given in minutes."""

DeleteThreadFiles = Callable[[str], Awaitable[None]]
"""Deletes a thread's data other than its runs and state."""

log = logging.getLogger(__name__)


async def run_expiry_loop(
    runs: RunManager,
    discard: DeleteThreadFiles,
    nodes: Nodes,
    *,
    every_s: float = EXPIRY_INTERVAL_S,
) -> None:
    """Delete expired threads and items, until canceled. Only one node does this at a time."""
    while True:
        async with nodes.exclusive("expiry"):
            while True:
                try:
                    await expire_threads(runs, discard)
                except StoreError:
                    log.exception("Could not delete expired threads; retrying.")
                await anyio.sleep(every_s)


async def expire_threads(runs: RunManager, discard: DeleteThreadFiles) -> int:
    """Delete or prune expired threads and items. Return the number of threads."""
    await runs.items.delete_expired()
    over = await runs.threads.list_expired(now=runs.now())
    for thread in over:
        await _expire_thread(runs, thread, discard)
    return len(over)


async def _expire_thread(runs: RunManager, thread: Thread, discard: DeleteThreadFiles) -> None:
    if runs.active_on_thread(thread.thread_id):
        return
    if thread.ttl is not None and thread.ttl.strategy == "keep_latest":
        await runs.checkpointer.trim_thread(thread.thread_id, keep=1)
        await runs.threads.restart_ttl(thread.thread_id, now=runs.now())
        return
    await runs.delete_thread(thread.thread_id)
    await discard(thread.thread_id)
