"""Answers requests from MCP servers to Parley's model (sampling), if the server may send them."""

import logging
from collections.abc import Awaitable, Callable

from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, AnyMessage, HumanMessage, SystemMessage
from mcp.types import (
    INTERNAL_ERROR,
    CreateMessageRequestParams,
    CreateMessageResult,
    ErrorData,
    TextContent,
)

from agent.models.auxiliary import auxiliary_run_config

log = logging.getLogger(__name__)

MAX_TOKENS = 4_096
"""Longest answer, tokens. The operator pays for it."""

SamplingModel = Callable[[], Awaitable[BaseChatModel]]


async def sample(
    model: SamplingModel, params: CreateMessageRequestParams
) -> CreateMessageResult | ErrorData:
    """Return the model's answer. Passes on text only."""
    messages: list[AnyMessage] = [SystemMessage(params.systemPrompt)] if params.systemPrompt else []
    for message in params.messages:
        blocks = message.content if isinstance(message.content, list) else [message.content]
        text = "\n".join(block.text for block in blocks if isinstance(block, TextContent))
        messages.append(AIMessage(text) if message.role == "assistant" else HumanMessage(text))
    try:
        answer = await (await model()).ainvoke(
            messages,
            auxiliary_run_config("mcp_sampling"),
            stop=params.stopSequences,
            max_tokens=min(params.maxTokens, MAX_TOKENS),
        )
    except Exception:
        log.warning("the model failed to answer an MCP server", exc_info=True)
        return ErrorData(code=INTERNAL_ERROR, message="the model is not available")
    content = TextContent(type="text", text=str(answer.text))
    name = str(answer.response_metadata.get("model_name") or "unknown")
    return CreateMessageResult(role="assistant", content=content, model=name, stopReason="endTurn")
