"""Restricts a run to the tools that the skills in use allow."""

from collections.abc import Sequence
from typing import Any

from langchain.agents.middleware import AgentMiddleware
from langchain.agents.middleware.types import ToolCallRequest
from langchain_core.messages import ToolMessage
from typing_extensions import override

from agent.middleware.handler_types import ToolHandler, ToolResult
from agent.middleware.skills_in_use import SkillsInUse, tools_left_by
from agent.skills.loader import Skill
from agent.state import ThreadState


class SkillToolsMiddleware(AgentMiddleware[ThreadState, Any]):
    """Rejects calls of tools that are not in `metadata.parley-only-tools` of the skills in use.

    The model's list of tools stays the same, so that providers can cache it.

    Args:
        skills: The skills listed in the agent's prompt.
    """

    def __init__(self, skills: Sequence[Skill]) -> None:
        super().__init__()
        self._skills = SkillsInUse([skill for skill in skills if skill.only_tools is not None])

    @override
    async def awrap_tool_call(self, request: ToolCallRequest, handler: ToolHandler) -> ToolResult:
        in_use = self._skills.find(request.state["messages"])
        allowed = tools_left_by(in_use)
        name = request.tool_call["name"]
        if allowed is None or name in allowed:
            return await handler(request)
        names = ", ".join(sorted(skill.name for skill in in_use))
        return ToolMessage(
            content=(
                f"Error: The skill in use ({names}) does not allow the tool '{name}'. "
                f"Allowed tools: {', '.join(sorted(allowed))}."
            ),
            name=name,
            tool_call_id=request.tool_call["id"] or "",
            status="error",
        )
