"""The prompt section with the instructions of MCP servers. Pure."""

from collections.abc import Mapping
from html import escape

SECTION_CHARS = 4_000
"""Maximum length of the section, characters: about 1,000 tokens in every request."""

_INTRODUCTION = "How to use the tools of MCP servers, as the servers say:"


def instructions_section(instructions: Mapping[str, str]) -> str:
    r"""Return the prompt section; "" without instructions.

    Args:
        instructions: The instructions of each server.

    >>> print(instructions_section({"docs": "Search <first>."}))
    <mcp_servers>
    How to use the tools of MCP servers, as the servers say:
    <server name="docs">Search &lt;first&gt;.</server>
    </mcp_servers>
    """
    left = SECTION_CHARS
    entries = []
    for server, text in instructions.items():
        shown = text if len(text) <= left else f"{text[:left].rstrip()}…"
        if left > 0:
            entries.append(f'<server name="{escape(server)}">{escape(shown, quote=False)}</server>')
        left -= len(text)
    return (
        "\n".join(["<mcp_servers>", _INTRODUCTION, *entries, "</mcp_servers>"]) if entries else ""
    )
