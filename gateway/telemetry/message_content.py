"""Messages as JSON, in the form of the GenAI semantic conventions. Only used if contents are captured."""

import json
from collections.abc import Sequence

from langchain_core.messages import AIMessage, BaseMessage, ToolMessage

ROLES = {"human": "user", "ai": "assistant", "system": "system", "tool": "tool"}
"""The conventions' roles for LangChain's message types."""


def messages_as_json(messages: Sequence[BaseMessage]) -> str:
    """Return messages as a JSON list of roles and parts.

    >>> from langchain_core.messages import HumanMessage
    >>> messages_as_json([HumanMessage("hi")])
    '[{"role": "user", "parts": [{"type": "text", "content": "hi"}]}]'
    """
    return to_json(
        [
            {"role": ROLES.get(message.type, message.type), "parts": _parts(message)}
            for message in messages
        ]
    )


def to_json(value: object) -> str:
    """Return a value as JSON. Values that JSON cannot represent become text."""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)


def _parts(message: BaseMessage) -> list[dict[str, object]]:
    if isinstance(message, ToolMessage):
        return [
            {
                "type": "tool_call_response",
                "id": message.tool_call_id,
                "response": to_json(message.content),
            }
        ]
    text = str(message.text)
    parts: list[dict[str, object]] = [{"type": "text", "content": text}] if text else []
    if isinstance(message, AIMessage):
        parts += [
            {
                "type": "tool_call",
                "id": call["id"],
                "name": call["name"],
                "arguments": call["args"],
            }
            for call in message.tool_calls
        ]
    return parts
