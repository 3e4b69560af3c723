"""Search of threads by the values of their state, and extraction of single values."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import compress
from typing import Any

import orjson
from fastapi import HTTPException

from gateway.runtime.serialization import dumps
from gateway.services import Services
from store.threads import Thread, ThreadQuery

_PAGE_SIZE = 250
_PATH = re.compile(r"[A-Za-z_]\w*(?:\.\w+|\[-?\d{1,9}\])*")
_STEP = re.compile(r"\w+|\[-?\d+\]")


async def thread_values(services: Services, thread: Thread) -> Any:  # noqa: ANN401 - JSON
    """Return a thread's latest values as plain JSON."""
    values = await services.states.values(thread)
    return None if values is None else orjson.loads(dumps(values))


async def search_by_values(
    services: Services, query: ThreadQuery, wanted: Mapping[str, Any]
) -> list[Thread]:
    """Return all threads that match a query and whose state contains the values. Ignores limit and offset.

    Raises:
        HTTPException: 422 if the query matches too many threads.
    """
    most = services.max_searched_threads
    if await services.runs.threads.count(query) > most:
        raise HTTPException(
            422,
            f"A search by values can read up to {most} threads: filter by metadata, status or ids.",
        )
    found: list[Thread] = []
    for offset in range(0, most, _PAGE_SIZE):
        page = await services.runs.threads.search(replace(query, limit=_PAGE_SIZE, offset=offset))
        held = [json_contains(await thread_values(services, thread), wanted) for thread in page]
        found += compress(page, held)
        if len(page) < _PAGE_SIZE:
            break
    return found


def json_contains(value: object, wanted: object) -> bool:
    """Return whether JSON contains other JSON: objects by key, lists in any order, other values if equal.

    >>> json_contains({"a": {"b": 1, "c": 2}, "l": [1, 2]}, {"a": {"b": 1}, "l": [2]})
    True
    >>> json_contains({"a": 1}, {"a": 2}), json_contains(None, {})
    (False, False)
    """
    if isinstance(wanted, Mapping):
        return isinstance(value, Mapping) and all(
            key in value and json_contains(value[key], one) for key, one in wanted.items()
        )
    if isinstance(wanted, list):
        return isinstance(value, list) and all(
            any(json_contains(have, one) for have in value) for one in wanted
        )
    return value == wanted


def parse_path(path: str) -> list[str | int]:
    """Return the steps of a path. Raises HTTPException (422).

    >>> parse_path("values.messages[-1].content")
    ['values', 'messages', -1, 'content']
    """
    if not _PATH.fullmatch(path):
        raise HTTPException(
            422, f"extract: {path[:80]!r} is not a path such as values.messages[-1].content"
        )
    return [int(step[1:-1]) if step.startswith("[") else step for step in _STEP.findall(path)]


def extract_path(value: object, steps: Sequence[str | int]) -> object:
    """Return the value at a path; None if the path does not exist.

    >>> extract_path({"values": {"l": [1, {"x": 5}]}}, ["values", "l", -1, "x"]), extract_path({}, ["a", 0])
    (5, None)
    """
    for step in steps:
        if isinstance(step, str):
            value = value.get(step) if isinstance(value, Mapping) else None
        elif isinstance(value, list) and -len(value) <= step < len(value):
            value = value[step]
        else:
            return None
    return value
