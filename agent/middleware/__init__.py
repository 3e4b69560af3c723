"""What stands around the agent's model and tool calls: one tuple, in order.

The first wraps all others. Nothing here hooks in before or after the model: such a hook is a node of the graph,
which counts against the recursion limit and writes a checkpoint for every model call.
"""

from collections.abc import Sequence
from typing import Any

from langchain.agents.middleware import AgentMiddleware

from agent.middleware.clarification import ClarificationMiddleware
from agent.middleware.dangling_tool_calls import DanglingToolCallMiddleware
from agent.middleware.guardrails import GuardrailMiddleware
from agent.middleware.llm_retry import LlmRetryMiddleware
from agent.middleware.loop_detection import LoopDetectionMiddleware
from agent.middleware.memory import MemoryMiddleware
from agent.middleware.output_budget import ToolOutputBudgetMiddleware
from agent.middleware.sandbox import SandboxMiddleware
from agent.middleware.sanitization import SanitizationMiddleware
from agent.middleware.steering import SteeringMiddleware
from agent.middleware.subagent_limit import SubagentLimitMiddleware
from agent.middleware.summarization import SummarizationMiddleware
from agent.middleware.thread_data import ThreadDataMiddleware
from agent.middleware.title import TitleMiddleware
from agent.middleware.todo_list import TodoListMiddleware
from agent.middleware.tool_call_repair import ToolCallRepairMiddleware
from agent.middleware.tool_errors import ToolErrorMiddleware
from agent.middleware.turn_limit import TurnLimitMiddleware
from agent.middleware.uploads import UploadsMiddleware
from agent.middleware.view_image import ViewImageMiddleware

Middleware = AgentMiddleware[Any, Any]

MIDDLEWARE_ORDER: tuple[type[Middleware], ...] = (
    SteeringMiddleware,
    ToolOutputBudgetMiddleware,
    SanitizationMiddleware,
    ThreadDataMiddleware,
    UploadsMiddleware,
    SandboxMiddleware,
    DanglingToolCallMiddleware,
    GuardrailMiddleware,
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
    ClarificationMiddleware,
)
"""The places in the chain, outermost first. Each holds one middleware or none."""


def middleware_stack(
    *links: Middleware | None, further: Sequence[Middleware] = ()
) -> tuple[Middleware, ...]:
    """Return the middleware given, in the order of the chain; None is left out.

    Args:
        links: Ours.
        further: Of whoever embeds the agent: it stands before the last of ours, in the order given.

    Raises:
        ValueError: One of ours has no place in the chain, or two have the same; or two have the same name.
    """
    given = [link for link in links if link is not None]
    kinds = [type(link) for link in given]
    strangers = [kind.__name__ for kind in kinds if kind not in MIDDLEWARE_ORDER]
    if strangers or len(set(kinds)) != len(kinds):
        raise ValueError(f"not a chain: {', '.join(strangers) or 'a place is taken twice'}")
    ordered = sorted(given, key=lambda link: MIDDLEWARE_ORDER.index(type(link)))
    ordered[-1:-1] = further
    names = [link.name for link in ordered]
    if twice := sorted({name for name in names if names.count(name) > 1}):
        raise ValueError(f"not a chain: the middleware {twice[0]} is there twice")
    return tuple(ordered)
