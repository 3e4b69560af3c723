"""Assembles the lead agent of a blueprint: model, tools, prompt and middleware into a graph.

`recursion_limit` counts the graph's steps, not model calls. This chain adds no nodes, so a model call that
calls tools costs two steps: the 100 that sessions ask for by default are 50 model calls (measured; with one hook
before and one after the model it would be 25).
"""

from collections.abc import Sequence
from typing import Any

import anyio.to_thread
from langchain.agents import create_agent
from langchain_core.language_models import BaseChatModel
from langchain_core.tools import BaseTool
from langgraph.checkpoint.base import BaseCheckpointSaver
from langgraph.graph.state import CompiledStateGraph

from agent.delegation import Delegation, Principal
from agent.middleware import Middleware, middleware_stack
from agent.middleware.clarification import ClarificationMiddleware
from agent.middleware.common import Steering
from agent.middleware.dangling_tool_calls import DanglingToolCallMiddleware
from agent.middleware.guardrails import guardrail_middleware
from agent.middleware.memory import MemoryMiddleware
from agent.middleware.sandbox import SandboxMiddleware
from agent.middleware.steering import SteeringMiddleware
from agent.middleware.subagent_limit import SubagentLimitMiddleware
from agent.middleware.thread_data import ThreadDataMiddleware
from agent.middleware.title import TitleMiddleware
from agent.middleware.tool_errors import ToolErrorMiddleware
from agent.middleware.turn_limit import TurnLimitMiddleware
from agent.middleware.uploads import UploadsMiddleware
from agent.middleware.view_image import ViewImageMiddleware
from agent.models.factory import create_chat_model
from agent.prompt import system_prompt
from agent.services import AgentServices
from agent.spec import AgentOverrides, AgentSpec
from agent.state import ThreadState
from agent.tools.bash import BASH, ShellLimits
from agent.tools.registry import built_in_tools, deduplicate_tools
from agent.tools.results import ToolLimits
from agent.tools.setup_agent import setup_agent_tool
from agent.tools.view_image import view_image_tool

AgentGraph = CompiledStateGraph[Any, Any, Any, Any]


class Assembly:
    """Builds graphs.

    Args:
        systems: What all runs share.
        checkpointer: Keeps threads; None = the caller's own.
        tailoring: What is made of the agent beside the configuration.
    """

    def __init__(
        self,
        systems: AgentServices,
        checkpointer: BaseCheckpointSaver[Any] | None,
        tailoring: AgentOverrides,
    ) -> None:
        self._systems = systems
        self._checkpointer = checkpointer
        self._tailoring = tailoring

    async def build(self, plan: AgentSpec) -> AgentGraph:
        """Build the graph of a blueprint.

        Raises:
            ModelUnusable: The model's entry cannot be used.
        """
        model = await anyio.to_thread.run_sync(self._model, plan)
        tools = deduplicate_tools(self._tools(plan))
        at_once = plan.options.max_concurrent_subagents
        delegation = self._delegation(plan, tools) if at_once else None
        return create_agent(
            model,
            tools if delegation is None else deduplicate_tools([*tools, delegation.tool()]),
            system_prompt=system_prompt(
                plan.options,
                kinds=delegation.kinds if delegation else (),
                further=plan.persona.sections,
                has_bash=any(tool.name == BASH for tool in tools),
            ),
            middleware=middleware_stack(
                *await self._links(plan),
                *self._file_links(plan),
                *self._steering_links(plan, model),
                SubagentLimitMiddleware(at_once) if at_once else None,
                further=self._tailoring.middlewares,
            ),
            state_schema=ThreadState,
            checkpointer=self._checkpointer,
        )

    def _model(self, plan: AgentSpec) -> BaseChatModel:
        return create_chat_model(
            plan.config_revision.config,
            plan.model_name,
            thinking_enabled=plan.options.thinking_enabled,
            reasoning_effort=plan.options.reasoning_effort,
            connections=self._systems.model_http_client,
        )

    def _tools(self, plan: AgentSpec) -> list[BaseTool]:
        """Return all tools of one graph; where a name stands twice, the first holds."""
        systems, edition, persona = self._systems, plan.config_revision, plan.persona
        sandbox = edition.config.sandbox
        limits = ToolLimits(
            listing_chars=sandbox.ls_output_max_chars,
            reading_chars=sandbox.read_file_output_max_chars,
            write_bytes=sandbox.write_file_max_bytes,
        )
        shell = ShellLimits(
            timeout_s=sandbox.bash_command_timeout, output_chars=sandbox.bash_output_max_chars
        )
        return persona.permitted(
            [
                *persona.configured(edition.config.tools, edition.configured_tools),
                *built_in_tools(systems.sandboxes, limits, shell),
                *([view_image_tool(systems.folders)] if plan.supports_vision else ()),
                *([setup_agent_tool(systems.custom_agents)] if plan.options.is_bootstrap else ()),
                *plan.mcp.tools,
                *systems.acp_agents.tools(edition.config.acp_agents),
            ]
        )

    def _delegation(self, plan: AgentSpec, tools: Sequence[BaseTool]) -> Delegation:
        principal = Principal(
            config=plan.config_revision.config,
            model_name=plan.model_name,
            tools=tools,
            skills=plan.persona.skills,
            guardrail=plan.config_revision.guardrail,
        )
        return Delegation(self._systems, principal)

    async def _links(self, plan: AgentSpec) -> list[Middleware | None]:
        systems, config = self._systems, plan.config_revision.config
        title = config.title
        title_model = (
            await systems.auxiliary_models.get(title.model_name) if title.model_name else None
        )
        return [
            SteeringMiddleware(),
            ThreadDataMiddleware(systems.folders),
            SandboxMiddleware(systems.sandboxes),
            DanglingToolCallMiddleware(),
            guardrail_middleware(config.guardrails, plan.config_revision.guardrail),
            ToolErrorMiddleware(),
            TitleMiddleware(title, model=title_model) if title.enabled else None,
            MemoryMiddleware(systems.memory),
            TurnLimitMiddleware(),
            ClarificationMiddleware(),
        ]

    def _file_links(self, plan: AgentSpec) -> list[Middleware | None]:
        return [
            UploadsMiddleware(self._systems.uploads.snapshots, sees=plan.supports_vision),
            ViewImageMiddleware(self._systems.folders) if plan.supports_vision else None,
        ]

    def _steering_links(self, plan: AgentSpec, model: BaseChatModel) -> list[Middleware | None]:
        systems = self._systems
        steering = Steering(
            models=systems.auxiliary_models.get,
            breakers=systems.circuit_breakers,
            sandboxes=systems.sandboxes,
        )
        return steering.links(
            plan.config_revision.config,
            plan.model_name,
            model,
            is_plan_mode=plan.options.is_plan_mode,
            before_summarization=[systems.memory.before_summarization],
        )
