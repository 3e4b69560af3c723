"""Sends models only the attachments that they accept."""

from typing import Any

from langchain.agents.middleware import AgentMiddleware
from langchain.agents.middleware.types import ModelRequest, ModelResponse
from langchain_core.language_models import BaseChatModel
from typing_extensions import override

from agent.config import AgentConfig
from agent.content_blocks import fit_messages, model_inputs
from agent.middleware.handler_types import ModelHandler
from agent.state import ThreadState


class ContentBlocksMiddleware(AgentMiddleware[ThreadState, Any]):
    """Replaces each attachment that the model does not accept with a line of text, in requests only.

    Otherwise the model class would raise an error for the block, and the thread could not continue. Only
    ToolSchemaMiddleware is further inside, because a fallback model may accept less than the run's model.

    Args:
        config: Says which models support images.
        model: The run's model.
        supports_vision: Whether the run's model supports images.
    """

    def __init__(self, config: AgentConfig, model: BaseChatModel, *, supports_vision: bool) -> None:
        super().__init__()
        self._config = config
        self._name = _provider_name(model)
        self._supports_vision = supports_vision

    @override
    async def awrap_model_call(
        self, request: ModelRequest[Any], handler: ModelHandler
    ) -> ModelResponse[Any]:
        inputs = model_inputs(request.model, supports_vision=self._sees(request.model))
        messages = fit_messages(request.messages, inputs)
        if messages is not request.messages:
            request = request.override(messages=messages)
        return await handler(request)

    def _sees(self, model: BaseChatModel) -> bool:
        name = _provider_name(model)
        if name == self._name:
            return self._supports_vision
        return any(one.supports_vision for one in self._config.chat_models if one.model == name)


def _provider_name(model: BaseChatModel) -> str:
    """Return the name that a model's provider uses for it; "" if its class has none."""
    return str(getattr(model, "model_name", None) or getattr(model, "model", None) or "")
