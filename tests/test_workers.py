"""Tests in forked workers are reported like tests in one process."""

import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from xml.etree import ElementTree

import anyio
import pytest

from tests.blocking import ROOT
from tests.eventually import eventually

TESTS = """
import os
import signal
import warnings
from pathlib import Path

import pytest

FOLDER = Path(__file__).parent

def note(what):
    with (FOLDER / "notes.txt").open("a") as file:
        file.write(f"{what} {os.getpid()}\\n")

note("collected")

@pytest.fixture(scope="session")
def server():
    yield
    note("server stopped")

@pytest.fixture(scope="module")
def prepared():
    note("prepared")

@pytest.mark.parametrize("number", range(20))
def test_quick(number, server, tmp_path):
    assert not list(tmp_path.iterdir())
    note("quick")

@pytest.mark.parametrize("number", range(20))
def test_together(number, prepared):
    note("together")

def test_fails(server):
    print("what it printed")
    assert 1 + 1 == 3

def test_dies():
    os.kill(os.getpid(), signal.SIGKILL)

@pytest.mark.parametrize("number", range(3))
def test_after_one_that_died(number):
    warnings.warn("a warning of a worker")

def test_is_skipped():
    pytest.skip("it is not needed")

@pytest.fixture
def unclean():
    yield
    raise OSError("not torn down")

def test_is_not_torn_down(unclean):
    pass
"""

FIRST = """
from pathlib import Path

def test_first():
    Path("first").touch()
    raise KeyError(1)
"""

OTHERS = """
import time
from pathlib import Path

import pytest

@pytest.mark.parametrize("number", range(200))
def test_other(number):
    Path(f"other_{number}").touch()
    while not Path("first").exists():
        time.sleep(0.01)
    time.sleep(0.1)  # together 20 s, if nobody stops them
"""

WAITING = """
import os, time
from pathlib import Path
import pytest

FOLDER = Path(__file__).parent

@pytest.fixture
def service():
    yield
    (FOLDER / f"stopped-{os.getpid()}").touch()

@pytest.mark.parametrize("number", range(20))
def test_waits(number, service):
    (FOLDER / f"waits-{os.getpid()}").touch()
    time.sleep(60)
"""

SLOW = """
import time
from pathlib import Path
import pytest

@pytest.mark.parametrize("number", range(3))
def test_slow(number):
    give_up_at = time.monotonic() + 30
    while not Path("quick").exists():
        assert time.monotonic() < give_up_at
        time.sleep(0.01)
"""


def command(*arguments: str) -> Sequence[str]:
    return [sys.executable, "-P", "-m", "pytest", "-p", "tests.workers", *arguments]


ENVIRONMENT = {
    "PYTHONPATH": str(ROOT), "COLUMNS": "120", "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"
}  # fmt: skip


def run_tests(folder: Path, *arguments: str) -> tuple[int, list[str]]:
    """Return the exit code and the lines of the output."""
    ran = subprocess.run(
        command(*arguments), check=False, capture_output=True, cwd=folder, env=ENVIRONMENT
    )
    assert ran.stderr == b""
    return ran.returncode, ran.stdout.decode().splitlines()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Return a folder with tests for pytest."""
    (tmp_path / "test_of_workers.py").write_text(TESTS)
    return tmp_path


def notes(folder: Path, what: str) -> list[str]:
    """Return the processes that recorded this."""
    lines = (folder / "notes.txt").read_text().splitlines()
    return [line.rpartition(" ")[2] for line in lines if line.startswith(what)]


def test_workers_report_the_same_as_pytest(folder: Path) -> None:
    code, lines = run_tests(folder, "--workers", "3", "--durations=3", "--junitxml=report.xml")
    assert code == 1
    assert "2 failed, 44 passed, 1 skipped, 3 warnings, 1 error in " in lines[-1]
    assert "collected 47 items" in lines
    assert any("slowest 3 durations" in line for line in lines)
    assert "what it printed" in lines
    assert "E       assert (1 + 1) == 3" in lines
    assert "the process that ran the test ended with code -9" in lines
    assert "E       OSError: not torn down" in lines
    assert any(line.endswith("UserWarning: a warning of a worker") for line in lines)
    suite = ElementTree.parse(folder / "report.xml").getroot()[0]  # noqa: S314 - our own
    counted = [suite.get(name) for name in ("tests", "failures", "errors", "skipped")]
    assert counted == ["47", "2", "1", "1"]
    code, lines = run_tests(folder, "--workers", "3", "--lf", "-k", "fails")
    assert (code, "1 failed, " in lines[-1]) == (1, True)


def test_tests_are_collected_once_and_workers_tear_down_what_they_set_up(folder: Path) -> None:
    run_tests(folder, "--workers", "3", "-k", "quick or together")
    [collecting] = notes(folder, "collected")
    workers = set(notes(folder, "quick") + notes(folder, "together"))
    assert 1 < len(workers) <= 3
    assert collecting not in workers
    assert len(notes(folder, "prepared")) == 1
    assert len(set(notes(folder, "together"))) == 1
    assert sorted(notes(folder, "server stopped")) == sorted(set(notes(folder, "quick")))


def test_quick_tests_run_while_slow_ones_wait(tmp_path: Path) -> None:
    slow = tmp_path / "tests" / "journeys"
    slow.mkdir(parents=True)
    (slow / "test_slow.py").write_text(SLOW)
    (tmp_path / "test_quick.py").write_text("def test_quick(): open('quick', 'w').close()\n")
    code, lines = run_tests(tmp_path, "--workers", "3")
    assert (code, "4 passed" in lines[-1]) == (0, True), lines


def test_the_first_failure_stops_all(tmp_path: Path) -> None:
    (tmp_path / "test_1_first.py").write_text(FIRST)
    (tmp_path / "test_2_others.py").write_text(OTHERS)
    code, lines = run_tests(tmp_path, "--workers", "2", "-x")
    assert code == 1
    assert any("stopping after 1 failures" in line for line in lines)
    assert "1 failed" in lines[-1]
    assert len(list(tmp_path.glob("other_*"))) < 200


@pytest.mark.parametrize("arguments", [(), ("--workers", "2", "--collect-only")], ids=" ".join)
def test_without_workers_the_process_itself_goes_on(
    folder: Path, arguments: tuple[str, ...]
) -> None:
    run_tests(folder, "-k", "quick", *arguments)
    own = set(notes(folder, "collected"))
    assert len(own) == 1
    assert set(notes(folder, "quick")) <= own


async def test_ctrl_c_ends_workers_and_what_they_have_set_up(tmp_path: Path) -> None:
    (tmp_path / "test_waiting.py").write_text(WAITING)
    async with await anyio.open_process(
        command("--workers", "2", "test_waiting.py"),
        cwd=tmp_path, env=ENVIRONMENT, stderr=None, start_new_session=True,
    ) as process:  # fmt: skip
        await eventually(lambda: len(processes(tmp_path, "waits")) == 2)
        os.killpg(process.pid, signal.SIGINT)
        assert process.stdout is not None
        output = "".join([part.decode() async for part in process.stdout])
        assert await process.wait() == pytest.ExitCode.INTERRUPTED
    assert "KeyboardInterrupt" in output
    assert processes(tmp_path, "waits") == processes(tmp_path, "stopped")


def processes(folder: Path, what: str) -> set[str]:
    """Return the processes that created a file `WHAT-PROCESS`."""
    return {path.name.partition("-")[2] for path in folder.glob(f"{what}-*")}
