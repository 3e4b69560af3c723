"""Arranges the messages of a request in the order that strict chat templates require. Pure.

The templates of Mistral, Gemma and others, which vLLM and llama.cpp run, require one system message at the beginning,
then alternating users and assistants, starting and ending with a user or tool results. Mistral's API rejects a user
message right after a tool result. `/stop`, empty answers, messages that arrive during a turn, and deletions break this
order. The thread itself stays unchanged. Equal beginnings are arranged alike, so that servers can cache them.
"""

from collections.abc import Iterable
from typing import Any

Message = dict[str, Any]

NO_TEXT = "(no text)"
"""Replaces an empty user message."""

BETWEEN = "OK."
"""Assistant message inserted between tool results and a user message."""

NO_ANSWER = "(No answer yet.)"
"""Assistant message inserted between two user messages: after a stop, or if the second one came during a turn."""

_SYSTEM = ("system", "developer")
_ANSWERED = {"tool": BETWEEN, "user": NO_ANSWER}
_ACTS = ("tool_calls", "function_call", "audio")


def arrange_messages(messages: Iterable[Message]) -> list[Message]:
    """Arrange a request's messages so that every chat template accepts them. Results must follow their calls.

    User messages are never joined, because each is a separate message of a person.

    >>> said = [{"role": "user", "content": text} for text in ("Hi", "Go on")]
    >>> [one["content"] for one in arrange_messages([said[0], {"role": "assistant", "content": ""}, said[1]])]
    ['Hi', '(No answer yet.)', 'Go on']
    """
    arranged: list[Message] = []
    for message in messages:
        given = _with_text(message)
        if given is None:
            continue
        last = arranged[-1] if arranged else {"role": "system"}
        role, before = given["role"], last["role"]
        if role in _SYSTEM and arranged:
            _add_system(arranged, given)
        elif role == before == "assistant" and not last.get("tool_calls"):
            arranged[-1] = _joined(last, given)
        else:
            if role == "user" and before in _ANSWERED:
                arranged.append({"role": "assistant", "content": _ANSWERED[before]})
            elif role == "assistant" and before in _SYSTEM:
                arranged.append({"role": "user", "content": NO_TEXT})
            arranged.append(given)
    if arranged and arranged[-1]["role"] == "assistant":
        arranged.append({"role": "user", "content": NO_TEXT})
    return arranged


def _with_text(message: Message) -> Message | None:
    """Return a non-empty message; None for an assistant message without text and calls."""
    if _has_content(message["content"]):
        return message  # fast path for nearly all messages
    if message["role"] == "user":
        return {**message, "content": NO_TEXT}
    is_nothing = message["role"] == "assistant" and not any(message.get(key) for key in _ACTS)
    return None if is_nothing else message


def _has_content(content: object) -> bool:
    if isinstance(content, str):
        return bool(content) and not content.isspace()
    blocks = content if isinstance(content, list) else []
    return any(
        not isinstance(one, dict) or one.get("type") != "text" or one.get("text") for one in blocks
    )


def _joined(first: Message, second: Message) -> Message:
    """Merge two messages of the same role. Keep the name if it is the same."""
    joined = {**first, **second, "content": _joined_content(first["content"], second["content"])}
    if first.get("name") != second.get("name"):
        joined.pop("name", None)
    return joined


def _joined_content(first: Any, second: Any) -> Any:  # noqa: ANN401 - text or content blocks
    if not (first and second):
        return first or second
    if isinstance(first, str) and isinstance(second, str):
        return f"{first}\n\n{second}"
    return [*_blocks(first), *_blocks(second)]


def _blocks(content: Any) -> list[Any]:  # noqa: ANN401 - text or content blocks
    return [{"type": "text", "text": content}] if isinstance(content, str) else content


def _add_system(arranged: list[Message], message: Message) -> None:
    """Append a system message to the one at the beginning."""
    if arranged[0]["role"] in _SYSTEM:
        arranged[0] = _joined(arranged[0], {**message, "role": arranged[0]["role"]})
    else:
        arranged.insert(0, message)
