"""Tests and fakes use only files of this repository."""

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
ABOVE = re.compile(r"\bparents\[(\d+)\]((?:\.parent)*)")


def test_no_test_leaves_the_repository() -> None:
    outside = {
        path.relative_to(ROOT).as_posix()
        for path in (ROOT / "tests").rglob("*.py")
        for levels, more in ABOVE.findall(path.read_text("utf-8"))
        if not path.parents[int(levels) + more.count(".")].is_relative_to(ROOT)
    }
    assert outside == set()
