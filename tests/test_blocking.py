"""Calls that block the event loop are found, except calls in threads and calls that tests make."""

import subprocess
import sys
from pathlib import Path

from tests.blocking import ALLOWED, PACKAGES, ROOT, BlockingReport

PROGRAM = """
import asyncio, concurrent.futures.thread, os, sys
from pathlib import Path
from tests.blocking import ROOT, watch_event_loop

def define(file, source):
    names = {"asyncio": asyncio, "os": os, "Path": Path}
    exec(compile(source, f"{ROOT}/{file}", "exec"), names)
    return names

ours = define("agent/made_up.py", '''
def read():
    return Path("/etc/hostname").exists() and open("/etc/passwd").read()

async def reads_a_file():
    read()

async def lists_a_folder():
    os.listdir("/etc")

async def reads_in_a_thread():
    await asyncio.to_thread(read)

async def reads_memory():
    open("/proc/self/stat").close()
    os.listdir("/proc/self/fd")
''')
allowed = define("gateway/version.py", '''
async def get_version():
    open("/etc/passwd").close()
''')
test = define("tests/made_up.py", '''
async def calls(read):
    read()

async def awaits(made):
    await made()
''')

async def main():
    for name in ("reads_a_file", "lists_a_folder", "lists_a_folder", "reads_in_a_thread", "reads_memory"):
        await test["awaits"](ours[name])
    await allowed["get_version"]()
    await test["calls"](ours["read"])

watch_event_loop(Path(sys.argv[1]), with_libraries=True)
asyncio.run(main())
"""


def test_blocking_calls_of_our_coroutines_are_found(tmp_path: Path) -> None:
    report = BlockingReport(tmp_path / "report.txt")
    subprocess.run(
        [sys.executable, "-c", PROGRAM, str(tmp_path / "report.txt")],
        check=True,
        env={"PYTHONPATH": str(ROOT)},
    )
    assert report.read_new() == {
        "agent/made_up.py:read open",
        "agent/made_up.py:lists_a_folder os.listdir",
    }
    assert report.read_new() == set()


def test_the_allowed_blocking_calls_exist() -> None:
    for place, reason in ALLOWED.items():
        file, _, function = place.partition(":")
        assert f"def {function}(" in (ROOT / file).read_text("utf-8"), place
        assert reason
    assert all(Path(package).is_dir() for package in PACKAGES)
