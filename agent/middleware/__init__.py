"""The middleware around the agent's model and tool calls, in one order. The first one wraps all others.

All of them use only `awrap_model_call` and `awrap_tool_call`. A before/after hook would be a graph node, which counts
against the recursion limit and writes a checkpoint for every model call. Only the async hooks are needed, because the
agent's graphs run asynchronously.
"""

from collections.abc import Sequence
from itertools import groupby
from typing import Any

from langchain.agents.middleware import AgentMiddleware

from agent.middleware.chain import MiddlewareChain
from agent.middleware.chat import ChatMiddleware
from agent.middleware.clarification import ClarificationMiddleware
from agent.middleware.content_blocks import ContentBlocksMiddleware
from agent.middleware.dangling_tool_calls import DanglingToolCallMiddleware
from agent.middleware.file_storage import FileStorageMiddleware
from agent.middleware.guardrails import GuardrailMiddleware
from agent.middleware.llm_retry import LlmRetryMiddleware
from agent.middleware.loop_detection import LoopDetectionMiddleware
from agent.middleware.memory import MemoryMiddleware
from agent.middleware.output_budget import ToolOutputBudgetMiddleware
from agent.middleware.sandbox import SandboxMiddleware
from agent.middleware.sanitization import SanitizationMiddleware
from agent.middleware.skill_tools import SkillToolsMiddleware
from agent.middleware.steering import SteeringMiddleware
from agent.middleware.subagent_limit import SubagentLimitMiddleware
from agent.middleware.summarization import SummarizationMiddleware
from agent.middleware.thread_data import ThreadDataMiddleware
from agent.middleware.title import TitleMiddleware
from agent.middleware.todo_list import TodoListMiddleware
from agent.middleware.tool_call_repair import ToolCallRepairMiddleware
from agent.middleware.tool_errors import ToolErrorMiddleware
from agent.middleware.tool_schemas import ToolSchemaMiddleware
from agent.middleware.turn_limit import TurnLimitMiddleware
from agent.middleware.uploads import UploadsMiddleware
from agent.middleware.view_image import ViewImageMiddleware

Middleware = AgentMiddleware[Any, Any]

MIDDLEWARE_ORDER: tuple[type[Middleware], ...] = (
    SteeringMiddleware,
    FileStorageMiddleware,
    ToolOutputBudgetMiddleware,
    SanitizationMiddleware,
    ThreadDataMiddleware,
    UploadsMiddleware,
    ChatMiddleware,
    SandboxMiddleware,
    DanglingToolCallMiddleware,
    GuardrailMiddleware,
    SkillToolsMiddleware,
    ToolErrorMiddleware,
    SummarizationMiddleware,
    TodoListMiddleware,
    TitleMiddleware,
    MemoryMiddleware,
    ViewImageMiddleware,
    SubagentLimitMiddleware,
    TurnLimitMiddleware,
    LoopDetectionMiddleware,
    ToolCallRepairMiddleware,
    LlmRetryMiddleware,
    ContentBlocksMiddleware,
    ClarificationMiddleware,
    ToolSchemaMiddleware,
)
"""The middleware from the outermost to the innermost."""

_INNERMOST = (ClarificationMiddleware, ToolSchemaMiddleware)


def middleware_stack(
    *middleware: Middleware | None, extra: Sequence[Middleware] = ()
) -> tuple[Middleware, ...]:
    """Return the given middleware in the order of `MIDDLEWARE_ORDER`.

    Args:
        middleware: Parley's own, in any order; None is skipped.
        extra: The embedding program's, in the given order. It goes right outside ClarificationMiddleware and
            ToolSchemaMiddleware, or outside Parley's innermost one.

    Raises:
        ValueError: One of Parley's own is missing in `MIDDLEWARE_ORDER`, or two have the same type or name.
    """
    given = [one for one in middleware if one is not None]
    types = [type(one) for one in given]
    unknown = [one.__name__ for one in types if one not in MIDDLEWARE_ORDER]
    if unknown or len(set(types)) != len(types):
        raise ValueError(f"invalid middleware: {', '.join(unknown) or 'a type is given twice'}")
    ordered = sorted(given, key=lambda one: MIDDLEWARE_ORDER.index(type(one)))
    inner = max(1, sum(type(one) in _INNERMOST for one in ordered))
    ordered[-inner:-inner] = extra
    names = [one.name for one in ordered]
    if duplicates := sorted({name for name in names if names.count(name) > 1}):
        raise ValueError(f"invalid middleware: {duplicates[0]} is given twice")
    return tuple(ordered)


def chain_middleware(stack: Sequence[Middleware]) -> list[Middleware]:
    """Return a stack with Parley's neighboring middleware joined into chains: same order, lower cost per call."""
    joined: list[Middleware] = []
    for is_ours, group in groupby(stack, key=lambda one: type(one) in MIDDLEWARE_ORDER):
        neighbors = list(group)
        joined += [MiddlewareChain(neighbors)] if is_ours and len(neighbors) > 1 else neighbors
    return joined
