"""Finds configured names and patterns that match no tool and therefore protect nothing. Pure."""

import re
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass

from typing_extensions import override

from agent.config import AgentConfig
from agent.guardrails.factory import SHORT_NAMES
from agent.mcp.tool_names import MAX_CHARS, tool_name
from agent.tool_names import BUILT_IN_TOOLS, matches

_WILDCARD = re.compile(r"[*?[]")

_PROVIDER_KEYS = {
    "allowlist": ("allowed_tools", "denied_tools"),
    "oap": ("capabilities",),
}
"""The keys of `guardrails.provider.config` that list tools, by provider."""


@dataclass(frozen=True, slots=True, kw_only=True)
class UnmatchedName:
    """A name or pattern that matches no known tool.

    Attributes:
        path: Where it is in the configuration, such as `guardrails.ask`.
        servers: The MCP servers whose unknown tools may include such a tool; () = no server can have it.
    """

    path: str
    name: str
    servers: tuple[str, ...] = ()

    @override
    def __str__(self) -> str:
        if not self.servers:
            return f"{self.path}: no tool is named {self.name!r}, so this has no effect"
        servers = ", ".join(map(repr, self.servers))
        return (
            f"{self.path}: whether a tool is named {self.name!r} is unknown: "
            f"the tools of the MCP server {servers} are not known"
        )


def find_unmatched_names(
    config: AgentConfig, tools: Collection[str], unknown_servers: Collection[str]
) -> list[UnmatchedName]:
    """Return the listed names that match no tool.

    Args:
        config: The configuration.
        tools: The names of configured tools and of known tools of MCP servers.
        unknown_servers: The MCP servers whose tools are not known.
    """
    known = {*BUILT_IN_TOOLS, *tools}
    return [
        UnmatchedName(
            path=path,
            name=name,
            servers=tuple(one for one in sorted(unknown_servers) if _may_have(one, name)),
        )
        for path, name in _listed_names(config)
        if not any(matches(tool, [name]) for tool in known)
    ]


def _listed_names(config: AgentConfig) -> Iterator[tuple[str, str]]:
    """Yield (path, name or pattern) for each entry of all lists of tools."""
    guard = config.guardrails
    if guard.enabled:
        yield from (("guardrails.ask", name) for name in guard.ask)
    if guard.enabled and guard.provider is not None:
        uses = {path: short for short, path in SHORT_NAMES.items()}
        short = uses.get(guard.provider.use, guard.provider.use)
        for key in _PROVIDER_KEYS.get(short, ()):
            listed = guard.provider.config.get(key)
            for name in listed if isinstance(listed, list | tuple | Mapping) else ():
                if isinstance(name, str):
                    yield f"guardrails.provider.config.{key}", name
    for kind, entry in config.subagents.custom_agents.items():
        path = f"subagents.custom_agents.{kind}"
        yield from ((f"{path}.tools", name) for name in entry.tools or ())
        yield from ((f"{path}.disallowed_tools", name) for name in entry.disallowed_tools)


def _may_have(server: str, pattern: str) -> bool:
    """Return whether a server's tool can match a pattern. A tool's name begins with the server's name.

    >>> [_may_have("GitHub", name) for name in ("github_push", "git*", "*_push", "github", "bash", "gitlab_*")]
    [True, True, True, False, False, False]
    """
    prefix = tool_name(server, "").casefold()[: MAX_CHARS // 2]
    literal, *rest = _WILDCARD.split(pattern.casefold(), maxsplit=1)
    if literal.startswith(prefix):
        return bool(rest) or len(literal) > len(prefix)
    return bool(rest) and prefix.startswith(literal)
