"""Formats tool results for the model: truncates long ones, and turns errors into text."""

import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from langchain.tools import ToolRuntime
from langchain_core.messages import ToolMessage

from agent.errors import AgentError
from agent.options import thread_id_for_run
from agent.sandbox.protocol import Sandbox, SandboxProvider

log = logging.getLogger(__name__)

EMPTY = "(empty)"
MAX_ERROR_CHARS = 600


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolLimits:
    """Limits of the built-in tools.

    Attributes:
        reading_chars: Maximum characters of one read_file; 0 = no limit.
        write_bytes: Largest content of one write_file without append; 0 = no limit.
        command_timeout_s: Time limit of one bash command, seconds.
    """

    reading_chars: int = 50_000
    write_bytes: int = 80_000
    command_timeout_s: float = 600.0


def text_page(text: str, offset: int, limit: int) -> str:
    r"""Return at most `limit` characters of a text. A note at the end says how to continue reading.

    Args:
        text: The text.
        offset: Characters to skip.
        limit: Maximum characters, not counting the note; 0 = no limit.

    >>> text_page("abcdef", 2, 3)
    'cde\n... [characters 2 to 5 of 6; continue with offset=5]'
    >>> text_page("abcdef", 5, 3), text_page("abc", 9, 3)
    ('f', '[offset is beyond the end: there are 3 characters]')
    """
    start = max(offset, 0)
    if start and start >= len(text):
        return f"[offset is beyond the end: there are {len(text)} characters]"
    end = start + limit if limit > 0 else len(text)
    page = text[start:end]
    if end >= len(text):
        return page
    return f"{page}\n... [characters {start} to {end} of {len(text)}; continue with offset={end}]"


def error_text(error: AgentError) -> str:
    """Return an error in the form that the model reads."""
    return f"Error: {error.user_message}"[:MAX_ERROR_CHARS]


def tool_message(
    runtime: ToolRuntime, name: str, text: str, *, failed: bool = False
) -> ToolMessage:
    """Return the tool message for the running tool call."""
    return ToolMessage(
        content=text,
        name=name,
        tool_call_id=runtime.tool_call_id or "",
        status="error" if failed else "success",
    )


async def run_in_sandbox(
    sandboxes: SandboxProvider, runtime: ToolRuntime, work: Callable[[Sandbox], Awaitable[str]]
) -> str:
    """Run work in the thread's sandbox. An AgentError becomes the result `Error: ...`."""
    try:
        sandbox = await sandboxes.acquire(thread_id_for_run(runtime.context, runtime.config))
        return await work(sandbox)
    except AgentError as error:
        log.debug("tool error: %s", error.user_message)
        return error_text(error)
