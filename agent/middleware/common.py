"""Builds the links that steer the calls of model and tools, for the lead agent and for subagents."""

from collections.abc import Sequence
from dataclasses import dataclass

from langchain_core.language_models import BaseChatModel

from agent.config import AgentConfig
from agent.middleware import Middleware
from agent.middleware.llm_retry import LlmRetryMiddleware
from agent.middleware.loop_detection import LoopDetectionMiddleware
from agent.middleware.output_budget import ToolOutputBudgetMiddleware
from agent.middleware.sanitization import SanitizationMiddleware
from agent.middleware.summarization import SummarizationHook, SummarizationMiddleware
from agent.middleware.todo_list import TodoListMiddleware
from agent.middleware.tool_call_repair import ToolCallRepairMiddleware
from agent.models.auxiliary import ModelSource
from agent.models.circuit_breakers import CircuitBreakers
from agent.sandbox.protocol import SandboxProvider


@dataclass(frozen=True, slots=True, kw_only=True)
class Steering:
    """What those links need of the systems around the agent.

    Attributes:
        models: Gives the models to fall back to, and those for work beside the conversation.
        breakers: Which models are to be left alone.
        sandboxes: Where long results of tools are put.
    """

    models: ModelSource
    breakers: CircuitBreakers
    sandboxes: SandboxProvider

    def links(
        self,
        config: AgentConfig,
        model_name: str,
        model: BaseChatModel,
        *,
        is_plan_mode: bool = False,
        before_summarization: Sequence[SummarizationHook] = (),
    ) -> list[Middleware | None]:
        """Return the links that every agent has around its calls.

        Args:
            config: The configuration.
            model_name: The entry of `models` that the agent uses.
            model: That model.
            is_plan_mode: Whether it keeps a to-do list.
            before_summarization: Who wants to know what is about to be left out.

        Raises:
            ModelUnusable: Summaries are configured by fractions of a model of unknown size.
        """
        budget, loops, summaries = config.tool_output, config.loop_detection, config.summarization
        return [
            ToolOutputBudgetMiddleware(budget, self.sandboxes) if budget.enabled else None,
            SanitizationMiddleware(safety=config.safety_finish_reason.enabled),
            SummarizationMiddleware(
                summaries,
                model=model,
                models=self.models,
                skills=config.skills.container_path,
                before_summarization=before_summarization,
            )
            if summaries.enabled
            else None,
            TodoListMiddleware() if is_plan_mode else None,
            LoopDetectionMiddleware(loops) if loops.enabled else None,
            ToolCallRepairMiddleware(),
            LlmRetryMiddleware(
                config.llm_retry,
                names=fallback_order(config, model_name),
                models=self.models,
                breakers=self.breakers,
            ),
        ]


def fallback_order(config: AgentConfig, model_name: str) -> tuple[str, ...]:
    """Return the models to try: the one asked for, then those that follow it in `models`."""
    names = [entry.name for entry in config.chat_models]
    if model_name not in names or not config.llm_retry.fallback:
        return (model_name,)
    return tuple(names[names.index(model_name) :])
