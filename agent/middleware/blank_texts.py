"""Replaces blank texts in requests. Anthropic rejects them, and would reject every later request of the thread too.

They occur because some models write line breaks next to tool calls, and because people send empty messages. Pure.
"""

from typing import Any

from langchain_core.messages import AIMessage, AnyMessage

from agent.models.roles import NO_TEXT
from agent.user_messages import HUMAN

Content = str | list[str | dict[Any, Any]]


def without_blank_texts(messages: list[AnyMessage]) -> list[AnyMessage]:
    """Return the messages without blank texts; the same list if there are none.

    >>> from langchain_core.messages import HumanMessage
    >>> without_blank_texts([HumanMessage(" ")])[0].content
    '(no text)'
    """
    result = [_without_blank_text(message) for message in messages]
    return messages if all(a is b for a, b in zip(result, messages, strict=True)) else result


def _without_blank_text(message: AnyMessage) -> AnyMessage:
    content = message.content
    if type(content) is str and content and not content.isspace():
        return message  # fast path for almost every message; a thread may have thousands
    if message.type == HUMAN:
        kept = _texts(content) or NO_TEXT
    elif isinstance(message, AIMessage) and message.tool_calls:
        kept = _texts(content)
    else:
        return message
    return message if kept is content else message.model_copy(update={"content": kept})


def _texts(content: Content) -> Content:
    """Return the content without blank texts; the same object if there are none."""
    if isinstance(content, str):
        return "" if content else content
    kept = [block for block in content if not _is_blank(block)]
    return content if len(kept) == len(content) else kept


def _is_blank(block: str | dict[Any, Any]) -> bool:
    text = block if isinstance(block, str) else block.get("text")
    is_text = isinstance(block, str) or block.get("type") == "text"
    return is_text and isinstance(text, str) and not text.strip()
