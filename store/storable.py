"""Makes values storable: a value that msgpack refuses becomes text. Pure.

Tools, graphs and clients can put any value into a state. Without this module, one value that cannot be saved would make
every later run of the thread fail.
"""

import dataclasses
from collections import deque
from collections.abc import Iterable
from typing import Any

from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer
from langgraph.types import Send
from pydantic import BaseModel

MAX_DEPTH = 200
"""Maximum nesting of lists and mappings. msgpack stops at 255 levels, and a message around the value adds some."""

_MIN_INT, _MAX_INT = -(2**63), 2**64 - 1
_PLAIN = (int, bool, float, bytes, bytearray)
_SEQUENCES = (list, tuple, set, frozenset, deque)
_SERDE = JsonPlusSerializer()


def storable(value: Any, depth: int = MAX_DEPTH) -> Any:  # noqa: ANN401 - whatever a state holds
    """Return a copy that can be saved. Values that can be saved as they are stay unchanged.

    >>> storable({"a": [2**70, 1], "b": {1j}, 2**70: 0})
    {'a': ['1180591620717411303424', 1], 'b': {'1j'}, '1180591620717411303424': 0}
    """
    kind = type(value)
    if kind is str:
        return _text(value)
    if kind is int and not _MIN_INT <= value <= _MAX_INT:
        return str(value)
    if value is None or kind in _PLAIN:
        return value
    return _storable_container(value, depth - 1) if depth else _text(str(kind))


def _storable_container(value: Any, depth: int) -> Any:  # noqa: ANN401
    if type(value) is dict:
        return {storable(k, depth): storable(v, depth) for k, v in value.items()}
    if type(value) in _SEQUENCES:
        return type(value)([storable(one, depth) for one in value])
    if isinstance(value, Send):
        return Send(value.node, storable(value.arg, depth))
    return _storable_object(value, depth)


def _storable_object(value: Any, depth: int) -> Any:  # noqa: ANN401
    if isinstance(value, BaseModel):
        model = value.model_copy(update=_changed(value, type(value).model_fields, depth))
        if value.__pydantic_extra__:
            model.__pydantic_extra__ = storable(value.__pydantic_extra__, depth)
        return model if _is_storable(model) else _text(str(value))
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        names = [one.name for one in dataclasses.fields(value) if one.init]
        copy = dataclasses.replace(value, **_changed(value, names, depth))
        return copy if _is_storable(copy) else _text(str(value))
    return value if _is_storable(value) else _text(repr(value))


def _changed(value: object, names: Iterable[str], depth: int) -> dict[str, Any]:
    return {name: storable(getattr(value, name), depth) for name in names}


def _is_storable(value: Any) -> bool:  # noqa: ANN401
    try:
        _SERDE.dumps_typed(value)
    except (TypeError, ValueError, RecursionError):
        return False
    return True


def _text(text: str) -> str:
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
