"""Cleans messages of models and tools before they are stored. Pure."""

from typing import Any, TypeVar

from langchain_core.messages import BaseMessage, ToolMessage

from agent.clean_values import TOO_DEEP, NestedTooDeep, clean_json, clean_text

M = TypeVar("M", bound=BaseMessage)

_TAKEN_WHOLE = ("additional_kwargs", "response_metadata")


def clean_message(message: M) -> M:
    """Return a message without values that a store or server rejects. Returns the same object if nothing changes.

    Call arguments stay unchanged: a call with arguments that cannot be repaired does not run.
    """
    fields: dict[str, Any] = {"content": _clean_content(message.content)}
    fields |= {name: _clean_mapping(getattr(message, name)) for name in _TAKEN_WHOLE}
    if isinstance(message, ToolMessage):
        fields["artifact"] = _clean(message.artifact, None)
        fields["tool_call_id"] = clean_text(message.tool_call_id)
    changed = {name: value for name, value in fields.items() if value is not getattr(message, name)}
    return message.model_copy(update=changed) if changed else message


def _clean_content(content: Any) -> Any:  # noqa: ANN401 - text or content blocks
    if isinstance(content, str):
        return clean_text(content)
    blocks = [_clean(block, {"type": "text", "text": TOO_DEEP}) for block in content]
    return content if all(a is b for a, b in zip(blocks, content, strict=True)) else blocks


def _clean_mapping(values: dict[str, Any]) -> dict[str, Any]:
    cleaned = {clean_text(name): _clean(value, TOO_DEEP) for name, value in values.items()}
    same = all(a is b for a, b in zip(cleaned.values(), values.values(), strict=False))
    return values if same and cleaned.keys() == values.keys() else cleaned


def _clean(value: Any, otherwise: Any) -> Any:  # noqa: ANN401 - JSON
    try:
        return clean_json(value)
    except NestedTooDeep:
        return otherwise
