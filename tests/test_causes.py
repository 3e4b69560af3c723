"""The report of a failed test, and its line in the summary, begin with the cause."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.causes import ROOT, describe
from tests.eventually import eventually

PYTEST = (sys.executable, "-m", "pytest", "-p", "pytest_asyncio.plugin", "-p", "no:cacheprovider")

FAILING = """
import anyio

async def look(number):
    try:
        raise KeyError(number)
    except KeyError as error:
        raise AssertionError(f"{number} is missing") from error

async def test_fails():
    async with anyio.create_task_group() as outer, anyio.create_task_group() as inner:
        outer.start_soon(look, 1)
        inner.start_soon(look, 2)
"""


def test_the_causes_come_before_the_nested_groups(tmp_path: Path) -> None:
    (tmp_path / "pytest.ini").write_text("[pytest]\nasyncio_mode = auto\n")
    (tmp_path / "test_failing.py").write_text(FAILING)
    ran = subprocess.run(
        [*PYTEST, "-p", "tests.causes", tmp_path],
        check=False,
        capture_output=True,
        cwd=tmp_path,
        env={"PYTHONPATH": str(ROOT), "COLUMNS": "200", "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"},
    )
    lines = ran.stdout.decode().splitlines()
    [start] = [number for number, line in enumerate(lines) if "_ test_fails _" in line]
    assert lines[start + 1 : start + 9] == [
        "KeyError: 1", "raised as", "AssertionError: 1 is missing", "",
        "KeyError: 2", "raised as", "AssertionError: 2 is missing", "",
    ]  # fmt: skip
    assert "Exception Group Traceback" in lines[start + 9]
    summary = "test_fails - AssertionError: 1 is missing; AssertionError: 2 is missing"
    assert lines[-2].endswith(summary)


async def test_a_cause_is_shown_with_the_last_frames_of_our_code() -> None:
    with pytest.raises(AssertionError) as raised:
        await eventually(lambda: False, within_s=0)
    shown = [line.strip() for line in describe(raised.value).splitlines()]
    assert shown[1] == "await eventually(lambda: False, within_s=0)"
    assert shown[2].startswith(f'File "{ROOT}/tests/eventually.py", line ')
    assert shown[-1].startswith("AssertionError: not within 0 s")
