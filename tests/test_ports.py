"""Ports that tests choose: no two processes choose the same one, whichever suites run at the same time."""

import subprocess
import sys
from contextlib import ExitStack

from tests.fork_server import ROOT

CHOOSE = """
from tests.ports import free_port
print(*(free_port() for _ in range(240)), flush=True)
input()
"""


def test_processes_choose_different_ports() -> None:
    with ExitStack() as stack:
        processes = [
            stack.enter_context(
                subprocess.Popen(
                    [sys.executable, "-c", CHOOSE],
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    cwd=ROOT,
                    env={"PYTHONPATH": str(ROOT), "PYTHONSAFEPATH": "1"},
                )
            )
            for _ in range(8)
        ]
        chosen = []
        for process in processes:
            assert process.stdout is not None
            chosen += process.stdout.readline().split()
        for process in processes:
            process.communicate(b"\n")
    assert [process.returncode for process in processes] == [0] * 8
    assert len(chosen) == len(set(chosen)) == 8 * 240
