"""Runs every parser on some generated inputs, or on many with PARLEY_TEST_LONG=1."""

import logging
import os
from random import SystemRandom

import pytest

from tests.lab.fuzz import content, platforms, webhooks
from tests.lab.fuzz.runner import Target, fuzz

LONG = os.environ.get("PARLEY_TEST_LONG") == "1"
COUNT = 20_000 if LONG else 150
SEED = int(os.environ.get("PARLEY_FUZZ_SEED") or SystemRandom().randrange(10**6))
TARGETS = (*platforms.TARGETS, *webhooks.TARGETS, *content.TARGETS)


@pytest.mark.timeout(3600 if LONG else 300)
@pytest.mark.parametrize("target", TARGETS, ids=lambda target: str(target.name))
def test_no_input_crashes_hangs_or_escapes(target: Target) -> None:
    logging.disable(logging.ERROR)
    try:
        count = max(20, round(COUNT * target.weight))
        assert fuzz(target, count, seed=SEED).count == count
    finally:
        logging.disable(logging.NOTSET)


def test_an_input_can_be_repeated_alone() -> None:
    failing = Target(name="failing", run=lambda rng: str(1 // rng.randrange(50)))
    with pytest.raises(AssertionError, match="ZeroDivisionError") as caught:
        fuzz(failing, 10_000, seed=7)
    first = int(str(caught.value).split("--first ")[1].split()[0])
    assert first > 0
    with pytest.raises(AssertionError, match="ZeroDivisionError"):
        fuzz(failing, 1, seed=7, first=first)


def test_an_input_that_never_ends_is_stopped() -> None:
    def run(_: object) -> str:
        while True:
            pass

    with pytest.raises(AssertionError, match="of CPU time"):
        fuzz(Target(name="endless", run=run), 1, seed=1, hang_s=0.2)
