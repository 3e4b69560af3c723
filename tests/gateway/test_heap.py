"""What lives for ever is left alone by the garbage collector; what does not is still collected."""

import gc
import weakref
from collections.abc import Iterator

import pytest

from gateway.serving.heap import YOUNG_OBJECTS, rest, settle


@pytest.fixture(autouse=True)
def _as_before() -> Iterator[None]:
    before = gc.get_threshold()
    yield
    gc.enable()
    gc.unfreeze()
    gc.set_threshold(*before)


class Node:
    """Holds itself."""

    def __init__(self) -> None:
        self.me = self


def test_what_is_there_is_left_alone_and_later_cycles_are_collected() -> None:
    settle()
    assert gc.get_freeze_count() > 10_000
    assert gc.get_threshold()[0] == YOUNG_OBJECTS
    gone = weakref.ref(Node())
    gc.collect()
    assert gone() is None


def test_nothing_is_collected_while_the_service_starts() -> None:
    rest()
    assert not gc.isenabled()
    settle()
    assert gc.isenabled()


def test_young_garbage_goes_without_being_asked() -> None:
    settle()
    gone = weakref.ref(Node())
    kept = [[number] for number in range(2 * YOUNG_OBJECTS)]
    assert gone() is None
    assert kept
