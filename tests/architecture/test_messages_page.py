"""The page on message parts is complete: each platform's table names every part once, and no others."""

import json
import re
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest

from bots.feishu.card_text import _READERS as CARD_READERS
from bots.feishu.content import _POST_FILES, MERGE_FORWARD
from bots.feishu.content import _READERS as TYPE_READERS
from tests.bots.test_feishu_card_text import COMPONENTS
from tests.bots.test_feishu_content import ELEMENTS, TYPES
from tests.bots.test_telegram_content import FIELDS
from tests.bots.test_telegram_formatting import BLOCKS, ENTITY_TYPES, TEXTS

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "reference" / "messages.md").read_text("utf-8")
SLACK: Mapping[str, list[str]] = json.loads(
    (ROOT / "tests" / "data" / "slack-message-parts.json").read_text("utf-8")
)
INVENTED = {"hologram", "newest"}
"""The name of an unknown part in the reader tests."""

OUTCOMES = {"read", "named only", "ignored"}


def without_invented(*names: str) -> set[str]:
    return set(names) - INVENTED


LISTS: Mapping[str, Mapping[str, Collection[str]]] = {
    "Slack": {
        "blocks": SLACK["blocks"],
        "elements": SLACK["elements"],
        "rich text": [*SLACK["rich_text_objects"], *SLACK["rich_text"]],
        "attachments": SLACK["attachment_fields"],
        "files": SLACK["file_modes"],
    },
    "Telegram": {
        "fields": [row.field for row in FIELDS],
        "entities": {kind for kind, *_ in ENTITY_TYPES},
        "blocks": [block["type"] for block, _ in BLOCKS],
        "texts": [text["type"] for text, _ in TEXTS],
    },
    "Feishu and Lark": {
        "types": without_invented(*TYPE_READERS, MERGE_FORWARD, *(kind for kind, *_ in TYPES)),
        "tags": without_invented(*_POST_FILES, *(element["tag"] for element, _ in ELEMENTS)),
        "components": without_invented(*CARD_READERS, *(one["tag"] for one, _ in COMPONENTS)),
    },
}

READER_TESTS = {
    "Slack": ["test_slack_parts.py"],
    "Telegram": ["test_telegram_content.py", "test_telegram_formatting.py"],
    "Feishu and Lark": ["test_feishu_content.py", "test_feishu_card_text.py"],
}


@dataclass(frozen=True, kw_only=True)
class Row:
    """A row of a platform's table.

    Attributes:
        names: The message parts that it covers, as (list, name).
        outcome: Whether the bot reads them.
        shown: The text for the agent, or why it gets none.
    """

    names: tuple[tuple[str, str], ...]
    outcome: str
    shown: str


def table(platform: str) -> Iterator[Row]:
    section = PAGE.partition(f"\n## {platform}\n")[2].partition("\n## ")[0]
    body = section.partition("|---|---|---|---|\n")[2].partition("\n\n")[0]
    for line in body.splitlines():
        _, names, outcome, shown = (cell.strip() for cell in line.strip("| ").split(" | "))
        yield Row(names=tuple(named(names)), outcome=outcome, shown=shown)


def named(cell: str) -> Iterator[tuple[str, str]]:
    """Yield the names in a cell such as "blocks `image`; files `list`"."""
    for part in cell.split(";"):
        which = part.partition("`")[0].strip()
        yield from ((which, name) for name in re.findall(r"`(\w+)`", part))


@pytest.mark.parametrize("platform", LISTS)
def test_every_part_of_a_message_is_in_the_table_once(platform: str) -> None:
    on_page = sorted(name for row in table(platform) for name in row.names)
    known = sorted((which, name) for which, names in LISTS[platform].items() for name in names)
    assert on_page == known


@pytest.mark.parametrize("platform", LISTS)
def test_every_row_says_what_the_agent_gets_or_why_nothing(platform: str) -> None:
    for row in table(platform):
        assert row.outcome in OUTCOMES, row
        assert row.shown, row


@pytest.mark.parametrize("platform", LISTS)
def test_examples_are_those_of_the_readers_tests(platform: str) -> None:
    folder = ROOT / "tests" / "bots"
    tested = "".join((folder / name).read_text("utf-8") for name in READER_TESTS[platform])
    examples = re.findall(r"`([^`]*\[.*?)`", "\n".join(row.shown for row in table(platform)))
    assert len(examples) > 5
    assert [example for example in examples if example not in tested] == []


def test_the_outcome_of_telegrams_fields_is_that_of_the_reader() -> None:
    outcomes = {"read": "read", "quoted": "read", "named": "named only", "service": "ignored"}
    expected = {row.field: outcomes[row.kind] for row in FIELDS if row.kind in outcomes}
    shown = {
        name: row.outcome
        for row in table("Telegram")
        for which, name in row.names
        if which == "fields" and name in expected
    }
    assert shown == expected
