"""POST /api/threads/{id}/suggestions: suggested follow-up questions."""

from typing import Annotated, Any
from uuid import UUID

from fastapi import APIRouter
from pydantic import BaseModel, Field

from agent.suggestions import MAX_SUGGESTIONS, ConversationMessage, suggest_follow_ups
from gateway.dependencies import AgentServicesDep

router = APIRouter()

MAX_MESSAGES = 1_000
"""Clients may send whole conversations. Only the newest messages are used."""

TEXT_BLOCK_TYPES = frozenset({"text", "output_text", "input_text"})
"""Types of content blocks with text. Images, tool calls and reasoning are ignored."""


class SuggestionMessage(BaseModel):
    """A message; `content` is text or a list of blocks."""

    role: str = Field(max_length=64)
    content: str | list[str | dict[str, Any]]


class SuggestionsRequest(BaseModel):
    """A conversation, oldest message first."""

    messages: Annotated[list[SuggestionMessage], Field(max_length=MAX_MESSAGES)]
    n: Annotated[int, Field(ge=1, le=MAX_SUGGESTIONS)] = 3
    model_name: str | None = None


class SuggestionsResponse(BaseModel):
    """At most `n` suggestions; empty if the model failed."""

    suggestions: list[str]


@router.post("/threads/{thread_id}/suggestions")
async def create_suggestions(
    thread_id: UUID,  # noqa: ARG001 - only validated
    asked: SuggestionsRequest,
    agent_services: AgentServicesDep,
) -> SuggestionsResponse:
    """Suggest follow-up questions for the messages of the request. Returns an empty list if the model fails."""
    spoken = [
        ConversationMessage(role=one.role, text=message_text(one.content)) for one in asked.messages
    ]
    made = await suggest_follow_ups(
        agent_services.auxiliary_models.get, spoken, count=asked.n, model_name=asked.model_name
    )
    return SuggestionsResponse(suggestions=made)


def message_text(content: str | list[str | dict[str, Any]]) -> str:
    """Return the text of a message's content.

    >>> message_text([{"type": "output_text", "text": "a"}, {"type": "image_url"}, "b"])
    'a b'
    """
    if isinstance(content, str):
        return content
    words = [one if isinstance(one, str) else _block_text(one) for one in content]
    return " ".join(one for one in words if one)


def _block_text(block: dict[str, Any]) -> str:
    text = block.get("text")
    return text if block.get("type") in TEXT_BLOCK_TYPES and isinstance(text, str) else ""
