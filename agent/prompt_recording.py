"""Records the request that a run would send to the model: the same graph, with a model that only listens."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from langchain_core.callbacks import AsyncCallbackManagerForLLMRun, CallbackManagerForLLMRun
from langchain_core.language_models import BaseChatModel, LanguageModelInput
from langchain_core.messages import AIMessage, BaseMessage
from langchain_core.outputs import ChatResult
from langchain_core.runnables import Runnable, RunnableConfig
from langchain_core.tools import BaseTool
from langchain_core.utils.function_calling import convert_to_openai_tool
from typing_extensions import override

from agent.config import AgentConfig, ThreadSize
from agent.factory import AgentFactory
from agent.models.circuit_breakers import CircuitBreakers
from agent.spec import AgentSpec

NEVER = ThreadSize(type="messages", value=1_000_000_000)
"""A thread size that is never reached: a recording must not call the summary model."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelPrompt:
    """A request to the model.

    Attributes:
        model_name: The entry of `models`.
        messages: The system message, then the conversation.
        tools: The tools in OpenAI's form.
    """

    model_name: str
    messages: Sequence[BaseMessage]
    tools: Sequence[Mapping[str, Any]]


class _Recorded(Exception):
    """Ends the run instead of an answer, so that no later step runs."""

    def __init__(self, prompt: ModelPrompt) -> None:
        super().__init__("the prompt is recorded")
        self.prompt = prompt


class RecordingModel(BaseChatModel):
    """Raises an error with its request instead of answering it. Needs no API key."""

    name_in_config: str

    @property
    @override
    def _llm_type(self) -> str:
        return "recording"

    @override
    def bind_tools(
        self, tools: Sequence[dict[str, Any] | type | Callable[..., Any] | BaseTool], **kwargs: Any
    ) -> Runnable[LanguageModelInput, AIMessage]:
        return self.bind(tools=[convert_to_openai_tool(tool) for tool in tools])

    @override
    def _generate(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: CallbackManagerForLLMRun | None = None,
        **kwargs: Any,
    ) -> ChatResult:
        tools = kwargs.get("tools") or ()
        raise _Recorded(ModelPrompt(model_name=self.name_in_config, messages=messages, tools=tools))

    @override
    async def _agenerate(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: AsyncCallbackManagerForLLMRun | None = None,
        **kwargs: Any,
    ) -> ChatResult:
        return self._generate(messages, stop, None, **kwargs)


class PromptRecorder(AgentFactory):
    """Builds the graphs of another factory, with `RecordingModel` in place of the configured models.

    Args:
        agents: The factory.
    """

    def __init__(self, agents: AgentFactory) -> None:
        services = agents.services
        breakers = CircuitBreakers(lambda: services.config.get().circuit_breaker)
        super().__init__(
            replace(services, circuit_breakers=breakers),
            agents.checkpointer,
            revision=replace(agents.revision, config=_without_side_models(agents.revision.config)),
            languages=agents.languages,
        )

    async def record(
        self, config: RunnableConfig, run_input: Mapping[str, Any], context: Mapping[str, Any]
    ) -> ModelPrompt:
        """Return the first request of a run. Does not change the thread's state or files.

        Args:
            config: The run's config.
            run_input: Its input.
            context: Its context.

        Raises:
            AgentError: The run could not start.
        """
        graph = await self.graph_for(config)
        stored = (await graph.aget_state(config)).values if self.checkpointer is not None else {}
        unstored = graph.copy({"checkpointer": None})
        said = [*stored.get("messages", ()), *run_input["messages"]]
        try:
            await unstored.ainvoke({**stored, "messages": said}, config, context=context)
        except _Recorded as recorded:
            return recorded.prompt
        raise RuntimeError("the run ended before it called the model")

    @override
    def create_model(self, spec: AgentSpec) -> BaseChatModel:
        return RecordingModel(name_in_config=spec.model_name)


def _without_side_models(config: AgentConfig) -> AgentConfig:
    """Return a configuration with which a run calls only its own model."""
    summarization = config.summarization.model_copy(update={"trigger": [NEVER]})
    title = config.title.model_copy(update={"enabled": False})
    return config.model_copy(update={"summarization": summarization, "title": title})
