"""The `<uploaded_files>` block: what the model is told about files. Pure.

The same files always give the same text, so that a provider's prompt cache holds.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from agent.paths import UPLOADS
from agent.uploads.images import MIME_OF_SUFFIX
from agent.uploads.names import printable_character, suffix_of
from agent.uploads.outline import Outline

TAG = "uploaded_files"
MAX_EARLIER = 30
"""Most earlier files that are listed; the newest count."""

_TEXT_KINDS = "read_file reads it, with line ranges where it is long; grep searches it."


@dataclass(frozen=True, slots=True, kw_only=True)
class FileSummary:
    """One file as the model is told of it.

    Attributes:
        size: In bytes.
        markdown: The name of its text version.
        outline: Of that.
        problem: Why it has no text version, where it should.
    """

    name: str
    size: int
    markdown: str | None = None
    outline: Outline | None = None
    problem: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class EarlierFiles:
    """Files that were there before this message; `left_out` more are not listed."""

    files: tuple[FileSummary, ...] = ()
    left_out: int = 0


def uploads_block(
    files: Sequence[FileSummary], earlier: EarlierFiles | None = None, *, sees: bool = False
) -> str:
    """Return the block for one message.

    Args:
        files: What came with the message.
        earlier: What was there before; None = that is not told here.
        sees: Whether the model takes images.
    """
    lines = [
        f"<{TAG}>",
        f"Files that came with this message (in {UPLOADS}):",
        *([line for file in files for line in _entry(file, sees=sees)] or ["(empty)"]),
    ]
    if earlier is not None and earlier.files:
        lines += ["", "Files from earlier in this conversation, still there:"]
        lines += [line for file in earlier.files for line in _short(file)]
        if earlier.left_out:
            lines.append(f"... and {earlier.left_out} older ones: ls {UPLOADS} shows all.")
    return "\n".join([*lines, f"</{TAG}>"])


def format_size(size: int) -> str:
    """Return a size with one decimal: KB below 1 MiB, MB from there.

    >>> format_size(1536), format_size(1024 * 1024)
    ('1.5 KB', '1.0 MB')
    """
    kib = size / 1024
    return f"{kib:.1f} KB" if kib < 1024 else f"{kib / 1024:.1f} MB"  # noqa: PLR2004 - KiB of a MiB


def _short(file: FileSummary) -> list[str]:
    lines = [f"- {_plain(file.name)} ({format_size(file.size)})", f"  Path: {_path(file.name)}"]
    if file.markdown:
        lines.append(f"  Text version: {_path(file.markdown)}")
    return lines


def _entry(file: FileSummary, *, sees: bool) -> list[str]:
    lines = _short(file)
    if file.problem:
        lines.append(f"  No text version: {_plain(file.problem)}.")
    elif suffix_of(file.name) in MIME_OF_SUFFIX:
        lines.append(_image_hint(sees=sees))
    elif file.outline is None:
        lines.append(f"  {_TEXT_KINDS}")
    else:
        lines += _outlined(file.outline)
    return lines


def _image_hint(*, sees: bool) -> str:
    if sees:
        return "  An image. If you do not see it here, view_image shows it."
    return "  An image; you cannot see it, but tools can work with the file."


def _outlined(outline: Outline) -> list[str]:
    if not outline.headings:
        shown_lines = [f"    {_plain(line)}" for line in outline.preview]
        return ["  The text version begins:", *shown_lines, f"  {_TEXT_KINDS}"]
    lines = ["  Headings of the text version (read_file with these line numbers):"]
    lines += [f"    L{heading.line}: {_plain(heading.title)}" for heading in outline.headings]
    if outline.truncated:
        lines.append("    ... more headings follow; grep '^#' finds them.")
    return lines


def _path(name: str) -> str:
    return f"{UPLOADS}/{_plain(name)}"


def _plain(text: str) -> str:
    """Return a text on one line in which nothing reads like a tag: names and titles are other people's words."""
    return "".join(printable_character(character) for character in text)
