"""Ports that tests choose: no two processes choose the same one, even if several suites run at the same time."""

import subprocess
import sys
from contextlib import ExitStack
from multiprocessing import get_context

from gateway.playground.ports import free_port as platform_port
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


def test_forked_processes_choose_the_ports_of_simulated_platforms_in_different_orders() -> None:
    here = _choose_platform_ports()
    with get_context("fork").Pool(1) as pool:
        there = pool.apply(_choose_platform_ports)
    assert len(set(here)) == len(set(there)) == 20
    assert here != there


def _choose_platform_ports() -> list[int]:
    return [platform_port() for _ in range(20)]
