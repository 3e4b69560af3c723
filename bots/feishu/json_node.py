"""Type-safe access to untrusted JSON. Pure."""

import json
from collections.abc import Iterator, Mapping

from bus.characters import clean

_CLOCK_DIGITS = 15


def parse_json(data: bytes | str) -> object:
    """Parse JSON; None if it is invalid or nested too deeply."""
    try:
        value: object = json.loads(data)
    except (ValueError, RecursionError):
        return None
    return value


class JsonNode:
    """A JSON object whose fields may be missing or of any type. A missing field reads as empty."""

    def __init__(self, value: object) -> None:
        self._value: Mapping[str, object] = value if isinstance(value, dict) else {}

    def __getitem__(self, name: str) -> "JsonNode":
        return JsonNode(self._value.get(name))

    def __bool__(self) -> bool:
        return bool(self._value)

    @staticmethod
    def parse(text: str) -> "JsonNode":
        """Return the object in a JSON string; an empty one if there is none.

        >>> JsonNode.parse('{"a": "b"}').text("a"), bool(JsonNode.parse("?"))
        ('b', False)
        """
        return JsonNode(parse_json(text))

    def text(self, name: str) -> str:
        """Return a text field without invalid characters."""
        value = self._value.get(name)
        return clean(value) if isinstance(value, str) else ""

    def raw(self, name: str) -> str:
        """Return a text field unchanged."""
        value = self._value.get(name)
        return value if isinstance(value, str) else ""

    def seconds(self, name: str) -> float | None:
        """Return a time (a string of milliseconds) as Unix seconds; None if it is invalid.

        >>> JsonNode({"create_time": "1700000000123"}).seconds("create_time")
        1700000000.123
        """
        value = self.milliseconds(name)
        return None if value is None else value / 1000

    def milliseconds(self, name: str) -> int | None:
        """Return a number of milliseconds, which may be a string or a number; None if it is invalid.

        >>> JsonNode({"duration": 2000}).milliseconds("duration")
        2000
        """
        value = self._value.get(name)
        text = (
            str(value) if isinstance(value, int) and not isinstance(value, bool) else self.raw(name)
        )
        is_number = text.isascii() and text.isdigit() and len(text) <= _CLOCK_DIGITS
        return int(text) if is_number else None

    def flag(self, name: str) -> bool:
        """Return whether a field is true."""
        return self._value.get(name) is True

    def items(self, name: str) -> "Iterator[JsonNode]":
        """Yield the objects of a list."""
        yield from map(JsonNode, self.values(name))

    def values(self, name: str) -> list[object]:
        """Return a list unchanged; an empty one if there is none."""
        value = self._value.get(name)
        return value if isinstance(value, list) else []

    def value(self, name: str) -> object:
        """Return a field unchanged; None if it is missing."""
        return self._value.get(name)

    def nodes(self) -> "Iterator[JsonNode]":
        """Yield the objects among the fields."""
        yield from (JsonNode(value) for value in self._value.values() if isinstance(value, dict))
