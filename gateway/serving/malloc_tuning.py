"""Settings of glibc's memory allocator for a long-running process with threads. Other allocators are left alone."""

import ctypes
from collections.abc import Container

import anyio
import anyio.to_thread

MAX_ARENAS = 2
"""Heaps of glibc. By default each new thread gets its own, up to eight a processor, and what they free stays theirs."""

MMAP_BYTES = 2 * 1024 * 1024
"""Larger blocks are mapped from the system, one by one."""

TRIM_BYTES = 4 * 1024 * 1024
"""Free memory at the end of a heap that is kept. Without it, each JSON of a long thread is memory that the system
hands out and fills with zeros anew, page by page: that took twice the time of encoding."""

RELEASE_S = 60.0
"""How often freed memory is returned, seconds. After a burst of 500 tasks it was 14 of 232 MB, in 3 ms."""

_M_ARENA_MAX, _M_MMAP_THRESHOLD, _M_TRIM_THRESHOLD = -8, -3, -1
_OVERRIDES = ("MALLOC_ARENA_MAX", "GLIBC_TUNABLES")


def tune_allocator(environment: Container[str]) -> bool:
    """Limit the heaps that threads started from now on use, and keep a little freed memory.

    Return False where that is not possible or not wanted.

    The environment variables MALLOC_ARENA_MAX and GLIBC_TUNABLES take precedence.
    """
    if any(name in environment for name in _OVERRIDES):
        return False
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is None:
        return False
    settings = (
        (_M_ARENA_MAX, MAX_ARENAS),
        (_M_MMAP_THRESHOLD, MMAP_BYTES),
        (_M_TRIM_THRESHOLD, TRIM_BYTES),
    )
    return all(mallopt(name, value) for name, value in settings)


async def release_regularly(every_s: float = RELEASE_S) -> None:
    """Call `release_unused` now and then, until cancelled.

    What a burst took is free between blocks that stay. The allocator uses it again, and does not return it by itself.
    """
    while True:
        await anyio.sleep(every_s)
        await anyio.to_thread.run_sync(release_unused)


def release_unused() -> None:
    """Return freed memory to the system, where the C library can. Blocks for milliseconds."""
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)
