"""Finds objects in reference cycles, which hold memory until the garbage collector runs."""

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def garbage_made() -> Iterator[list[object]]:
    """Yield a list. After the block, it holds the objects that only the garbage collector can free."""
    made: list[object] = []
    gc.collect()
    gc.disable()
    try:
        yield made
        gc.set_debug(gc.DEBUG_SAVEALL)
        gc.collect()
        made += gc.garbage
    finally:
        gc.set_debug(0)
        gc.garbage.clear()
        gc.enable()
