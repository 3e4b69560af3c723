"""Each message that the how-to guides quote exists in the program."""

import ast
import dataclasses
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from agent.locales.en import ENGLISH
from gateway.terminal.interactive import GREETING
from store.migrations import steps

ROOT = Path(__file__).parents[2]
PAGES = sorted((ROOT / "docs" / "howto").glob("*.md"))
PACKAGES = ("agent", "bots", "bus", "gateway", "store")

OF_PLATFORMS = {
    "Sending messages to this app has been turned off",
    "Message thread not found",
    "Telegram refused: Topic_closed",
    "bot was blocked by the user",
    "not enough rights",
}
"""Messages that come from Slack and Telegram."""

_HEADER = re.compile(r"^\| [^|]*(?:message|symptom)[^|]* \|")
_QUOTED = re.compile(r"`([^`]+)`|\"([^\"]+)\"")
_VARIES = re.compile(r"\.\.\.|;|\(\w+\)|\b\w+(?:\.\w+)+\b|GET /\S+|\w+: true")
"""Parts of a quoted message that vary: omissions, codes, and configuration keys. Also quotes that are not messages."""


def quoted(page: Path) -> Iterator[str]:
    """Yield the fixed parts of the messages in the first column of a page's tables of messages."""
    in_table = False
    for line in page.read_text("utf-8").splitlines():
        in_table = line.startswith("|") and (in_table or bool(_HEADER.match(line)))
        if in_table:
            for match in _QUOTED.findall(line.split(" | ")[0]):
                parts = (part.strip(" .,:`") for part in _VARIES.split("".join(match)))
                yield from (part for part in parts if " " in part)


def texts() -> str:
    """Return all string literals of the program, without backticks. A line break replaces each inserted value."""
    found: list[str] = []
    for name in PACKAGES:
        for file in (ROOT / name).rglob("*.py"):
            for node in ast.walk(ast.parse(file.read_text("utf-8"))):
                if isinstance(node, ast.Constant) and isinstance(node.value, str):
                    found.append(node.value)
                elif isinstance(node, ast.JoinedStr):
                    parts = (p.value if isinstance(p, ast.Constant) else "\n" for p in node.values)
                    found.append("".join(map(str, parts)))
    return "\n".join(found).replace("`", "")


@pytest.fixture(scope="module")
def program() -> str:
    return texts()


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_quoted_messages_are_displayed_by_the_program(page: Path, program: str) -> None:
    assert [part for part in quoted(page) if part not in program and part not in OF_PLATFORMS] == []


def test_the_page_about_models_quotes_what_the_agent_says_of_them() -> None:
    said = " ".join(dataclasses.astuple(ENGLISH))
    parts = list(quoted(ROOT / "docs/howto/connect-a-model.md"))
    assert len(parts) > 5
    assert [part for part in parts if part not in said] == []


def test_tables_of_messages_are_found() -> None:
    assert sum(1 for page in PAGES for _ in quoted(page)) > 30


def test_the_first_tutorial_shows_how_the_chat_greets() -> None:
    assert f"\n{GREETING}\n" in (ROOT / "docs/tutorials/first-chat.md").read_text("utf-8")


def test_the_guide_to_postgresql_shows_what_is_printed_today() -> None:
    page = (ROOT / "docs/howto/use-postgresql.md").read_text("utf-8")
    assert f"\nThe tables now have schema {len(steps('postgres'))}.\n" in page


def test_git_ignores_what_may_contain_tokens() -> None:
    ignored = (ROOT / ".gitignore").read_text("utf-8").splitlines()
    assert {".env", ".parley/", "/config.yaml", "/config.yaml.bak"} <= set(ignored)
