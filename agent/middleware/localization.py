"""Picks the language of the messages that the framework itself sends to users."""

from langchain.agents.middleware.types import ModelRequest, ToolCallRequest
from langchain_core.runnables.config import ensure_config

from agent.locales import AgentMessages, messages_for
from agent.options import language_for_run


def localized_messages(request: ModelRequest | ToolCallRequest) -> AgentMessages:
    """Return the messages in the language of the run that a request belongs to."""
    context = getattr(request.runtime, "context", None)
    return messages_for(language_for_run(context, ensure_config()))
