"""Reads fields of services' answers, which are never sure to have the shape that they should. Pure."""

from collections.abc import Iterator, Mapping
from typing import Any


def first_text(entry: Mapping[str, Any], *names: str) -> str:
    """Return the first of the fields that holds text.

    >>> first_text({"title": None, "name": "n"}, "title", "name")
    'n'
    """
    for name in names:
        value = entry.get(name)
        if isinstance(value, str) and value.strip():
            return value.strip()
    return ""


def iter_objects(given: object) -> Iterator[Mapping[str, Any]]:
    """Yield the objects of a list; nothing when it is no list.

    >>> list(iter_objects([{"a": 1}, None])), list(iter_objects("text"))
    ([{'a': 1}], [])
    """
    for entry in given if isinstance(given, list) else []:
        if isinstance(entry, Mapping):
            yield entry


def as_object(given: object) -> Mapping[str, Any]:
    """Return an object, an empty one when it is none."""
    return given if isinstance(given, Mapping) else {}
