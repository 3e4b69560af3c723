"""What was done to custom skills: one JSON object a line, a file for each name. Blocking."""

import json
import os
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final, Literal

Action = Literal["install", "update", "delete", "rollback"]

MAX_ENTRIES: Final = 100
"""Kept for each name; older ones are forgotten."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SkillChange:
    """One change of a SKILL.md.

    Attributes:
        ts: When, ISO 8601 in UTC.
        action: What was done.
        prev_content: The file before; None = there was none.
        new_content: The file after; None = there is none.
        decision: What the scan said; None = it was not asked.
        reason: Why.
    """

    ts: str
    action: Action
    prev_content: str | None = None
    new_content: str | None = None
    decision: str | None = None
    reason: str = ""


def timestamp() -> str:
    """Return the present time as it is written down."""
    return datetime.now(UTC).isoformat(timespec="seconds")


class SkillHistory:
    """The changes of all custom skills; they outlive the skill.

    Args:
        folder: Where the files are; made when something is written.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def changes(self, name: str) -> list[SkillChange]:
        """Return the changes of a skill, oldest first. Lines that cannot be read are left out."""
        try:
            text = self._file(name).read_text("utf-8")
        except OSError:
            return []
        return list(_changes(text))

    def add(self, name: str, change: SkillChange) -> None:
        """Write a change down. Raises OSError."""
        kept = [*self.changes(name), change][-MAX_ENTRIES:]
        text = "".join(json.dumps(asdict(entry), ensure_ascii=False) + "\n" for entry in kept)
        self._folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        file = self._file(name)
        written = file.with_suffix(".new")
        with open(written, "w", encoding="utf-8", opener=_private) as target:
            target.write(text)
        written.replace(file)

    def _file(self, name: str) -> Path:
        return self._folder / f"{name}.jsonl"


def _private(path: str, flags: int) -> int:
    return os.open(path, flags, 0o600)


def _changes(text: str) -> Iterator[SkillChange]:
    for line in text.splitlines():
        try:
            entry: dict[str, Any] = json.loads(line)
            yield SkillChange(**entry)
        except (ValueError, TypeError, RecursionError):
            continue
