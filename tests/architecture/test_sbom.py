"""`make sbom`: the bill of materials lists the lock file's packages with the same hashes."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]


def bill_of(lock: str) -> dict[str, Any]:
    done = subprocess.run(
        [sys.executable, str(ROOT / ".ci" / "sbom.py"), lock],
        cwd=ROOT,
        env={**os.environ, "SOURCE_DATE_EPOCH": "1767225600"},
        capture_output=True,
        text=True,
        check=True,
    )
    bill: dict[str, Any] = json.loads(done.stdout)
    return bill


@pytest.mark.parametrize("lock", ["requirements.lock"])
def test_the_bill_of_materials_is_the_lock(lock: str) -> None:
    text = (ROOT / lock).read_text("utf-8")
    bill = bill_of(lock)
    assert (bill["bomFormat"], bill["specVersion"]) == ("CycloneDX", "1.6")
    assert bill["metadata"]["timestamp"] == "2026-01-01T00:00:00Z"
    named = {f"{c['name']}=={c['version']}" for c in bill["components"]}
    assert named == {
        re.sub(r"[-_.]+", "-", name).lower() + "==" + version
        for name, version in re.findall(r"^([\w.-]+)(?:\[[^]]*\])?==([^\s;]+)", text, re.M)
    }
    hashes = [
        digest["content"]
        for component in bill["components"]
        for reference in component["externalReferences"]
        for digest in reference["hashes"]
    ]
    assert sorted(hashes) == sorted(re.findall(r"--hash=sha256:(\w+)", text))
    assert bill_of(lock) == bill


def test_dependencies_lead_from_parley_to_the_packages() -> None:
    bill = bill_of("requirements.lock")
    known = {component["bom-ref"] for component in bill["components"]}
    root = bill["metadata"]["component"]["bom-ref"]
    graph = {entry["ref"]: entry["dependsOn"] for entry in bill["dependencies"]}
    assert graph.keys() == known | {root}
    assert all(set(needed) <= known for needed in graph.values())
    direct = {ref.rpartition("/")[2].partition("@")[0] for ref in graph[root]}
    assert {"anyio", "fastapi", "langgraph", "slack-bolt"} <= direct
    found, waiting = set(), [root]
    while waiting:
        ref = waiting.pop()
        if ref not in found:
            found.add(ref)
            waiting += graph[ref]
    assert "pkg:pypi/starlette@" in " ".join(found), "needed by FastAPI"
    assert sum(bool(component.get("licenses")) for component in bill["components"]) > 20
