"""Measures everything for which SPEC 8 sets a bar, and prints one table.

`python -m tests.lab.benchmarks` runs all benchmarks, which takes minutes; `python -m tests.lab.benchmarks start bus`
runs two.
`--record` adds a column to the history in the docs. Each benchmark runs in its own process, so that none inherits
another's heap.
"""

import importlib
import json
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

from tests.lab.benchmarks.figures import Figure, head, line
from tests.lab.benchmarks.record import record

BENCHMARKS = (
    "start",
    "turns",
    "bus",
    "replies",
    "langgraph",
    "growth",
    "history",
    "messages",
    "faults",
    "agent",
    "bursts",
    "memory",
    "scale",
    "schedules",
    "console",
)
ROWS = "--rows"
RECORD = "--record"
LONGEST_S = 3_600


def main(arguments: list[str]) -> int:
    """Run the named benchmarks, or all. Return 1 if one of them failed. A missed bar is only printed."""
    if arguments[:1] == [ROWS]:
        for row in importlib.import_module(f"tests.lab.benchmarks.{arguments[1]}").run():
            print(json.dumps(row), flush=True)
        return 0
    recorded = RECORD in arguments
    arguments = [name for name in arguments if name != RECORD]
    unknown = set(arguments) - set(BENCHMARKS)
    if unknown:
        print(f"no such benchmark: {', '.join(sorted(unknown))}; there are {', '.join(BENCHMARKS)}")
        return 2
    print(head(), flush=True)
    bad = 0
    measured: list[Figure] = []
    for name in arguments or BENCHMARKS:
        began = time.monotonic()
        try:
            figures = list(_measured(name))
        except (subprocess.SubprocessError, ValueError) as error:
            print(f"{name}: broke: {error}", flush=True)
            bad += 1
            continue
        for figure in figures:
            print(line(figure))
        measured += figures
        print(f"-- {name}: {time.monotonic() - began:.0f} s", flush=True)
    if recorded:
        record(measured)
    return 1 if bad else 0


def _measured(name: str) -> Iterator[Figure]:
    done = subprocess.run(
        [sys.executable, "-m", "tests.lab.benchmarks", ROWS, name],
        stdout=subprocess.PIPE,
        text=True,
        check=True,
        timeout=LONGEST_S,
        cwd=Path(__file__).parents[3],
    )
    for row in done.stdout.splitlines():
        yield Figure(*json.loads(row))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
