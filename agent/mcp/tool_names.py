"""Names of MCP tools that every provider of models takes. Pure."""

import hashlib
import re
from collections.abc import Iterable
from typing import Final

MAX_CHARS: Final = 64
"""OpenAI's and Anthropic's limit of a tool's name; letters, digits, `_` and `-`."""

_HASH_CHARS: Final = 6
_FOREIGN = re.compile(r"[^A-Za-z0-9_-]+")


def tool_name(server: str, tool: str) -> str:
    """Return the name of a server's tool: prefixed by the server, cut and marked where it is too long.

    >>> tool_name("git hub", "list.issues")
    'git_hub_list_issues'
    >>> len(tool_name("s", "x" * 100))
    64
    """
    plain = _FOREIGN.sub("_", f"{server}_{tool}")
    return plain if len(plain) <= MAX_CHARS else with_hash(plain, server, tool)


def with_hash(plain: str, server: str, tool: str) -> str:
    """Return a name made distinct by a mark that only this tool of this server has."""
    mark = hashlib.sha256(f"{server}\0{tool}".encode()).hexdigest()[:_HASH_CHARS]
    return f"{plain[: MAX_CHARS - _HASH_CHARS - 1]}_{mark}"


def unique_names(tools: Iterable[tuple[str, str]]) -> dict[tuple[str, str], str]:
    """Return a name for every (server, tool), no name twice; the first of two alike keeps the plain one.

    >>> sorted(unique_names([("a", "b_c"), ("a_b", "c")]).values())
    ['a_b_c', 'a_b_c_0c1d18']
    """
    names: dict[tuple[str, str], str] = {}
    taken: set[str] = set()
    for server, tool in tools:
        name = tool_name(server, tool)
        if name in taken:
            name = with_hash(name, server, tool)
        if name not in taken:
            names[server, tool] = name
            taken.add(name)
    return names
