"""StreamEvent: an event that the client's `stream` yields."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal, assert_never

from langchain_core.messages import AIMessage
from langchain_core.messages.ai import UsageMetadata

from agent.streaming import (
    CustomEvent,
    MessageEvent,
    StateEvent,
    TextEvent,
    ToolCallsEvent,
    ToolResultEvent,
    TurnReader,
)
from agent.tools.ask_clarification import NAME as CLARIFY

MODES: tuple[Literal["values", "messages", "custom"], ...] = ("values", "messages", "custom")
"""The stream modes that a turn needs."""


@dataclass(frozen=True, slots=True)
class StreamEvent:
    """One event of a turn.

    Attributes:
        type: `messages-tuple`: a piece of a message; `values`: the thread after a step; `custom`: a value that a tool
            or middleware wrote into the stream; `end`: the turn is over.
        data: For `messages-tuple`, by its `type`: `ai` has `id` and `content`, a piece of text to be joined by id, and
            where present `tool_calls`, `additional_kwargs`, `usage_metadata`; `tool` has `content`, `name`,
            `tool_call_id` and `id`. For `values`: `title`, `messages`, `artifacts`. For `custom`: the written value.
            For `end`: `usage` with `input_tokens`, `output_tokens`, `total_tokens` of the whole turn.
    """

    type: Literal["values", "messages-tuple", "custom", "end"]
    data: Any


class TurnEvents:
    """Turns the stream parts of one turn into StreamEvents.

    Args:
        message_id: The id of the message that the turn answers.
    """

    def __init__(self, message_id: str) -> None:
        self._reader = TurnReader(message_id)

    def read(self, mode: str, data: Any) -> Iterator[StreamEvent]:  # noqa: ANN401 - the type depends on the mode
        """Yield the events of one part."""
        for event in self._reader.read(mode, data):
            match event:
                case TextEvent():
                    extra = {"additional_kwargs": event.extra, "usage_metadata": event.usage}
                    yield _ai_event(event.message, content=event.text, **extra)
                case ToolCallsEvent():
                    yield _ai_event(event.message, tool_calls=_tool_calls(event.message))
                case ToolResultEvent(message):
                    result = {
                        "type": "tool",
                        "content": str(message.text),
                        "name": message.name,
                        "tool_call_id": message.tool_call_id,
                        "id": message.id,
                    }
                    yield StreamEvent("messages-tuple", result)
                case StateEvent():
                    yield StreamEvent("values", public_state(event.values))
                case CustomEvent():
                    yield StreamEvent("custom", event.data)
                case MessageEvent():
                    pass
                case _:
                    assert_never(event)

    def end(self) -> StreamEvent:
        """Return the `end` event."""
        usage = self._reader.usage
        usage = usage or UsageMetadata(input_tokens=0, output_tokens=0, total_tokens=0)
        return StreamEvent("end", {"usage": _token_counts(usage)})


class FinalText:
    """Collects the text of a turn's answer: its last message with text, or the question that it ends with."""

    def __init__(self) -> None:
        self._pieces: dict[str | None, list[str]] = {}
        self._last: str | None = None

    def add(self, event: StreamEvent) -> None:
        """Add one event."""
        if event.type != "messages-tuple" or not event.data["content"]:
            return
        if event.data["type"] == "tool" and event.data["name"] != CLARIFY:
            return
        self._last = event.data["id"]
        self._pieces.setdefault(self._last, []).append(event.data["content"])

    @property
    def text(self) -> str:
        """The text; "" if the turn had none."""
        return "".join(self._pieces.get(self._last, ()))


def public_state(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return the public part of a thread's state, with messages in their wire form."""
    return {
        "title": values.get("title"),
        "messages": [message.model_dump() for message in values.get("messages") or ()],
        "artifacts": list(values.get("artifacts") or ()),
    }


def _ai_event(message: AIMessage, *, content: str = "", **fields: Any) -> StreamEvent:  # noqa: ANN401 - JSON
    """Return an event for a model's message, without empty fields."""
    data: dict[str, Any] = {"type": "ai", "content": content, "id": message.id}
    data.update({key: value for key, value in fields.items() if value})
    if usage := data.get("usage_metadata"):
        data["usage_metadata"] = _token_counts(usage)
    return StreamEvent("messages-tuple", data)


def _tool_calls(message: AIMessage) -> list[dict[str, Any]]:
    return [{"name": c["name"], "args": c["args"], "id": c["id"]} for c in message.tool_calls]


def _token_counts(usage: UsageMetadata) -> dict[str, int]:
    return {
        "input_tokens": usage["input_tokens"],
        "output_tokens": usage["output_tokens"],
        "total_tokens": usage["total_tokens"],
    }
