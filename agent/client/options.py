"""Options of the client and of its turns. Pure."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypedDict
from uuid import UUID, uuid4

from langchain_core.runnables import RunnableConfig

from agent.custom_agents import normalize_agent_name
from agent.middleware.chain import Middleware

ASSISTANT = "lead_agent"
MAX_RECURSION = 1000
"""Largest `recursion_limit`, as for runs over HTTP."""


class TurnOptions(TypedDict, total=False):
    """Options of one turn. The default of each is the value with which the client was opened. See `TurnSettings`."""

    model_name: str | None
    thinking_enabled: bool
    reasoning_effort: str | None
    subagent_enabled: bool
    plan_mode: bool
    agent_name: str | None
    language: str | None
    recursion_limit: int


class ClientOptions(TurnOptions, total=False):
    """Options of a client.

    Attributes:
        available_skills: Names of the skills the agent may use; None = all enabled skills.
        middlewares: Your own LangChain middleware. It runs inside Parley's, closest to the model.
        environment: The deployment's name in traces, such as `production`.
    """

    available_skills: Iterable[str] | None
    middlewares: Sequence[Middleware]
    environment: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnSettings:
    """The settings of a turn.

    Attributes:
        model_name: An entry of `models`; None = the custom agent's, else the first.
        thinking_enabled: Whether the model thinks, if it supports it.
        reasoning_effort: Passed to models that support it.
        subagent_enabled: Whether the agent can delegate.
        plan_mode: Whether the agent keeps a to-do list.
        agent_name: A custom agent, in any case; None = the lead agent.
        language: Language of the framework's own messages (BCP 47); None = English.
        recursion_limit: Maximum number of graph steps. A model call with tool calls takes two.

    Raises:
        AgentInvalid: `agent_name` is invalid.
        ValueError: `recursion_limit` is not between 1 and 1000.
    """

    model_name: str | None = None
    thinking_enabled: bool = True
    reasoning_effort: str | None = None
    subagent_enabled: bool = False
    plan_mode: bool = False
    agent_name: str | None = None
    language: str | None = None
    recursion_limit: int = 100

    def __post_init__(self) -> None:
        if self.agent_name is not None:
            normalize_agent_name(self.agent_name)
        if not 1 <= self.recursion_limit <= MAX_RECURSION:
            raise ValueError(f"recursion_limit must be between 1 and {MAX_RECURSION}")

    def config(self, thread_id: str) -> RunnableConfig:
        """Return the config for a turn's graph, in the form of runs over HTTP."""
        ids = {"thread_id": thread_id, "run_id": str(uuid4())}
        return {
            "configurable": {**self._context(), **ids},
            "metadata": {"graph_id": ASSISTANT, **ids},
            "recursion_limit": self.recursion_limit,
            "run_id": UUID(ids["run_id"]),
            "run_name": ASSISTANT,
        }

    def _context(self) -> Mapping[str, Any]:
        given = {
            "model_name": self.model_name,
            "thinking_enabled": self.thinking_enabled,
            "reasoning_effort": self.reasoning_effort,
            "subagent_enabled": self.subagent_enabled,
            "is_plan_mode": self.plan_mode,
            "agent_name": normalize_agent_name(self.agent_name)
            if self.agent_name is not None
            else None,
            "language": self.language,
        }
        return {key: value for key, value in given.items() if value is not None}
