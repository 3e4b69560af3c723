"""Adds sections to a request's system message (several providers reject a second one), and reminders to its end."""

from typing import Any

from langchain.agents.middleware.types import ModelRequest
from langchain_core.messages import HumanMessage, SystemMessage

STABLE_CHARS = "stable_chars"
"""Key of a system message's `additional_kwargs`: length of the beginning that stays the same in a conversation."""


def append_to_system_message(system: SystemMessage | None, added: str) -> SystemMessage:
    r"""Return the system message with another section at its end.

    >>> append_to_system_message(SystemMessage("You cook."), "You bake.").content
    'You cook.\n\nYou bake.'
    """
    if system is None:
        return SystemMessage(added)
    if isinstance(system.content, str):
        return system.model_copy(update={"content": f"{system.content}\n\n{added}"})
    block = {"type": "text", "text": f"\n\n{added}"}
    return system.model_copy(update={"content": [*system.content, block]})


def append_changing_part(system: SystemMessage | None, added: str) -> SystemMessage:
    """Like `append_to_system_message`, for a section that may change during a conversation.

    >>> append_changing_part(SystemMessage("You cook."), "It is Monday.").additional_kwargs
    {'stable_chars': 9}
    """
    extended = append_to_system_message(system, added)
    stable = len(system.content) if system is not None and isinstance(system.content, str) else 0
    marks = {STABLE_CHARS: stable, **extended.additional_kwargs}
    return extended.model_copy(update={"additional_kwargs": marks})


def add_reminder(
    request: ModelRequest[Any], text: str, name: str | None = None
) -> ModelRequest[Any]:
    """Append a message from the framework to the request. The thread does not store it."""
    return request.override(messages=[*request.messages, HumanMessage(text, name=name)])
