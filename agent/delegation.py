"""Builds the graphs of subagents out of what the delegating agent has: its model, tools, skills and guards."""

from collections.abc import Sequence
from dataclasses import dataclass

import anyio
import anyio.to_thread
from langchain.agents import create_agent
from langchain_core.language_models import BaseChatModel
from langchain_core.tools import BaseTool

from agent.config import AgentConfig
from agent.config.subagents import INHERIT
from agent.guardrails.protocol import GuardrailProvider
from agent.middleware import Middleware, middleware_stack
from agent.middleware.common import Steering
from agent.middleware.dangling_tool_calls import DanglingToolCallMiddleware
from agent.middleware.guardrails import guardrail_middleware
from agent.middleware.thread_data import ThreadDataMiddleware
from agent.middleware.tool_errors import ToolErrorMiddleware
from agent.middleware.turn_limit import TurnLimitMiddleware
from agent.middleware.view_image import ViewImageMiddleware
from agent.models.factory import create_chat_model
from agent.prompt import subagent_prompt
from agent.services import AgentServices
from agent.skills.loader import Skill
from agent.skills.prompt import filter_tools, select_skills, skills_section
from agent.state import ThreadState
from agent.subagents.executor import SubagentGraph
from agent.subagents.subagent_types import SubagentType, available_types, configured_types
from agent.subagents.tool import task_tool
from agent.tools.view_image import NAME as VIEW_IMAGE

MAX_GRAPHS = 16
"""How many graphs of subagents one lead agent keeps; a model that asks for odd `max_turns` makes many."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Principal:
    """The agent that delegates.

    Attributes:
        config: The configuration that it was built with.
        model_name: Its model.
        tools: Its tools, without `task`.
        skills: The skills that it is told of.
        guardrail: Who gives leave to its tool calls; None = nobody is asked.
    """

    config: AgentConfig
    model_name: str
    tools: Sequence[BaseTool]
    skills: tuple[Skill, ...] = ()
    guardrail: GuardrailProvider | None = None


class Delegation:
    """What one agent may delegate, and the graphs that do it; each is built when it is first needed."""

    def __init__(self, systems: AgentServices, principal: Principal) -> None:
        self._systems = systems
        self._principal = principal
        self._graphs: dict[SubagentType, SubagentGraph] = {}
        self._building = anyio.Lock()
        self.kinds = available_types(configured_types(principal.config.subagents), principal.tools)

    def tool(self) -> BaseTool:
        """Build `task`."""
        return task_tool(self._systems.subagents, self.kinds, self._graph)

    async def _graph(self, kind: SubagentType) -> SubagentGraph:
        """Return the graph of a kind.

        Raises:
            AgentError: Its model cannot be used.
        """
        async with self._building:
            if kind not in self._graphs:
                if len(self._graphs) >= MAX_GRAPHS:
                    self._graphs.clear()
                self._graphs[kind] = await self._build(kind)
            return self._graphs[kind]

    async def _build(self, kind: SubagentType) -> SubagentGraph:
        principal = self._principal
        skills = select_skills(principal.skills, kind.skills)
        tools = filter_tools(kind.select_tools(principal.tools), skills)
        model = await anyio.to_thread.run_sync(self._model, kind)
        return create_agent(
            model,
            [tool for tool in tools if tool.name != VIEW_IMAGE or self._sees(kind)],
            system_prompt=subagent_prompt(kind.system_prompt, skills_section(skills)),
            middleware=middleware_stack(*self._links(kind, model)),
            state_schema=ThreadState,
            checkpointer=False,
        )

    def _model_name(self, kind: SubagentType) -> str:
        return self._principal.model_name if kind.model == INHERIT else kind.model

    def _model(self, kind: SubagentType) -> BaseChatModel:
        return create_chat_model(
            self._principal.config,
            self._model_name(kind),
            thinking_enabled=False,
            connections=self._systems.model_http_client,
        )

    def _sees(self, kind: SubagentType) -> bool:
        entry = self._principal.config.model_named(self._model_name(kind))
        return entry is not None and entry.supports_vision

    def _links(self, kind: SubagentType, model: BaseChatModel) -> list[Middleware | None]:
        """Return what stands around a subagent's calls: the lead agent's guards, nothing that speaks to people.

        The sandbox's link is left out: it lets the sandbox rest after a final answer, and the parent still works.
        """
        systems, config = self._systems, self._principal.config
        steering = Steering(
            models=systems.auxiliary_models.get,
            breakers=systems.circuit_breakers,
            sandboxes=systems.sandboxes,
        )
        return [
            *steering.links(config, self._model_name(kind), model),
            ThreadDataMiddleware(systems.folders),
            DanglingToolCallMiddleware(),
            guardrail_middleware(config.guardrails, self._principal.guardrail, is_subagent=True),
            ToolErrorMiddleware(),
            ViewImageMiddleware(systems.folders) if self._sees(kind) else None,
            TurnLimitMiddleware(kind.max_turns),
        ]
