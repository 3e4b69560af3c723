"""The `<uploaded_files>` block that lists files for the model. Pure.

The block is part of a person's message, so it contains nothing from the files themselves. The same files always give
the same text, so that providers can cache prompts.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from agent.paths import UPLOADS
from agent.uploads.images import MIME_OF_SUFFIX
from agent.uploads.names import suffix_of
from agent.user_messages import printable_character

TAG = "uploaded_files"
MAX_EARLIER = 30
"""Maximum number of earlier files to list; the newest ones are kept."""

_TEXT_HINT = "Read it with read_file (use line ranges if it is long), or search it with grep."


@dataclass(frozen=True, slots=True, kw_only=True)
class FileSummary:
    """One file in the block.

    Attributes:
        size: Bytes.
        markdown: The name of its text version.
        problem: Why a document has no text version.
    """

    name: str
    size: int
    markdown: str | None = None
    problem: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class EarlierFiles:
    """Files from before this message. `left_out` is the number of files that are not listed."""

    files: tuple[FileSummary, ...] = ()
    left_out: int = 0


def uploads_block(
    files: Sequence[FileSummary], earlier: EarlierFiles | None = None, *, sees: bool = False
) -> str:
    """Return the block for one message.

    Args:
        files: The files of the message.
        earlier: Earlier files; None = not listed.
        sees: Whether the model accepts images.
    """
    lines = [
        f"<{TAG}>",
        f"Files attached to this message (in {UPLOADS}):",
        *([line for file in files for line in _entry(file, sees=sees)] or ["(empty)"]),
    ]
    if earlier is not None and earlier.files:
        lines += ["", "Files from earlier in this conversation:"]
        lines += [line for file in earlier.files for line in _short(file)]
        if earlier.left_out:
            lines.append(f"... and {earlier.left_out} older files; list all with ls {UPLOADS}.")
    return "\n".join([*lines, f"</{TAG}>"])


def format_size(size: int) -> str:
    """Return a size with one decimal, in KB below 1 MiB and in MB otherwise.

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
    else:
        lines.append(f"  {_TEXT_HINT}")
    return lines


def _image_hint(*, sees: bool) -> str:
    if sees:
        return "  An image. If you cannot see it here, use view_image."
    return "  An image. You cannot see it, but tools can process the file."


def _path(name: str) -> str:
    return f"{UPLOADS}/{_plain(name)}"


def _plain(text: str) -> str:
    """Return a text as one line without tags, because names and titles are untrusted."""
    return "".join(printable_character(character) for character in text)
