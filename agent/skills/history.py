"""Change history of custom skills: one JSONL file per skill. Blocking."""

import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal

from agent.atomic_write import write_atomically

Action = Literal["install", "update", "delete", "rollback"]

MAX_ENTRIES = 100
"""Maximum number of entries per skill. The oldest are dropped."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SkillChange:
    """One change of a SKILL.md.

    Attributes:
        ts: Time, ISO 8601 in UTC.
        action: The kind of change.
        prev_content: The file before the change; None = it did not exist.
        new_content: The file after the change; None = it was deleted.
        decision: Decision of the scan; None = no scan.
        reason: The scan's reason.
    """

    ts: str
    action: Action
    prev_content: str | None = None
    new_content: str | None = None
    decision: str | None = None
    reason: str = ""


def timestamp() -> str:
    """Return the current time in the format of `SkillChange.ts`."""
    return datetime.now(UTC).isoformat(timespec="seconds")


class SkillHistory:
    """The changes of all custom skills. Deleting a skill keeps its changes.

    Args:
        folder: The folder of the files. The first change creates it.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def changes(self, name: str) -> list[SkillChange]:
        """Return the changes of a skill, oldest first. Ignores invalid lines."""
        try:
            text = self._file(name).read_text("utf-8")
        except OSError:
            return []
        return list(_changes(text))

    def add(self, name: str, change: SkillChange) -> None:
        """Add a change. Raises OSError."""
        kept = [*self.changes(name), change][-MAX_ENTRIES:]
        text = "".join(json.dumps(asdict(entry), ensure_ascii=False) + "\n" for entry in kept)
        self._folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        write_atomically(self._file(name), text.encode())

    def _file(self, name: str) -> Path:
        return self._folder / f"{name}.jsonl"


def _changes(text: str) -> Iterator[SkillChange]:
    for line in text.splitlines():
        try:
            entry: dict[str, Any] = json.loads(line)
            yield SkillChange(**entry)
        except (ValueError, TypeError, RecursionError):
            continue
