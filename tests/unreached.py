"""Lists the functions that no test reaches, from the output of `coverage json`: the last step of `make coverage`.

Functions that cannot be measured are listed separately, with the reason.
"""

import json
import sys
from collections.abc import Iterable
from typing import Any

_ONE_NODE = (
    "does nothing, and is never called with a single node; the protocol needs it for several nodes"
)
_ONE_FOLDER = (
    "does nothing, and is never called when no files are copied; the protocol needs it for buckets"
)

EXCUSED = {
    "agent/sandbox/search.py": "searches in a process without site packages, so without coverage",
    "agent/uploads/worker.py": "converts in a process that may not write files, so no measurement, either",
    "bots/common/adapter.py:BaseAdapter.connect": "tells authors of adapters which method is missing",
    "bots/slack/format.py:_Slack.table": "belongs to a dialect; tables become code before Slack's dialect is used",
    "store/files/mirror.py:SharedFolder.check": _ONE_FOLDER,
    "store/files/mirror.py:SharedFolder.list_areas": _ONE_FOLDER,
    "store/files/mirror.py:SharedFolder.store_if_latest": _ONE_FOLDER,
    "store/nodes.py:SingleNode.wait_change": _ONE_NODE,
}
"""Functions, or files with all their functions, that no measurement reaches, and why."""


def unreached(report: dict[str, Any]) -> dict[str, int]:
    """Return the functions in which no line ran, as "file:name", and the first line of each."""
    return {
        f"{file}:{name}": part["start_line"]
        for file, content in report["files"].items()
        for name, part in content["functions"].items()
        if name and part["missing_lines"] and not part["executed_lines"]
    }


def lines(report: dict[str, Any]) -> Iterable[str]:
    """Yield the lines to print."""
    found = unreached(report)
    reasons = {
        function: reason
        for function in found
        if (reason := EXCUSED.get(function) or EXCUSED.get(function.partition(":")[0]))
    }
    yield f"Functions that no test reaches: {len(found) - len(reasons)}"
    for function, line in found.items():
        if function not in reasons:
            yield f"  {_place(function, line)}"
    if reasons:
        yield f"Functions that no measurement reaches: {len(reasons)}"
        for function, reason in reasons.items():
            yield f"  {_place(function, found[function])}: {reason}"
    named = {*found, *(function.partition(":")[0] for function in found)}
    for entry in (one for one in EXCUSED if one not in named):
        yield f"{entry} is reached: take it out of tests/unreached.py"


def _place(function: str, line: int) -> str:
    file, _, name = function.partition(":")
    return f"{file}:{line} {name}"


if __name__ == "__main__":
    sys.stdout.writelines(f"{line}\n" for line in lines(json.load(sys.stdin)))
