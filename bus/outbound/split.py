"""Splits a text into as many messages as its platform needs."""

from anyio import to_thread

from bus.platform import Adapter

IN_THREAD_CHARS = 1000
"""A longer text is split in a worker thread: plain words take 0.1 ms, dense Markdown 1.5 ms."""


async def split_text(adapter: Adapter, text: str) -> list[str]:
    """Return the messages that a text becomes on a platform."""
    if len(text) <= IN_THREAD_CHARS:
        return list(adapter.split(text))
    return list(await to_thread.run_sync(adapter.split, text))
