"""The list of functions that no test reaches: it is made of what coverage says about a program that ran."""

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
    own = ["--rcfile=", "--data-file=measured"]  # also while `make coverage` runs
    subprocess.run([*coverage, "run", *own, program], cwd=tmp_path, check=True)
    command = [*coverage, "json", *own, "-q", "-o", "-"]
    report = json.loads(subprocess.check_output(command, cwd=tmp_path))

    assert unreached.unreached(report) == {"door.py:Door.close": 6, "door.py:build.unused": 14}


def test_what_is_not_measured_is_listed_apart_with_the_reason() -> None:
    nothing = {"start_line": 7, "missing_lines": [8], "executed_lines": []}
    *names, last = unreached.EXCUSED
    functions = [name if ":" in name else f"{name}:main" for name in names]
    files = {
        file: {"functions": {name: nothing}}
        for file, _, name in (one.partition(":") for one in (*functions, "bus/service.py:main"))
    }

    assert list(unreached.lines({"files": files})) == [
        "Functions that no test reaches: 1",
        "  bus/service.py:7 main",
        f"Functions that are not measured: {len(names)}",
        *(
            f"  {function.replace(':', ':7 ')}: {unreached.EXCUSED[name]}"
            for function, name in zip(functions, names, strict=True)
        ),
        f"{last} is measured: take it out of tests/unreached.py",
    ]
