"""JSON encoding of all that a graph yields: fast for common types, lossy but safe for others."""

import base64
import json
from collections import deque
from collections.abc import Mapping
from typing import Any

import orjson
from langchain_core.messages import BaseMessage
from pydantic import BaseModel

_DROPPED_METADATA = frozenset(
    {
        "lc_versions",
        "langgraph_version",
        "langgraph_path",
        "langgraph_triggers",
        "ls_integration",
        "ls_max_tokens",
        "ls_model_type",
        "ls_provider",
        "ls_stop",
        "ls_temperature",
    }
)
"""Token metadata that no client reads: about half of a frame's bytes."""


def dumps(value: object) -> bytes:
    """Encode a value as JSON.

    It never raises for a value that a graph can hold. Values that JSON cannot express become text, and lone surrogates
    (from a hostile model) become question marks.

    >>> dumps({"a": {1}})
    b'{"a":[1]}'
    """
    try:
        encoded = orjson.dumps(_open_messages(value), default=json_default)
    except TypeError:
        encoded = _dumps_unusual(value)
    # A copy, because orjson's result takes at least 4 KB and up to ten times its length, and events are kept for a
    # while.
    return bytes(memoryview(encoded))


def _dumps_message(message: BaseMessage) -> bytes:
    """Encode a message as `dumps` does, if the result is copied into something else."""
    try:
        return orjson.dumps(json_default(message), default=json_default)
    except TypeError:
        return _dumps_unusual(message)


def _open_messages(value: object) -> object:
    """Turn the lists of messages at a state's top level into mappings.

    The JSON is the same. Calling `json_default` for each message of a long thread takes five times as long.
    """
    if type(value) is not dict:
        return value
    return {
        key: _open_message_list(one) if type(one) is list else one for key, one in value.items()
    }


def _open_message_list(value: list[Any]) -> list[Any]:
    if not all(issubclass(kind, BaseMessage) for kind in set(map(type, value))):
        return value
    return [
        {**message.__dict__, **extra} if (extra := message.__pydantic_extra__) else message.__dict__
        for message in value
    ]


def json_default(value: object) -> object:
    """Convert an object that orjson does not know."""
    if isinstance(value, BaseMessage):
        # A pydantic model's `__dict__` holds its fields. It is the same as model_dump(), but eight times faster.
        extra = value.__pydantic_extra__
        return {**value.__dict__, **extra} if extra else value.__dict__
    if isinstance(value, BaseModel):
        return value.model_dump()
    if isinstance(value, Mapping):
        return dict(value)
    if isinstance(value, tuple | set | frozenset | deque):
        return list(value)
    return _to_text(value)


def _to_text(value: object) -> str:
    if isinstance(value, bytes | bytearray):
        return base64.b64encode(value).decode()
    return repr(value) if isinstance(value, BaseException) else str(value)


def _dumps_unusual(value: object) -> bytes:
    """Encode what orjson rejects: non-string keys, integers beyond 64 bits, lone surrogates."""
    try:
        return orjson.dumps(value, default=json_default, option=orjson.OPT_NON_STR_KEYS)
    except TypeError:
        text = json.dumps(value, default=json_default, ensure_ascii=False, skipkeys=True)
        if (
            "NaN" in text or "Infinity" in text
        ):  # Numbers that JSON does not have are null, as orjson writes them.
            value = json.loads(text, parse_constant=lambda _: None)
            text = json.dumps(value, ensure_ascii=False)
        return text.encode("utf-8", "replace")


class MessageFrameEncoder:
    """Encodes (message, metadata) pairs. All tokens of a model call share one metadata object."""

    def __init__(self) -> None:
        self._metadata: object = None
        self._encoded = b"{}"

    def pair(self, message: BaseMessage, metadata: Mapping[str, Any]) -> bytes:
        """Return `[message, metadata]`."""
        return b"[%b,%b]" % (_dumps_message(message), self.metadata(metadata))

    def metadata(self, metadata: Mapping[str, Any]) -> bytes:
        """Return a token's metadata without the keys that no client reads."""
        if metadata is not self._metadata:
            self._encoded = dumps({k: v for k, v in metadata.items() if k not in _DROPPED_METADATA})
            self._metadata = metadata
        return self._encoded
