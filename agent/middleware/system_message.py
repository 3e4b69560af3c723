"""Adds to requests: sections of the system message (several providers reject a second one), and reminders."""

from typing import Any

from langchain.agents.middleware.types import ModelRequest
from langchain_core.messages import HumanMessage, SystemMessage


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


def add_reminder(
    request: ModelRequest[Any], text: str, name: str | None = None
) -> ModelRequest[Any]:
    """Append a message of the framework to the request. The thread does not store it."""
    return request.override(messages=[*request.messages, HumanMessage(text, name=name)])
