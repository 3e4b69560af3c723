"""Stream modes: parses a request's modes, chooses the graph's modes, and encodes its stream as events."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, cast, get_args

from langchain_core.messages import BaseMessage, BaseMessageChunk, message_chunk_to_message

from gateway.runtime.errors import InvalidRequest
from gateway.runtime.lifecycle import state_fields
from gateway.runtime.serialization import MessageFrameEncoder, dumps

StreamMode = Literal[
    "values",
    "updates",
    "messages",
    "messages-tuple",
    "custom",
    "tasks",
    "checkpoints",
    "debug",
    "events",
]
GraphMode = Literal["values", "updates", "messages", "custom", "tasks", "checkpoints", "debug"]
STREAM_MODES: tuple[StreamMode, ...] = get_args(StreamMode)

Emit = Callable[[str, bytes, str | None], None]
"""Takes an event: name, data, and the key of the events that it repeats (None = its name)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamModes:
    """The stream modes of one run."""

    requested: frozenset[StreamMode]
    subgraphs: bool = False

    def graph_modes(self) -> list[GraphMode]:
        """Return the modes to run the graph with.

        `values` is always one of them, because the last values are the run's result.

        `events` is not one of them: LangChain yields these around the graph.
        """
        modes: set[GraphMode] = {"values"}
        for mode in self.requested:
            if mode != "events":
                modes.add("messages" if mode == "messages-tuple" else mode)
        return sorted(modes)


def parse_stream_modes(
    names: str | Sequence[str] | None, *, subgraphs: bool = False
) -> StreamModes:
    """Return the modes of a request. The default is `values`. Raises InvalidRequest.

    >>> sorted(parse_stream_modes(["values", "messages-tuple"]).requested)
    ['messages-tuple', 'values']
    """
    listed = [names] if isinstance(names, str) else list(names or ("values",))
    asked: set[StreamMode] = set()
    for name in listed:
        known = next((mode for mode in STREAM_MODES if mode == name), None)
        if known is None:
            raise InvalidRequest(
                f"Stream mode {name!r} is not supported; available: {', '.join(STREAM_MODES)}.",
                malformed=True,
            )
        asked.add(known)
    return StreamModes(requested=frozenset(asked), subgraphs=subgraphs)


class StreamEncoder:
    """Encodes the stream parts of one run as events.

    Attributes:
        values: The latest state values. None before the first.
        encoded_values: The latest state values as JSON, if they were sent.
        is_interrupted: Whether the graph waits for an answer. Other nodes may run at the same time, and their later
            values do not show it.
    """

    def __init__(self, modes: StreamModes, emit: Emit) -> None:
        self.values: Any = None
        self.encoded_values: bytes | None = None
        self.is_interrupted = False
        self._asked = modes.requested
        self._emit = emit
        self._frames = MessageFrameEncoder()
        self._partial: dict[str, BaseMessage] = {}

    def encode(self, namespace: tuple[str, ...], mode: str, chunk: object) -> None:
        """Encode one part of the graph's stream."""
        if mode == "messages":
            message, metadata = cast("tuple[BaseMessage, Mapping[str, Any]]", chunk)
            self._encode_message(namespace, message, metadata)
            return
        if mode == "values" and not namespace:
            self.values = chunk
            self.encoded_values = None
            self.is_interrupted |= "__interrupt__" in state_fields(chunk)
        if mode in self._asked:
            cleaned = _clean_checkpoint(chunk) if mode in {"checkpoints", "debug"} else chunk
            data = dumps(cleaned)
            if mode == "values" and not namespace:
                self.encoded_values = data
            self._emit(event_name(mode, namespace), data, None)

    def _encode_message(
        self, namespace: tuple[str, ...], message: BaseMessage, metadata: Mapping[str, Any]
    ) -> None:
        if "messages-tuple" in self._asked:
            frame = self._frames.pair(message, metadata)
            self._emit(event_name("messages", namespace), frame, None)
        if "messages" in self._asked:
            self._encode_accumulated(namespace, message, metadata)

    def _encode_accumulated(
        self, namespace: tuple[str, ...], message: BaseMessage, metadata: Mapping[str, Any]
    ) -> None:
        """Send the message so far, as the older `messages` mode does."""
        key = str(message.id)
        before = self._partial.get(key)
        if before is None:
            details = b'{%b:{"metadata":%b}}' % (dumps(key), self._frames.metadata(metadata))
            self._emit(event_name("messages/metadata", namespace), details, None)
        if not isinstance(message, BaseMessageChunk):
            self._partial[key] = message
            self._emit(event_name("messages/complete", namespace), dumps([message]), key)
            return
        whole = before + message if isinstance(before, BaseMessageChunk) else message
        self._partial[key] = whole
        so_far = message_chunk_to_message(whole)
        self._emit(event_name("messages/partial", namespace), dumps([so_far]), key)


def event_name(mode: str, namespace: tuple[str, ...]) -> str:
    """Return an event's name, including its subgraph.

    >>> event_name("values", ("child:1", "inner:2"))
    'values|child:1|inner:2'
    """
    return "|".join((mode, *namespace)) if namespace else mode


def _clean_checkpoint(chunk: object) -> object:
    """Remove internal parts of configs: live objects, and keys that begin with `__`."""
    if not isinstance(chunk, Mapping):
        return chunk
    cleaned = dict(chunk)
    if "payload" in cleaned:
        cleaned["payload"] = _add_checkpoint_ids(_clean_checkpoint(cleaned["payload"]))
    for key in ("config", "parent_config"):
        config = cleaned.get(key)
        if isinstance(config, Mapping):
            options = config.get("configurable") or {}
            kept = {k: v for k, v in options.items() if not str(k).startswith("__")}
            cleaned[key] = {"configurable": kept}
    return cleaned


def _add_checkpoint_ids(payload: object) -> object:
    """Add checkpoint IDs to a debug event in the form of states, where front ends look for them."""
    if not isinstance(payload, dict) or "config" not in payload:
        return payload
    for key, source in (("checkpoint", "config"), ("parent_checkpoint", "parent_config")):
        where = (payload.get(source) or {}).get("configurable") or {}
        names = ("checkpoint_id", "thread_id", "checkpoint_ns")
        payload[key] = {name: where.get(name) for name in names} if where else None
    return payload
