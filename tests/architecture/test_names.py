"""Every public class name is unique in the whole tree."""

import ast
from collections import defaultdict
from pathlib import Path

ROOT = Path(__file__).parents[2]
PACKAGES = ("agent", "bots", "bus", "gateway", "store")


def test_every_public_class_name_is_used_once() -> None:
    modules = defaultdict(list)
    for package in PACKAGES:
        for path in sorted((ROOT / package).rglob("*.py")):
            for node in ast.parse(path.read_text("utf-8")).body:
                if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                    modules[node.name].append(path.relative_to(ROOT).as_posix())
    collisions = {name: paths for name, paths in modules.items() if len(paths) > 1}
    assert collisions == {}
