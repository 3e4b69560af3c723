"""Makes foreign text and JSON values storable: replaces surrogates, NUL, huge integers, NaN and deep nesting. Pure.

UTF-8 cannot represent lone surrogates, PostgreSQL cannot store NUL, msgpack cannot encode integers beyond 64 bits, and
JSON has no NaN. Servers can send all of them.
"""

import json
import math
from typing import Any

MAX_DEPTH = 100
"""Maximum nesting of lists and mappings in a value. orjson and msgpack fail at about 250 levels per message."""

TOO_DEEP = "[left out: nested too deep]"

_MIN_INT, _MAX_INT = -(2**63), 2**64 - 1
"""The range of integers that msgpack and orjson support."""


_DIGITS = 20
"""Integers with this many digits may exceed 64 bits. Python itself parses at most 4,300 digits."""


class NestedTooDeep(ValueError):
    """A value has more than `MAX_DEPTH` levels."""


def read_json(text: str) -> Any:  # noqa: ANN401 - JSON
    """Parse JSON leniently: accept control characters in strings and NaN, and return huge integers as text.

    >>> read_json('{"a": 123456789012345678901234567890, "b": 1}')
    {'a': '123456789012345678901234567890', 'b': 1}

    Raises:
        ValueError: The text is not JSON, or is nested too deep.
    """
    try:
        return json.loads(text, strict=False, parse_int=_integer)
    except RecursionError:
        raise NestedTooDeep("nested too deep") from None


def _integer(digits: str) -> int | str:
    return int(digits) if len(digits) < _DIGITS else digits


def clean_text(text: str) -> str:
    r"""Return a text that every store and protocol accepts. Surrogate pairs become the character they encode.

    >>> clean_text("a\ud83d\ude00 \ud83d b\0") == "a\U0001f600 \ufffd b\ufffd"
    True
    """
    if not text.isascii():
        try:
            text.encode()
        except UnicodeEncodeError:
            text = text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    return text.replace("\0", "\ufffd") if "\0" in text else text


def clean_json(value: Any, depth: int = MAX_DEPTH) -> Any:  # noqa: ANN401 - JSON
    r"""Return a storable JSON value; the same object if nothing changes. Non-JSON objects in it stay unchanged.

    Numbers that JSON cannot represent become text, which pydantic converts back to a number.

    >>> clean_json({"a": [2**70, float("nan"), "\ud800"], "b": 1})
    {'a': ['1180591620717411303424', 'nan', '�'], 'b': 1}

    Raises:
        NestedTooDeep: It has more than `depth` levels.
    """
    kind = type(value)
    if kind is str:
        return clean_text(value)
    if kind is int:
        return value if _MIN_INT <= value <= _MAX_INT else str(value)
    if kind is float:
        return value if math.isfinite(value) else str(value)
    if kind is dict or kind is list or kind is tuple:
        return _clean_container(value, depth)
    return value


def _clean_container(value: Any, depth: int) -> Any:  # noqa: ANN401 - JSON
    if not depth:
        raise NestedTooDeep
    if type(value) is dict:
        pairs = [(clean_json(k, depth - 1), clean_json(v, depth - 1)) for k, v in value.items()]
        same = all(k is a and v is b for (k, v), (a, b) in zip(pairs, value.items(), strict=True))
        return value if same else dict(pairs)
    items = [clean_json(one, depth - 1) for one in value]
    if all(a is b for a, b in zip(items, value, strict=True)):
        return value
    return items if type(value) is list else tuple(items)
