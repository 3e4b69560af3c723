"""Reads fields of services' answers, which are never sure to have the shape that they should. Pure."""

from collections.abc import Iterator, Mapping
from typing import Any


def text_of(entry: Mapping[str, Any], *names: str) -> str:
    """Return the first of the fields that holds text.

    >>> text_of({"title": None, "name": "n"}, "title", "name")
    'n'
    """
    for name in names:
        value = entry.get(name)
        if isinstance(value, str) and value.strip():
            return value.strip()
    return ""


def mappings_of(given: object) -> Iterator[Mapping[str, Any]]:
    """Yield the objects of a list; nothing when it is no list.

    >>> list(mappings_of([{"a": 1}, None])), list(mappings_of("text"))
    ([{'a': 1}], [])
    """
    for entry in given if isinstance(given, list) else []:
        if isinstance(entry, Mapping):
            yield entry


def mapping_of(given: object) -> Mapping[str, Any]:
    """Return an object, an empty one when it is none."""
    return given if isinstance(given, Mapping) else {}
