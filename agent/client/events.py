"""What a turn tells while it runs: each word, call and result once. Pure.

The graph says many things twice: as tokens (`messages`) and in the state after each step (`values`). What a stream
of events says is made of both:

- Text comes from tokens. The state's text counts for messages that were never streamed, and for what was put behind
  the words of one that was: why it breaks off, for example.
- Tool calls come from the state: those of tokens are half written.
- What was there before the turn is not told again; the first state of a run holds all of it.
- Usage is counted once for each message, as the state has it where it has it.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from langchain_core.messages import AIMessage, AIMessageChunk, AnyMessage, ToolMessage
from langchain_core.messages.ai import UsageMetadata, add_usage

from agent.subagents.status import delegated_usage
from agent.tools.ask_clarification import NAME as CLARIFY

MODES: tuple[Literal["values", "messages", "custom"], ...] = ("values", "messages", "custom")
"""What the graph is asked for."""

_RAW_CALLS = ("tool_calls", "function_call")
"""In `additional_kwargs`: calls as the provider wrote them, in pieces; `tool_calls` of an event are the whole ones."""


@dataclass(frozen=True, slots=True)
class StreamEvent:
    """One thing that a turn tells.

    Attributes:
        type: `messages-tuple`: a piece of a message; `values`: the thread after a step; `custom`: what a tool or
            a middleware wrote into the stream; `end`: the turn is over.
        data: For `messages-tuple`, by its `type`: `ai` has `id` and `content`, a piece of text to be joined by id, and
            where there are some `tool_calls`, `additional_kwargs`, `usage_metadata`; `tool` has `content`, `name`,
            `tool_call_id` and `id`. For `values`: `title`, `messages`, `artifacts`. For `custom`: whatever was
            written. For `end`: `usage` with `input_tokens`, `output_tokens`, `total_tokens` of the whole turn.
    """

    type: Literal["values", "messages-tuple", "custom", "end"]
    data: Any


class TurnEvents:
    """Makes events of one turn's stream.

    Args:
        message_id: The id of the message that the turn answers.
    """

    def __init__(self, message_id: str) -> None:
        self._message_id = message_id
        self._known: frozenset[str | None] | None = None
        # Not one set: a message's text may be told while its calls are still to come.
        self._spoken: dict[str | None, list[str]] = {}
        self._called: set[str | None] = set()
        self._answered: set[str | None] = set()
        self._kept: dict[str | None, set[str]] = {}
        self._usage: dict[str | None, UsageMetadata] = {}

    def read(self, mode: str, chunk: Any) -> Iterable[StreamEvent]:  # noqa: ANN401 - each mode has its own
        """Return what one chunk of the graph's stream tells."""
        if mode == "messages":
            return self._piece(chunk[0])
        if mode == "values":
            return self._state(chunk)
        return (StreamEvent("custom", chunk),)

    def end(self) -> StreamEvent:
        """Return the last event."""
        total: UsageMetadata | None = None
        for usage in self._usage.values():
            total = add_usage(total, usage)
        counts = total or UsageMetadata(input_tokens=0, output_tokens=0, total_tokens=0)
        return StreamEvent("end", {"usage": _counts(counts)})

    # ---- tokens --------------------------------------------------------------------------------

    def _piece(self, message: AnyMessage) -> Iterator[StreamEvent]:
        if message.id in (self._known or ()):
            return
        if isinstance(message, ToolMessage):
            yield from self._result(message)
        elif isinstance(message, AIMessageChunk) or (
            isinstance(message, AIMessage) and message.id not in self._spoken
        ):
            yield from self._words(message)

    def _words(self, message: AIMessage) -> Iterator[StreamEvent]:
        usage = message.usage_metadata
        if usage is not None:
            self._usage[message.id] = add_usage(self._usage.get(message.id), usage)
        further = self._further(message, seen=())
        if not (message.text or further or usage):
            return
        self._spoken.setdefault(message.id, []).append(str(message.text))
        yield _ai(message, content=str(message.text), additional_kwargs=further, usage=usage)

    # ---- states --------------------------------------------------------------------------------

    def _state(self, values: Mapping[str, Any]) -> Iterator[StreamEvent]:
        messages: Sequence[AnyMessage] = values.get("messages") or ()
        is_first = self._known is None
        if self._known is None:
            self._known = self._earlier(messages)
        new = [message for message in messages if message.id not in self._known]
        for message in new:
            if isinstance(message, AIMessage):
                yield from self._whole(message)
            elif isinstance(message, ToolMessage):
                yield from self._result(message)
        if new or not is_first:
            yield StreamEvent("values", shown(values))

    def _earlier(self, messages: Sequence[AnyMessage]) -> frozenset[str | None]:
        """Return the ids of what stood there before the turn, its own message included."""
        ids = [message.id for message in messages]
        ours = ids.index(self._message_id) + 1 if self._message_id in ids else len(ids)
        return frozenset(ids[:ours])

    def _whole(self, message: AIMessage) -> Iterator[StreamEvent]:
        if message.id not in self._spoken:
            yield from self._words(message)
        else:
            rest = self._rest(message)
            further = self._further(message, seen=self._kept.get(message.id, ()))
            if rest or further:
                yield _ai(message, content=rest, additional_kwargs=further)
        if message.usage_metadata is not None:
            self._usage[message.id] = message.usage_metadata
        if message.tool_calls and message.id not in self._called:
            self._called.add(message.id)
            calls = [
                {key: call[key] for key in ("name", "args", "id")} for call in message.tool_calls
            ]
            yield _ai(message, tool_calls=calls)

    def _rest(self, message: AIMessage) -> str:
        """Return what stands behind the words that were streamed, and note that it was told."""
        said, text = "".join(self._spoken[message.id]), str(message.text)
        self._spoken[message.id] = [text if text.startswith(said) else said]
        return text[len(said) :] if text.startswith(said) else ""

    def _result(self, message: ToolMessage) -> Iterator[StreamEvent]:
        if message.id in self._answered:
            return
        self._answered.add(message.id)
        if usage := delegated_usage(message):
            self._usage[message.id] = usage
        data = {
            "type": "tool",
            "content": str(message.text),
            "name": message.name,
            "tool_call_id": message.tool_call_id,
            "id": message.id,
        }
        yield StreamEvent("messages-tuple", data)

    def _further(self, message: AIMessage, seen: Iterable[str]) -> dict[str, Any]:
        """Return what else a message has, the model's reasoning for example, and note that it was told."""
        known = set(seen)
        found = {
            key: value
            for key, value in message.additional_kwargs.items()
            if key not in known and key not in _RAW_CALLS
        }
        if found:
            self._kept.setdefault(message.id, set()).update(found)
        return found


