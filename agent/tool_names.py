"""Names of tools: ours, which no other tool takes, and how lists of names are matched. Pure."""

from collections.abc import Iterable
from fnmatch import fnmatchcase
from typing import Final

BUILT_IN_TOOLS: Final = frozenset(
    {
        *("ls", "read_file", "glob", "grep", "view_image", "write_file", "str_replace", "bash"),
        *("present_files", "ask_clarification", "write_todos", "task", "setup_agent"),
        "invoke_acp_agent",
    }
)
"""The tools that are Parley's own, whether or not a run has them."""

WEB_TOOLS: Final = frozenset({"web_search", "web_fetch", "image_search"})
"""Tools that the configuration adds under these names; what they may do is known by them."""

EXEMPT_KEY: Final = "guardrail_exempt"
"""Metadata key of our tools that have no effect outside the conversation: they need no approval or capability."""


def matches(name: str, patterns: Iterable[str]) -> bool:
    """Return whether a name is one of a list of names and patterns, without regard to case.

    >>> [matches(name, ["Bash", "github_*"]) for name in ("bash", "GitHub_push", "ls", "")]
    [True, True, False, False]
    """
    folded = name.casefold()
    return any(fnmatchcase(folded, pattern.casefold()) for pattern in patterns)


def is_built_in(name: str) -> bool:
    """Return whether a name is that of a tool of ours, in any case.

    >>> is_built_in("Bash"), is_built_in("web_search")
    (True, False)
    """
    return name.casefold() in BUILT_IN_TOOLS
