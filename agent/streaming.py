"""Reads LangGraph streams: yields a stream's parts in one form, and converts them to typed events of a turn.

The runtime forwards parts to clients; the embedded client and subagents read events. A graph reports most things
twice: as tokens (mode `messages`) and in the state after each step (mode `values`). `TurnReader` reports each once:

- Text comes from tokens. The state's text is used only for messages that were never streamed, and for text appended to
  a streamed message, such as the reason why it was cut off.
- Tool calls come from the state: in tokens they are incomplete.
- Messages from before the turn are skipped. A run's first state contains all of them.
- Usage is counted once per message, with the state's number.
"""

from collections.abc import AsyncGenerator, AsyncIterator, Iterable, Iterator, Mapping, Sequence
from contextlib import aclosing
from typing import Any, NamedTuple, cast

from langchain_core.messages import AIMessage, AIMessageChunk, AnyMessage, ToolMessage
from langchain_core.messages.ai import UsageMetadata, add_usage
from langchain_core.runnables import RunnableConfig
from langgraph.pregel import Pregel
from langgraph.types import Durability, StreamMode

StreamPart = tuple[tuple[str, ...], str, Any]
"""(namespace, mode, data); the namespace is empty for the graph itself."""

SUBAGENT_USAGE_KEY = "subagent_token_usage"
"""Key of a tool message's `additional_kwargs`: the tokens that its delegation used."""

_PART_LENGTH = 3
_PROVIDER_CALLS = ("tool_calls", "function_call")
"""Keys of `additional_kwargs` with the provider's form of tool calls, in pieces."""


async def stream_graph(
    graph: Pregel[Any, Any, Any, Any],
    graph_input: object,
    config: RunnableConfig,
    *,
    context: object,
    modes: Sequence[StreamMode],
    subgraphs: bool = False,
    durability: Durability | None = None,
    with_events: bool = False,
    **options: Any,  # noqa: ANN401 - further options of `astream`
) -> AsyncGenerator[StreamPart]:
    """Run a graph and yield the parts of its stream.

    Args:
        graph: The graph.
        graph_input: Its input, a Command, or None to continue.
        config: Its config.
        context: Its runtime context.
        modes: The stream modes.
        subgraphs: Whether to include the parts of graphs inside it.
        durability: When checkpoints are written; None = LangGraph's default.
        with_events: Whether to include LangChain's own events, as mode `events`.
        options: Further options of `astream`, such as `interrupt_before`.
    """
    options |= {
        "context": context,
        "stream_mode": list(modes),
        "subgraphs": subgraphs,
        "durability": durability,
    }
    stream: AsyncGenerator[Any]
    if with_events:
        events = graph.astream_events(graph_input, config, version="v2", **options)
        stream = _chunks_and_events(events, str(config.get("run_id")))
    else:
        stream = cast("AsyncGenerator[Any]", graph.astream(graph_input, config, **options))
    async with aclosing(stream) as chunks:
        async for chunk in chunks:
            # LangGraph yields a namespace only if subgraphs are requested.
            yield chunk if len(chunk) == _PART_LENGTH else ((), *chunk)


async def _chunks_and_events(events: AsyncIterator[Any], run_id: str) -> AsyncGenerator[Any]:
    """Yield the graph's chunks, which are part of its events, and the other events."""
    async with aclosing(cast("AsyncGenerator[Any]", events)) as stream:
        async for event in stream:
            if event["event"] == "on_chain_stream" and event["run_id"] == run_id:
                yield event["data"]["chunk"]
            elif "nostream" not in event.get("tags", ()):
                yield (), "events", event


class TextEvent(NamedTuple):
    """A piece of a model's answer: text, and other content (`extra`), such as reasoning."""

    message: AIMessage
    text: str
    extra: dict[str, Any]
    usage: UsageMetadata | None = None


class MessageEvent(NamedTuple):
    """A model's answer is complete."""

    message: AIMessage


class ToolCallsEvent(NamedTuple):
    """The tool calls of a model's answer."""

    message: AIMessage


class ToolResultEvent(NamedTuple):
    """The result of a tool call."""

    message: ToolMessage


class StateEvent(NamedTuple):
    """The thread's state after a step."""

    values: Mapping[str, Any]


class CustomEvent(NamedTuple):
    """A value that a tool or middleware wrote into the stream."""

    data: Any


TurnEvent = TextEvent | MessageEvent | ToolCallsEvent | ToolResultEvent | StateEvent | CustomEvent


