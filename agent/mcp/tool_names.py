"""Names of MCP tools that every model provider accepts. Pure."""

import hashlib
import re
from collections.abc import Iterable

MAX_CHARS = 64
"""Longest tool name that OpenAI and Anthropic accept. Names may have letters, digits, `_` and `-`."""

SERVER_KEY = "mcp_server"
TOOL_KEY = "mcp_tool"
"""Metadata keys of a tool that hold its server and its name on that server."""

_HASH_CHARS = 6
_FOREIGN = re.compile(r"[^A-Za-z0-9_-]+")


def tool_name(server: str, tool: str) -> str:
    """Return the name of a tool, prefixed with its server. Names that are too long are shortened and get a hash.

    >>> tool_name("git hub", "list.issues")
    'git_hub_list_issues'
    >>> len(tool_name("s", "x" * 100))
    64
    """
    plain = _FOREIGN.sub("_", f"{server}_{tool}")
    return plain if len(plain) <= MAX_CHARS else with_hash(plain, server, tool)


def with_hash(plain: str, server: str, tool: str) -> str:
    """Return a name with a hash of the server and tool."""
    digest = hashlib.sha256(f"{server}\0{tool}".encode()).hexdigest()[:_HASH_CHARS]
    return f"{plain[: MAX_CHARS - _HASH_CHARS - 1]}_{digest}"


def unique_names(
    tools: Iterable[tuple[str, str]], reserved: Iterable[str] = ()
) -> dict[tuple[str, str], str]:
    """Return a unique name for every (server, tool). Of two equal names, only the second gets a hash.

    Args:
        tools: The tools.
        reserved: Names of built-in and configured tools, in upper or lower case. No tool of a server gets one of them.

    >>> sorted(unique_names([("a", "b_c"), ("a_b", "c")]).values())
    ['a_b_c', 'a_b_c_0c1d18']
    >>> unique_names([("Write", "todos")], ["write_todos"])["Write", "todos"]
    'Write_todos_a16e56'
    """
    names: dict[tuple[str, str], str] = {}
    taken = {name.casefold() for name in reserved}
    for server, tool in tools:
        name = tool_name(server, tool)
        if name.casefold() in taken:
            name = with_hash(name, server, tool)
        if name.casefold() not in taken:
            names[server, tool] = name
            taken.add(name.casefold())
    return names
