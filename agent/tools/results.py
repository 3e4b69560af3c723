"""How tools answer the model: texts within a limit, errors as texts. Nothing here raises to the model."""

import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from langchain.tools import ToolRuntime

from agent.errors import AgentError
from agent.options import thread_id_for_run
from agent.sandbox.protocol import Sandbox, SandboxProvider

logger = logging.getLogger(__name__)

EMPTY = "(empty)"


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolLimits:
    """Sizes of tool answers, characters; 0 = no limit. `write_bytes`: of one write_file without append."""

    listing_chars: int = 20_000
    reading_chars: int = 50_000
    write_bytes: int = 80_000


def truncate_end(text: str, limit: int, hint: str = "") -> str:
    """Keep the head of a text so that the result, with its closing note, has at most `limit` characters.

    Args:
        text: What to cut.
        limit: Characters; 0 = no limit.
        hint: What the reader can do about the rest.

    >>> truncate_end("abc", 3)
    'abc'
    >>> len(truncate_end("x" * 500, 100, "use a range"))
    100
    """
    if limit <= 0 or len(text) <= limit:
        return text
    # The note's own length depends on the number in it: measured with the longest it can be.
    room = max(0, limit - len(_note(len(text), hint)))
    return (text[:room] + _note(len(text) - room, hint))[:limit]


def truncate_middle(text: str, limit: int) -> str:
    """Keep both ends of a text so that the result, with the note between, has at most `limit` characters.

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


async def run_in_sandbox(
    sandboxes: SandboxProvider, runtime: ToolRuntime, work: Callable[[Sandbox], Awaitable[str]]
) -> str:
    """Do file work in the thread's sandbox; an error of ours becomes the answer, `Error: ...`."""
    try:
        sandbox = await sandboxes.acquire(thread_id_for_run(runtime.context, runtime.config))
        return await work(sandbox)
    except AgentError as error:
        logger.debug("a tool answered with an error: %s", error.user_message)
        return f"Error: {error.user_message}"[:600]
