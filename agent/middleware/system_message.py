"""Appends to the request's system message, because several providers reject a second one. Pure."""

from langchain_core.messages import SystemMessage


def append_to_system_message(system: SystemMessage | None, added: str) -> SystemMessage:
    r"""Return the system message with a further section at its end.

    >>> append_to_system_message(SystemMessage("You cook."), "You bake.").content
    'You cook.\n\nYou bake.'
    """
    if system is None:
        return SystemMessage(added)
    if isinstance(system.content, str):
        return system.model_copy(update={"content": f"{system.content}\n\n{added}"})
    block = {"type": "text", "text": f"\n\n{added}"}
    return system.model_copy(update={"content": [*system.content, block]})
