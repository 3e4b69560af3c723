"""Enforces the `allowed-tools` of the skills in use."""

from collections.abc import Iterator, Sequence
from typing import Any

from langchain.agents.middleware import AgentMiddleware
from langchain.agents.middleware.types import ToolCallRequest
from langchain_core.messages import AIMessage, AnyMessage, ToolMessage
from typing_extensions import override

from agent.errors import PathNotAllowed
from agent.middleware.handler_types import ToolHandler, ToolResult
from agent.paths import normalize_path
from agent.skills.loader import Skill
from agent.skills.prompt import tools_allowed_by
from agent.state import ThreadState
from agent.user_messages import is_user_message

READ_FILE = "read_file"


class SkillToolsMiddleware(AgentMiddleware[ThreadState, Any]):
    """Rejects calls of tools that the skills in use do not declare.

    A skill is in use from the call that reads its SKILL.md until a person's next message. The model's list of tools
    stays the same, so that providers can cache it.

    Args:
        skills: The skills listed in the agent's prompt.
    """

    def __init__(self, skills: Sequence[Skill]) -> None:
        super().__init__()
        self._skills = {skill.location: skill for skill in skills}

    @override
    async def awrap_tool_call(self, request: ToolCallRequest, handler: ToolHandler) -> ToolResult:
        in_use = {skill.name: skill for skill in self._skills_in_use(request)}
        allowed = tools_allowed_by(in_use.values())
        name = request.tool_call["name"]
        if allowed is None or name in allowed:
            return await handler(request)
        return ToolMessage(
            content=(
                f"Error: The skill in use ({', '.join(in_use)}) does not allow the tool '{name}'. "
                f"Allowed tools: {', '.join(sorted(allowed))}."
            ),
            name=name,
            tool_call_id=request.tool_call["id"] or "",
            status="error",
        )

    def _skills_in_use(self, request: ToolCallRequest) -> Iterator[Skill]:
        messages: Sequence[AnyMessage] = request.state["messages"]
        for message in reversed(messages):
            if is_user_message(message):
                return
            for call in message.tool_calls if isinstance(message, AIMessage) else ():
                # Calls of one message run in parallel: the model made them before it read the skill.
                if call["name"] == READ_FILE and message is not messages[-1]:
                    skill = self._skills.get(_location(call["args"].get("path")))
                    if skill is not None and skill.allowed_tools is not None:
                        yield skill


def _location(path: object) -> str:
    try:
        return normalize_path(path) if isinstance(path, str) else ""
    except PathNotAllowed:
        return ""
