"""Removes host paths and keys from error texts. Pure."""

import re

_PATH = re.compile(r"(?<![\w.:/~-])(?:/(?!mnt/)[\w.@+-]+){2,}/?|\b[A-Za-z]:\\\\?[^\s\"']+")
"""A path of the host: at least two segments, and not a path under which the agent knows its files."""

_KEY = re.compile(
    r"\b(?:(?:sk|pk|rk|xox[abeprs]|xapp|gh[opsu]|github_pat|glpat|AKIA|AIza)[-_]?[A-Za-z0-9_-]{12,}"
    r"|[Bb]earer\s+[\w.~+/-]{8,}=*)"
)
"""Tokens as providers write them."""


def mask_secrets(text: str) -> str:
    """Return a text without host paths and keys.

    >>> mask_secrets("cannot read '/root/app/.env': sk-live_0123456789abcdef is wrong")
    "cannot read '(a path)': (a key) is wrong"
    >>> mask_secrets("no such file: /mnt/user-data/outputs/a.txt, see https://example.com/a/b")
    'no such file: /mnt/user-data/outputs/a.txt, see https://example.com/a/b'
    """
    return _KEY.sub("(a key)", _PATH.sub("(a path)", text))
