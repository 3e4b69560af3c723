"""Type-safe access to untrusted JSON. Pure."""

import json
from collections.abc import Iterator, Mapping
from typing import Final

from bots.text.characters import clean

_CLOCK_DIGITS: Final = 15


def parse_json(data: bytes) -> object:
    """Return what JSON says; None if it is none, or nested too deeply."""
    try:
        value: object = json.loads(data)
    except (ValueError, RecursionError):
        return None
    return value


class JsonNode:
    """A JSON object whose fields may be missing or of any type; what is not there is empty."""

    def __init__(self, value: object) -> None:
        self._value: Mapping[str, object] = value if isinstance(value, dict) else {}

    def __getitem__(self, name: str) -> "JsonNode":
        return JsonNode(self._value.get(name))

    def text(self, name: str) -> str:
        """Return a text field, without characters that are no text."""
        value = self._value.get(name)
        return clean(value) if isinstance(value, str) else ""

    def raw(self, name: str) -> str:
        """Return a text field as it is."""
        value = self._value.get(name)
        return value if isinstance(value, str) else ""

    def seconds(self, name: str) -> float | None:
        """Return a time, a text with milliseconds, as Unix seconds; None if it is none.

        >>> JsonNode({"create_time": "1700000000123"}).seconds("create_time")
        1700000000.123
        """
        value = self.raw(name)
        is_time = value.isascii() and value.isdigit() and len(value) <= _CLOCK_DIGITS
        return int(value) / 1000 if is_time else None

    def flag(self, name: str) -> bool:
        """Return whether a field is true."""
        return self._value.get(name) is True

    def items(self, name: str) -> "Iterator[JsonNode]":
        """Yield the objects of a list."""
        value = self._value.get(name)
        yield from (JsonNode(item) for item in (value if isinstance(value, list) else []))
