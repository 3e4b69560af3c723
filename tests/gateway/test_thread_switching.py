"""The service lets its other threads work while the event loop is busy."""

import sys
from collections.abc import Iterator

import pytest

from gateway.serving.thread_switching import SWITCH_INTERVAL_S, shorten_switch_interval


@pytest.fixture(autouse=True)
def _as_before() -> Iterator[None]:
    before = sys.getswitchinterval()
    yield
    sys.setswitchinterval(before)


def test_a_waiting_thread_gets_its_turn_soon() -> None:
    assert sys.getswitchinterval() > SWITCH_INTERVAL_S
    shorten_switch_interval()
    assert sys.getswitchinterval() == pytest.approx(SWITCH_INTERVAL_S)
