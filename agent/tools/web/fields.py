"""Reads fields of service responses, whose format is not guaranteed. Pure."""

from collections.abc import Iterator, Mapping
from typing import Any


def first_text(entry: Mapping[str, Any], *names: str) -> str:
    """Return the first field that contains text.

    >>> first_text({"title": None, "name": "n"}, "title", "name")
    'n'
    """
    for name in names:
        value = entry.get(name)
        if isinstance(value, str) and value.strip():
            return value.strip()
    return ""


def iter_objects(given: object) -> Iterator[Mapping[str, Any]]:
    """Yield the objects in a list; nothing if it is not a list.

    >>> list(iter_objects([{"a": 1}, None])), list(iter_objects("text"))
    ([{'a': 1}], [])
    """
    for entry in given if isinstance(given, list) else []:
        if isinstance(entry, Mapping):
            yield entry


def as_object(given: object) -> Mapping[str, Any]:
    """Return the object, or an empty object if the value is not one."""
    return given if isinstance(given, Mapping) else {}