class TurnReader:
    """Turns the stream parts of one turn into events.

    Args:
        message_id: The id of the message that the turn answers; None = the thread was empty, so all messages are new.
    """

    def __init__(self, message_id: str | None) -> None:
        self._message_id = message_id
        self._earlier: frozenset[str | None] | None = None
        self._last_state: list[AnyMessage] = []
        # Separate records, because a message's text may be complete before its calls are.
        self._streamed: dict[str | None, list[str]] = {}
        self._complete: set[str | None] = set()
        self._with_calls: set[str | None] = set()
        self._results: set[str | None] = set()
        self._extras: dict[str | None, set[str]] = {}
        self._usage: dict[str | None, UsageMetadata] = {}

    @property
    def usage(self) -> UsageMetadata | None:
        """The tokens that the turn's model calls and delegations used so far; None = unknown."""
        total: UsageMetadata | None = None
        for usage in self._usage.values():
            total = add_usage(total, usage)
        return total

    def read(self, mode: str, data: Any) -> Iterable[TurnEvent]:  # noqa: ANN401 - the type depends on the mode
        """Return the events of one part."""
        if mode == "messages":
            return self._read_token(data[0])
        if mode == "values":
            return self._read_state(data)
        return (CustomEvent(data),)

    def _read_token(self, message: AnyMessage) -> Iterator[TurnEvent]:
        if message.id in (self._earlier or ()):
            return
        if isinstance(message, ToolMessage):
            yield from self._read_result(message)
        elif isinstance(message, AIMessageChunk) or (
            isinstance(message, AIMessage) and message.id not in self._streamed
        ):
            yield from self._read_text(message)

    def _read_text(self, message: AIMessage) -> Iterator[TurnEvent]:
        usage = message.usage_metadata
        if usage is not None:
            self._usage[message.id] = add_usage(self._usage.get(message.id), usage)
        extra = self._new_extra(message)
        text = str(message.text)
        if text or extra or usage:
            self._streamed.setdefault(message.id, []).append(text)
            yield TextEvent(message, text, extra, usage)

    def _read_state(self, values: Mapping[str, Any]) -> Iterator[TurnEvent]:
        messages: Sequence[AnyMessage] = values.get("messages") or ()
        is_first = self._earlier is None
        if self._earlier is None:
            self._earlier = self._ids_before_turn(messages)
        new = [m for m in self._changed(messages) if m.id not in self._earlier]
        for message in new:
            if isinstance(message, AIMessage):
                yield from self._read_answer(message)
            elif isinstance(message, ToolMessage):
                yield from self._read_result(message)
        if new or not is_first:
            yield StateEvent(values)

    def _ids_before_turn(self, messages: Sequence[AnyMessage]) -> frozenset[str | None]:
        if self._message_id is None:
            return frozenset()
        ids = [message.id for message in messages]
        own = ids.index(self._message_id) + 1 if self._message_id in ids else len(ids)
        return frozenset(ids[:own])

    def _changed(self, messages: Sequence[AnyMessage]) -> Sequence[AnyMessage]:
        """Return the messages starting at the first one that is not the same object as in the last state."""
        pairs = enumerate(zip(messages, self._last_state, strict=False))
        same = min(len(messages), len(self._last_state))
        start = next((i for i, (new, old) in pairs if new is not old), same)
        self._last_state = list(messages)
        return messages[start:]

    def _read_answer(self, message: AIMessage) -> Iterator[TurnEvent]:
        if message.id not in self._streamed:
            yield from self._read_text(message)
        else:
            rest = self._unstreamed_text(message)
            extra = self._new_extra(message, self._extras.get(message.id, ()))
            if rest or extra:
                yield TextEvent(message, rest, extra)
        if message.usage_metadata is not None:
            self._usage[message.id] = message.usage_metadata
        if message.tool_calls and message.id not in self._with_calls:
            self._with_calls.add(message.id)
            yield ToolCallsEvent(message)
        if message.id not in self._complete:
            self._complete.add(message.id)
            yield MessageEvent(message)

    def _unstreamed_text(self, message: AIMessage) -> str:
        """Return the text after the streamed part, and record it as streamed."""
        streamed, text = "".join(self._streamed[message.id]), str(message.text)
        if not text.startswith(streamed):
            self._streamed[message.id] = [streamed]
            return ""
        self._streamed[message.id] = [text]
        return text[len(streamed) :]

    def _read_result(self, message: ToolMessage) -> Iterator[TurnEvent]:
        if message.id in self._results:
            return
        self._results.add(message.id)
        if usage := delegated_usage(message):
            self._usage[message.id] = usage
        yield ToolResultEvent(message)

    def _new_extra(self, message: AIMessage, seen: Iterable[str] = ()) -> dict[str, Any]:
        """Return the unreported `additional_kwargs`, and record them as reported."""
        if not message.additional_kwargs:
            return {}
        known = {*seen, *_PROVIDER_CALLS}
        extra = {k: v for k, v in message.additional_kwargs.items() if k not in known}
        if extra:
            self._extras.setdefault(message.id, set()).update(extra)
        return extra


def delegated_usage(message: AnyMessage) -> UsageMetadata | None:
    """Return the tokens that a delegation used, from the result of its `task` call.

    To get a run's total, add up `usage_metadata` of its AI messages and this number of its tool messages.
    """
    usage = message.additional_kwargs.get(SUBAGENT_USAGE_KEY)
    if not isinstance(message, ToolMessage) or not isinstance(usage, Mapping):
        return None
    return UsageMetadata(
        input_tokens=int(usage.get("input_tokens") or 0),
        output_tokens=int(usage.get("output_tokens") or 0),
        total_tokens=int(usage.get("total_tokens") or 0),
    )
