"""What lives for ever is left alone by the garbage collector; what does not is still collected."""

import gc
import weakref
from collections.abc import Iterator

import pytest

from gateway.serving.gc_tuning import (
    GEN0_THRESHOLD,
    GEN1_THRESHOLD,
    START_THRESHOLD,
    freeze_objects,
    limit_gc,
)


@pytest.fixture(autouse=True)
def _as_before() -> Iterator[None]:
    before = gc.get_threshold()
    yield
    gc.unfreeze()
    gc.set_threshold(*before)


class Node:
    """Holds itself."""

    def __init__(self) -> None:
        self.me = self


def test_what_is_there_is_left_alone_and_later_cycles_are_collected() -> None:
    freeze_objects()
    assert gc.get_freeze_count() > 10_000
    assert gc.get_threshold()[:2] == (GEN0_THRESHOLD, GEN1_THRESHOLD)
    gone = weakref.ref(Node())
    gc.collect()
    assert gone() is None


def test_young_garbage_goes_while_the_service_starts() -> None:
    """Some of it is large, and its memory is used again."""
    limit_gc()
    gone = weakref.ref(Node())
    kept = [[number] for number in range(2 * START_THRESHOLD)]
    assert gone() is None
    assert kept


def test_what_is_old_is_not_looked_at_while_the_service_starts() -> None:
    limit_gc()
    looked_at: list[int] = []
    gc.callbacks.append(lambda _phase, info: looked_at.append(info["generation"]))
    try:
        kept = [[number] for number in range(10 * START_THRESHOLD)]
    finally:
        gc.callbacks.pop()
    assert set(looked_at) == {0}
    assert kept


def test_few_objects_are_looked_at_in_one_go() -> None:
    """No other thread works meanwhile: 30,000 take up to 28 ms."""
    looked_at: list[int] = []

    def count(phase: str, info: dict[str, int]) -> None:
        if phase == "start":
            looked_at.append(sum(len(gc.get_objects(one)) for one in range(info["generation"] + 1)))

    gc.collect()
    freeze_objects()
    gc.callbacks.append(count)
    try:
        kept = [[number] for number in range(100_000)]
    finally:
        gc.callbacks.pop()
    assert len(looked_at) >= 10
    assert max(looked_at) < 10_000
    assert kept


def test_young_garbage_goes_without_being_asked() -> None:
    freeze_objects()
    gone = weakref.ref(Node())
    kept = [[number] for number in range(2 * GEN0_THRESHOLD)]
    assert gone() is None
    assert kept
