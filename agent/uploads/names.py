"""Names of uploaded files: sanitizing and numbering. Pure."""

import re
import unicodedata
from pathlib import PurePosixPath

from agent.user_messages import printable_character

MAX_NAME_BYTES = 255
"""Linux: NAME_MAX."""

MAX_SUFFIX_BYTES = 32
"""Longest suffix to keep, bytes. Longer suffixes are shortened with the name."""

CONVERTIBLE = frozenset({".pdf", ".ppt", ".pptx", ".xls", ".xlsx", ".doc", ".docx"})
"""Suffixes of documents that are converted to Markdown."""

_STAGING = re.compile(r"\.upload-.*\.part", re.DOTALL)


def safe_name(raw: str) -> str | None:
    r"""Return a safe name for a file, or None if it has none.

    Only the last part of a path is used. If it is too long, it is shortened before its suffix. Invisible characters and
    angle brackets become underscores, because brackets could forge the tags around a list of files.

    >>> safe_name("C:\\docs\\plan.txt"), safe_name("../../etc/passwd"), safe_name("a\n<b>.txt")
    ('plan.txt', 'passwd', 'a__b_.txt')
    >>> safe_name(".."), safe_name(""), safe_name("x" * 256 + ".txt")[-6:]
    (None, None, 'xx.txt')
    """
    base = unicodedata.normalize("NFC", re.split(r"[/\\]", raw)[-1]).strip()
    name = "".join(printable_character(character) for character in base)
    if name in ("", ".", "..") or is_staging(name):
        return None
    try:
        encoded = name.encode("utf-8")
    except UnicodeEncodeError:
        return None
    if len(encoded) <= MAX_NAME_BYTES:
        return name
    path = PurePosixPath(name)
    if len(path.suffix.encode()) > MAX_SUFFIX_BYTES:
        return _fitted(name, "")
    return _fitted(path.stem, path.suffix)


def is_basename(name: str) -> bool:
    """Return whether this is a plain name, not a path.

    >>> is_basename("a.txt"), is_basename("../a.txt"), is_basename("..")
    (True, False, False)
    """
    return name not in ("", ".", "..") and not re.search(r"[/\\\0]", name)


def is_staging(name: str) -> bool:
    """Return whether this is the temporary name of an incomplete upload.

    >>> is_staging(".upload-1a2b.part")
    True
    """
    return _STAGING.fullmatch(name) is not None


def suffix_of(name: str) -> str:
    """Return the suffix in lower case, with its dot, or "".

    >>> suffix_of("Plan.PDF")
    '.pdf'
    """
    return PurePosixPath(name).suffix.lower()


def numbered(name: str, number: int) -> str:
    """Return the name with a number before its suffix, shortened if necessary. 0 changes nothing.

    >>> numbered("a.tar.gz", 1), numbered("a.txt", 0)
    ('a.tar_1.gz', 'a.txt')
    """
    if number == 0:
        return name
    path = PurePosixPath(name)
    return _fitted(path.stem, f"_{number}{path.suffix}")


def markdown_name(document: str) -> str:
    """Return the preferred name of a document's text version.

    >>> markdown_name("Plan.v2.pdf")
    'Plan.v2.md'
    """
    return _fitted(PurePosixPath(document).stem, ".md")


def _fitted(stem: str, end: str) -> str:
    room = MAX_NAME_BYTES - len(end.encode())
    return stem.encode()[:room].decode("utf-8", "ignore") + end
