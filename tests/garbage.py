"""What only the garbage collector can remove: objects in cycles of references. It costs memory until it comes."""

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def garbage_made() -> Iterator[list[object]]:
    """Yield a list that has, after the block, the objects that the block left to the garbage collector."""
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
