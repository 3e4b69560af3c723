"""Splits a text into as many messages as its platform needs."""

from anyio import to_thread

from bus.platform import Adapter

IN_THREAD_CHARS = 1000
"""Longer texts are split in a worker thread. At this length, plain words take 0.1 ms, and dense Markdown 1.5 ms."""


async def split_text(adapter: Adapter, text: str) -> list[str]:
    """Split a text into messages for a platform."""
    if len(text) <= IN_THREAD_CHARS:
        return list(adapter.split(text))
    return list(await to_thread.run_sync(adapter.split, text))
