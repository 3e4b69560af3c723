"""Formats tool results for the model: truncation, errors as text. Nothing here raises to the model."""

import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from langchain.tools import ToolRuntime
from langchain_core.messages import ToolMessage

from agent.errors import AgentError
from agent.options import thread_id_for_run
from agent.sandbox.protocol import Sandbox, SandboxProvider

logger = logging.getLogger(__name__)

EMPTY = "(empty)"
MAX_ERROR_CHARS = 600


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolLimits:
    """Result sizes of the file tools, characters; `write_bytes` limits one write_file without append. 0 = no limit."""

    listing_chars: int = 20_000
    reading_chars: int = 50_000
    write_bytes: int = 80_000


def truncate_end(text: str, limit: int, hint: str = "") -> str:
    """Keep the start of a text; the result, including its closing note, has at most `limit` characters.

    Args:
        text: The text.
        limit: Characters; 0 = no limit.
        hint: How to get the rest.

    >>> truncate_end("abc", 3)
    'abc'
    >>> len(truncate_end("x" * 500, 100, "use a range"))
    100
    """
    if limit <= 0 or len(text) <= limit:
        return text
    # The note contains the number of characters: measured with the longest possible one.
    room = max(0, limit - len(_note(len(text), hint)))
    return (text[:room] + _note(len(text) - room, hint))[:limit]


def truncate_middle(text: str, limit: int) -> str:
    """Keep both ends of a text; the result, including the note between, has at most `limit` characters.

    >>> truncate_middle("a" * 300 + "b" * 300, 100)[-5:]
    'bbbbb'
    """
    if limit <= 0 or len(text) <= limit:
        return text
    room = max(0, limit - len(_note(len(text), "")) - 1)
    head, tail = room - room // 2, room // 2
    note = _note(len(text) - room, "") + "\n"
    return (text[:head] + note + (text[-tail:] if tail else ""))[:limit]


def _note(dropped: int, hint: str) -> str:
    return f"\n... [{dropped} characters left out{'; ' + hint if hint else ''}]"


def error_text(error: AgentError) -> str:
    """Return an error as the model reads it."""
    return f"Error: {error.user_message}"[:MAX_ERROR_CHARS]


def tool_message(
    runtime: ToolRuntime, name: str, text: str, *, failed: bool = False
) -> ToolMessage:
    """Return the answer to the tool call that is running."""
    return ToolMessage(
        content=text,
        name=name,
        tool_call_id=runtime.tool_call_id or "",
        status="error" if failed else "success",
    )


async def run_in_sandbox(
    sandboxes: SandboxProvider, runtime: ToolRuntime, work: Callable[[Sandbox], Awaitable[str]]
) -> str:
    """Run work in the thread's sandbox; an AgentError becomes the result, `Error: ...`."""
    try:
        sandbox = await sandboxes.acquire(thread_id_for_run(runtime.context, runtime.config))
        return await work(sandbox)
    except AgentError as error:
        logger.debug("tool error: %s", error.user_message)
        return error_text(error)
