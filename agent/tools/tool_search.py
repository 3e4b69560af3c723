"""tool_search: loads tools that are not in every request, because all their schemas would take too much space."""

import hashlib
import json
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from langchain.tools import ToolRuntime
from langchain_core.tools import BaseTool, StructuredTool
from langchain_core.utils.function_calling import convert_to_openai_tool
from langgraph.types import Command
from pydantic import BaseModel, Field

from agent.mcp.tool_names import SERVER_KEY
from agent.state import PromotedTools
from agent.token_estimate import estimate_tokens
from agent.tool_names import EXEMPT_KEY, WEB_TOOLS, is_built_in
from agent.tools.results import tool_message

NAME = "tool_search"

MAX_LISTED = 40
"""Up to this many MCP and custom tools are in every request. With more, models choose worse (OpenAI recommends 20)."""

MAX_LISTED_TOKENS = 5_000
"""Limit for the tokens of these tools' schemas."""

MAX_RESULTS = 10
"""Maximum number of tools that one search loads."""

MAX_NAMES_TOKENS = 3_500
"""Maximum tokens of the names in tool_search's description. 500 names of a server and two words each fit."""

DESCRIPTION_CHARS = 160
"""Length of a tool's description in search results, characters. Its schema follows in the next request."""

_NAME_WEIGHT = 3
"""A match in a name says more than a match in a description."""

_SEPARATORS = re.compile(r"[\s,;]+")
_WORD = re.compile(r"[^\W_]+")


class ToolSearchArgs(BaseModel):
    """Arguments of tool_search."""

    query: str = Field(
        description="Exact names, separated by commas, or words to look for in names and descriptions."
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolCatalog:
    """The tools that a model must load before it can see their schemas.

    Attributes:
        tools: The tools by name, in the order of the agent's tools.
        hash: Changes when names or descriptions change.
    """

    tools: dict[str, BaseTool]
    hash: str

    @classmethod
    def of(cls, tools: Sequence[BaseTool]) -> "ToolCatalog | None":
        """Return the MCP and custom tools among an agent's tools; None if they are few enough for every request."""
        found = [
            tool for tool in tools if not is_built_in(tool.name) and tool.name not in WEB_TOOLS
        ]
        if len(found) <= MAX_LISTED and schema_tokens(found) <= MAX_LISTED_TOKENS:
            return None
        digest = hashlib.sha256()
        for tool in found:
            digest.update(f"{tool.name}\0{tool.description}\0".encode("utf-8", "replace"))
        return cls(tools={tool.name: tool for tool in found}, hash=digest.hexdigest()[:16])

    def promoted(self, state: object) -> list[BaseTool]:
        """Return the loaded tools of a thread that still exist, in the order in which they were loaded."""
        return [self.tools[name] for name in promoted_names(state) if name in self.tools]

    def is_loaded(self, state: object) -> bool:
        """Return whether the loaded tools of a thread are from this catalog."""
        promoted = state.get("promoted") if isinstance(state, dict) else None
        return isinstance(promoted, dict) and promoted.get("catalog_hash") == self.hash

    def find(self, query: str) -> list[BaseTool]:
        """Return the tools that a query names. Unless it only names tools, add those that match most of its words."""
        wanted = query.strip().removeprefix("select:")
        by_name = {name.casefold(): tool for name, tool in self.tools.items()}
        parts = dict.fromkeys(_SEPARATORS.split(wanted.casefold()))
        named = [by_name[part].name for part in parts if part in by_name]
        words = list(dict.fromkeys(_WORD.findall(wanted.casefold())))
        scores = {name: _score(tool, words) for name, tool in self.tools.items()}
        found = sorted((name for name in scores if scores[name]), key=lambda name: -scores[name])
        others = found if len(named) < len([part for part in parts if part]) else []
        return [self.tools[name] for name in list(dict.fromkeys([*named, *others]))[:MAX_RESULTS]]

    def names_text(self) -> str:
        """Return the names, one line per server. If there are too many, each line says how many are left out."""
        groups: dict[str, list[str]] = {}
        for name, tool in self.tools.items():
            groups.setdefault(str((tool.metadata or {}).get(SERVER_KEY, "")), []).append(name)
        share = MAX_NAMES_TOKENS // len(groups)
        return "\n".join(_names_within(names, share) for names in groups.values())


def promoted_names(state: object) -> list[str]:
    """Return the names in the state's `promoted`, in order. Clients may have stored anything there.

    >>> promoted_names({"promoted": {"catalog_hash": "h", "names": ["a", 5]}}), promoted_names({"promoted": 3})
    (['a'], [])
    """
    promoted = state.get("promoted") if isinstance(state, dict) else None
    names = promoted.get("names") if isinstance(promoted, dict) else None
    return [name for name in names if isinstance(name, str)] if isinstance(names, list) else []


def schema_tokens(tools: Iterable[BaseTool]) -> int:
    """Estimate the tokens of the tools' schemas in a request."""
    schemas = (json.dumps(convert_to_openai_tool(tool), ensure_ascii=False) for tool in tools)
    return sum(map(estimate_tokens, schemas))


def tool_search_tool(catalog: ToolCatalog) -> BaseTool:
    """Build tool_search over a catalog. It adds tools to `promoted`; the middleware adds these to requests."""

    async def tool_search(query: str, runtime: ToolRuntime) -> Any:  # noqa: ANN401 - a message or a command
        found = catalog.find(query)
        if not found:
            text = f"No tool matches {query[:200]!r}. Try other words, or a name from this tool's description."
            return tool_message(runtime, NAME, text)
        lines = [f"- {tool.name}: {_first_line(tool.description)}" for tool in found]
        text = "Loaded. You can call them now:\n" + "\n".join(lines)
        names = [tool.name for tool in found]
        if not catalog.is_loaded(runtime.state):
            # Tools that were loaded from an earlier catalog stay loaded if they still exist.
            loaded = [tool.name for tool in catalog.promoted(runtime.state)]
            names = [*(name for name in loaded if name not in names), *names]
        promoted = PromotedTools(catalog_hash=catalog.hash, names=names)
        return Command(
            update={"promoted": promoted, "messages": [tool_message(runtime, NAME, text)]}
        )

    return StructuredTool.from_function(
        coroutine=tool_search,
        name=NAME,
        description=(
            f"Load more tools, up to {MAX_RESULTS} at once. There are {len(catalog.tools)} that you can call only "
            "after loading them. They then stay available. Before you say that something is not possible, search "
            f"here. Names:\n{catalog.names_text()}"
        ),
        args_schema=ToolSearchArgs,
        metadata={EXEMPT_KEY: True},
    )


def _score(tool: BaseTool, words: Iterable[str]) -> int:
    name, description = tool.name.casefold(), tool.description.casefold()
    return sum(_NAME_WEIGHT * (word in name) + (word in description) for word in words)


def _names_within(names: Sequence[str], tokens: int) -> str:
    """Return as many names as fit, and the number of the others.

    >>> _names_within(["a", "b"], 9), _names_within(["abcdefgh"] * 9, 5)
    ('a, b', 'abcdefgh, abcdefgh, and 7 more: search by words')
    """
    used = 0
    for count, name in enumerate(names):
        used += estimate_tokens(f"{name}, ")
        if used > tokens + 1:
            return f"{', '.join(names[:count])}, and {len(names) - count} more: search by words"
    return ", ".join(names)


def _first_line(description: str) -> str:
    line = " ".join(description.split())
    return line if len(line) <= DESCRIPTION_CHARS else f"{line[: DESCRIPTION_CHARS - 1]}…"
