"""What stands around the agent's model and tool calls: one tuple, in order.

The first wraps all others. Nothing here hooks in before or after the model: such a hook is a node of the graph,
which counts against the recursion limit and writes a checkpoint for every model call.
"""

from typing import Any

from langchain.agents.middleware import AgentMiddleware
from langchain_core.language_models import BaseChatModel

from agent.config import TitleConfig
from agent.folders import Folders
from agent.middleware.clarification import ClarificationMiddleware
from agent.middleware.dangling_tool_calls import DanglingToolCallMiddleware
from agent.middleware.thread_data import ThreadDataMiddleware
from agent.middleware.title import TitleMiddleware
from agent.middleware.tool_errors import ToolErrorMiddleware


def middleware_chain(
    *,
    folders: Folders,
    title: TitleConfig,
    title_model: BaseChatModel | None = None,
) -> tuple[AgentMiddleware[Any, Any], ...]:
    """Build the chain of the lead agent.

    Args:
        folders: Where threads have their files.
        title: The `title` section.
        title_model: The model that writes titles; None = no model is asked.
    """
    chain: tuple[AgentMiddleware[Any, Any] | None, ...] = (
        ThreadDataMiddleware(folders),
        DanglingToolCallMiddleware(),
        ToolErrorMiddleware(),
        TitleMiddleware(title, model=title_model) if title.enabled else None,
        ClarificationMiddleware(),
    )
    return tuple(middleware for middleware in chain if middleware is not None)