class FinalText:
    """Joins what a turn says in the end: its last message with text, or the question that it ends with."""

    def __init__(self) -> None:
        self._pieces: dict[str | None, list[str]] = {}
        self._last: str | None = None

    def add(self, event: StreamEvent) -> None:
        """Take one event."""
        if event.type != "messages-tuple" or not event.data["content"]:
            return
        if event.data["type"] == "tool" and event.data["name"] != CLARIFY:
            return
        self._last = event.data["id"]
        self._pieces.setdefault(self._last, []).append(event.data["content"])

    @property
    def text(self) -> str:
        """The words; "" when there were none."""
        return "".join(self._pieces.get(self._last, ()))


def shown(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return of a thread's state what people may see, with messages in the form of the wire."""
    return {
        "title": values.get("title"),
        "messages": [message.model_dump() for message in values.get("messages") or ()],
        "artifacts": list(values.get("artifacts") or ()),
    }


def _ai(
    message: AIMessage, *, content: str = "", usage: UsageMetadata | None = None, **further: object
) -> StreamEvent:
    """Return an event of a model's message; what is empty is left out."""
    data: dict[str, Any] = {"type": "ai", "content": content, "id": message.id}
    data.update({key: value for key, value in further.items() if value})
    if usage is not None:
        data["usage_metadata"] = _counts(usage)
    return StreamEvent("messages-tuple", data)


def _counts(usage: UsageMetadata) -> dict[str, int]:
    return {
        "input_tokens": usage["input_tokens"],
        "output_tokens": usage["output_tokens"],
        "total_tokens": usage["total_tokens"],
    }
