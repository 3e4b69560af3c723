"""The movable clock changes only the time of day of a running process."""

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.prove.clock import MovableClock

_READ = """
import sqlite3, sys, time
for _ in sys.stdin:
    sqlite = sqlite3.connect(":memory:").execute("SELECT unixepoch()").fetchone()[0]
    print(time.time(), sqlite, time.monotonic(), flush=True)
"""


def test_the_time_of_day_moves_and_comes_back(tmp_path: Path) -> None:
    clock = MovableClock(tmp_path)
    if not clock.is_movable:
        pytest.skip("no C compiler (Debian, Ubuntu: apt-get install gcc libc6-dev)")
    with subprocess.Popen(
        [sys.executable, "-c", _READ],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, **clock.environment},
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        for shift_s in (0, 3600, -3600, 0):
            clock.shift(shift_s)
            process.stdin.write("\n")
            process.stdin.flush()
            day, sqlite, monotonic = map(float, process.stdout.readline().split())
            assert day == pytest.approx(time.time() + shift_s, abs=60)
            assert sqlite == pytest.approx(time.time() + shift_s, abs=60)
            assert monotonic == pytest.approx(time.monotonic(), abs=60)


def test_a_clock_without_a_folder_stays() -> None:
    clock = MovableClock(None)
    clock.shift(3600)
    assert (clock.is_movable, clock.environment) == (False, {})
