"""Names of built-in tools, which no other tool may use, and matching of names with lists. Pure."""

from collections.abc import Iterable
from fnmatch import fnmatchcase

BUILT_IN_TOOLS = frozenset(
    {
        *("ls", "read_file", "glob", "grep", "view_image", "write_file", "str_replace", "bash"),
        *("present_files", "ask_clarification", "write_todos", "task", "setup_agent"),
        *("invoke_acp_agent", "recall", "schedule"),
        *("bash_output", "kill_bash"),
        *("tool_search", "list_mcp_resources", "read_mcp_resource", "get_mcp_prompt"),
    }
)
"""The names of all built-in tools, whether or not a run has them."""

BASH_PROCESS_TOOLS = frozenset({"bash_output", "kill_bash"})
"""The tools for processes that `bash` starts in the background. They do nothing without `bash`."""

WEB_TOOLS = frozenset({"web_search", "web_fetch", "image_search"})
"""Names under which the configuration adds tools. Rules about tools refer to these names."""

EXEMPT_KEY = "guardrail_exempt"
"""Metadata key of built-in tools without effects outside the conversation. They need no approval or capability."""


def matches(name: str, patterns: Iterable[str]) -> bool:
    """Return whether a name matches a list of names and patterns, ignoring case.

    >>> [matches(name, ["Bash", "github_*"]) for name in ("bash", "GitHub_push", "ls", "")]
    [True, True, False, False]
    """
    folded = name.casefold()
    return any(fnmatchcase(folded, pattern.casefold()) for pattern in patterns)


def is_allowed(name: str, patterns: Iterable[str]) -> bool:
    """Return whether a list of allowed tools contains a name. `bash` also allows the tools for its processes.

    >>> [is_allowed(name, ["bash"]) for name in ("bash", "kill_bash", "ls")], is_allowed("bash", ["bash_output"])
    ([True, True, False], False)
    """
    listed = tuple(patterns)
    return matches(name, listed) or (name in BASH_PROCESS_TOOLS and matches("bash", listed))


def is_built_in(name: str) -> bool:
    """Return whether a built-in tool has this name, in any case.

    >>> is_built_in("Bash"), is_built_in("web_search")
    (True, False)
    """
    return name.casefold() in BUILT_IN_TOOLS
