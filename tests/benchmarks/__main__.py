"""Measures everything SPEC 8 gives a bar for, and prints one table.

`python -m tests.benchmarks` runs all of it (some minutes), `python -m tests.benchmarks start bus` some. Each
benchmark runs in a process of its own, so that none inherits another's heap.
"""

import importlib
import json
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

from tests.benchmarks.figures import Figure, head, line

BENCHMARKS = ("start", "turns", "bus", "replies", "langgraph", "growth", "history", "faults")
ROWS = "--rows"
LONGEST_S = 900

PEERS = {
    "runs API ours: thread and run, 16": "DeerFlow 34, aegra 46, langgraph dev 29-144",
    "runs API ours: a run, one client": "DeerFlow 28.5, aegra 26, langgraph dev 1000",
    "runs API ours: CPU of a thread": "DeerFlow 29-32, aegra 18-24, langgraph dev 5-15",
    "runs API ours: CPU of a token": "DeerFlow 364, langgraph dev 196, aegra 142",
    "runs API ours: 32 streams, first": "DeerFlow 758, langgraph dev 900, aegra 460",
    "runs API ours: 32 streams, slow": "DeerFlow 38.1, aegra 43.5, langgraph dev 47.7",
}
"""By the beginning of a figure's name: the peers' servers under the same load, measured for SPEC 8 (ms, us, tok/s)."""


def main(arguments: list[str]) -> int:
    """Run the named benchmarks, or all; return 1 if one of them broke. A missed bar is told, not punished."""
    if arguments[:1] == [ROWS]:
        for row in importlib.import_module(f"tests.benchmarks.{arguments[1]}").run():
            print(json.dumps(row), flush=True)
        return 0
    unknown = set(arguments) - set(BENCHMARKS)
    if unknown:
        print(f"no such benchmark: {', '.join(sorted(unknown))}; there are {', '.join(BENCHMARKS)}")
        return 2
    print(head(), flush=True)
    bad = 0
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
        print(f"-- {name}: {time.monotonic() - began:.0f} s", flush=True)
    return 1 if bad else 0


def _measured(name: str) -> Iterator[Figure]:
    done = subprocess.run(
        [sys.executable, "-m", "tests.benchmarks", ROWS, name],
        stdout=subprocess.PIPE,
        text=True,
        check=True,
        timeout=LONGEST_S,
        cwd=Path(__file__).parents[2],
    )
    for row in done.stdout.splitlines():
        figure = Figure(*json.loads(row))
        peers = next((said for what, said in PEERS.items() if figure.what.startswith(what)), "")
        yield figure if figure.peers else figure._replace(peers=peers)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
