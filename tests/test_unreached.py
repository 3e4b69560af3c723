"""The list of functions that no test reaches, built from coverage data of a program that ran."""

import json
import subprocess
import sys
from pathlib import Path

from tests import unreached

PROGRAM = '''\
class Door:
    def open(self) -> str:
        """Say so."""
        return "open"

    def close(self) -> str:
        return "closed"

    def lock(self) -> None:
        """Nothing to do."""


def build():
    def unused() -> None:
        print("unused")

    return Door()


build().open()
'''


def test_functions_of_which_no_line_ran_are_listed(tmp_path: Path) -> None:
    program = tmp_path / "door.py"
    program.write_text(PROGRAM)
    coverage = [sys.executable, "-m", "coverage"]
    own = ["--rcfile=", "--data-file=measured"]  # works while `make coverage` runs, too
    subprocess.run([*coverage, "run", *own, program], cwd=tmp_path, check=True)
    command = [*coverage, "json", *own, "-q", "-o", "-"]
    report = json.loads(subprocess.check_output(command, cwd=tmp_path))

    assert unreached.unreached(report) == {"door.py:Door.close": 6, "door.py:build.unused": 14}


def test_unmeasured_code_is_listed_separately_with_a_reason() -> None:
    nothing = {"start_line": 7, "missing_lines": [8], "executed_lines": []}
    excused = ("agent/uploads/worker.py", "store/nodes.py:SingleNode.wait_change")
    files = {
        "agent/uploads/worker.py": {"functions": {"main": nothing}},
        "bus/service.py": {"functions": {"main": nothing}},
        "store/nodes.py": {"functions": {"SingleNode.wait_change": nothing}},
    }
    reasons = [unreached.EXCUSED[name] for name in excused]

    first, *others = unreached.lines({"files": files})
    assert first == "Functions that no test reaches: 1"
    assert others == [
        "  bus/service.py:7 main",
        "Functions that no measurement reaches: 2",
        f"  agent/uploads/worker.py:7 main: {reasons[0]}",
        f"  store/nodes.py:7 SingleNode.wait_change: {reasons[1]}",
        *(
            f"{entry} is reached: take it out of tests/unreached.py"
            for entry in unreached.EXCUSED
            if entry not in excused
        ),
    ]
