"""Edits of a text: several exact replacements, all or none, and the diff that shows them. Pure."""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from difflib import unified_diff
from itertools import takewhile

from agent.errors import SandboxError

MAX_DIFF_CHARS = 4_000
"""Longest diff to show, characters."""

MAX_LINE_CHARS = 500
MAX_DIFF_LINES = 4_000
"""Maximum number of lines to compare, from the first change to the last. Comparing takes quadratic time."""

_CONTEXT = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class TextEdit:
    """One replacement: the only occurrence of `old`, or every one if `everywhere`."""

    old: str
    new: str
    everywhere: bool = False


def apply_edits(text: str, edits: Sequence[TextEdit], name: str) -> str:
    """Apply the edits one after the other, and return the resulting text. Keeps Windows line endings.

    Args:
        text: The text.
        edits: The edits.
        name: The file's name, for errors.

    Raises:
        SandboxError: A text to replace is missing or ambiguous.

    >>> apply_edits("a b", [TextEdit(old="a", new="x"), TextEdit(old="x b", new="c")], "file")
    'c'
    """
    has_crlf = 0 < text.count("\n") == text.count("\r\n")
    for number, edit in enumerate(edits, 1):
        old, new = (
            (_with_crlf(edit.old), _with_crlf(edit.new)) if has_crlf else (edit.old, edit.new)
        )
        which = f"edit {number}: " if len(edits) > 1 else ""
        count = text.count(old) if old else 0
        if count == 0:
            raise SandboxError(
                f"{which}the text to replace was not found in {name}. Nothing was changed"
            )
        if count > 1 and not edit.everywhere:
            raise SandboxError(
                f"{which}the text to replace occurs {count} times in {name}. Nothing was changed: include more of the "
                "lines around it, or set replace_all"
            )
        text = text.replace(old, new)
    return text


def edit_diff(before: str, after: str) -> str:
    r"""Return the unified diff of a change, without file names, at most `MAX_DIFF_CHARS` and a note.

    >>> print(edit_diff("a\nb\nc\n", "a\nx\nc\n"))
    @@ -1,3 +1,3 @@
     a
    -b
    +x
     c
    >>> edit_diff("a", "a")
    '(no change)'
    """
    old, new = before.splitlines(), after.splitlines()
    if old == new:
        return "(no change)"
    start = max(_equal_lines(old, new) - _CONTEXT, 0)
    tail = max(_equal_lines(reversed(old[start:]), reversed(new[start:])) - _CONTEXT, 0)
    old, new = old[start : len(old) - tail], new[start : len(new) - tail]
    if len(old) + len(new) > MAX_DIFF_LINES:
        return f"[lines {start + 1} to {start + len(new)} contain the changes: too many to show]"
    diff = list(unified_diff(old, new, n=_CONTEXT, lineterm=""))[2:]  # without the file names
    return _bounded([_moved(line, start) if line.startswith("@@ ") else line for line in diff])


def _equal_lines(one: Iterable[str], other: Iterable[str]) -> int:
    """Return how many lines at the start of both are equal."""
    return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(one, other, strict=False)))


def _moved(header: str, skipped: int) -> str:
    """Return a hunk's header with line numbers increased by `skipped`.

    >>> _moved("@@ -1,3 +1,4 @@", 10)
    '@@ -11,3 +11,4 @@'
    """
    return re.sub(r"([-+])(\d+)", lambda found: f"{found[1]}{int(found[2]) + skipped}", header)


def _bounded(lines: Sequence[str]) -> str:
    size = 0
    shown: list[str] = []
    for line in lines:
        short = line if len(line) <= MAX_LINE_CHARS else f"{line[:MAX_LINE_CHARS]} ..."
        size += len(short) + 1
        if size > MAX_DIFF_CHARS:
            return "\n".join([*shown, f"... [{len(lines) - len(shown)} more lines of the diff]"])
        shown.append(short)
    return "\n".join(shown)


def _with_crlf(text: str) -> str:
    """Return a text with Windows line endings, which models do not write."""
    return text.replace("\r\n", "\n").replace("\n", "\r\n")
