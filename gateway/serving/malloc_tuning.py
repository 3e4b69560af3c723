"""Settings of glibc's memory allocator for a long-running process with threads. Other allocators are left alone."""

import ctypes
from collections.abc import Container

MAX_ARENAS = 2
"""Heaps of glibc. By default each new thread gets its own, up to eight a processor, and what they free stays theirs."""

_M_ARENA_MAX = -8
_OVERRIDES = ("MALLOC_ARENA_MAX", "GLIBC_TUNABLES")


def limit_arenas(environment: Container[str]) -> bool:
    """Limit the heaps that threads started from now on use. Return False where that is not possible or not wanted.

    The environment variables MALLOC_ARENA_MAX and GLIBC_TUNABLES take precedence.
    """
    if any(name in environment for name in _OVERRIDES):
        return False
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    return mallopt is not None and bool(mallopt(_M_ARENA_MAX, MAX_ARENAS))


def release_unused() -> None:
    """Return freed memory to the system, where the C library can."""
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)
