"""Each protection on the security page names tests, and these tests exist."""

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "explanation" / "security.md").read_text("utf-8")
SURFACES = (
    "People who write to the bot",
    "The port",
    "Webhooks",
    "Model output",
    "Sandbox",
    "Files",
    "Tools and MCP servers",
    "Skills and custom agents",
    "Terminal and logs",
    "Secrets",
    "Nodes, database and bucket",
)
HEADER = "| threat | protection | tests |\n|---|---|---|\n"
TEST = re.compile(r"`(tests/[\w/]+\.py)::(test_\w+)`")


def threats(surface: str) -> list[list[str]]:
    """Return the rows of a surface's table: threat, protection, tests."""
    section = PAGE.partition(f"\n## {surface}\n")[2].partition("\n## ")[0]
    table = section.partition(HEADER)[2].partition("\n\n")[0]
    return [[cell.strip() for cell in line.strip("| ").split(" | ")] for line in table.splitlines()]


@pytest.mark.parametrize("surface", SURFACES)
def test_each_protection_names_tests_that_exist(surface: str) -> None:
    rows = threats(surface)
    assert len(rows) >= 3
    for threat, protection, tests in rows:
        assert protection, threat
        named = TEST.findall(tests)
        assert named, threat
        assert TEST.sub("", tests).strip() == "", f"{threat}: {tests}"
        for file, name in named:
            tree = ast.parse((ROOT / file).read_text("utf-8"))
            functions = ast.FunctionDef | ast.AsyncFunctionDef
            found = {node.name for node in tree.body if isinstance(node, functions)}
            assert name in found, f"{file}::{name}"


def test_no_table_is_left_out() -> None:
    assert PAGE.count(HEADER) == len(SURFACES)
    assert "\n## What is not protected\n" in PAGE
