"""Threads by what their state holds, and single values out of it."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import compress
from typing import Any

import orjson

from gateway.langgraph.route import Refused
from gateway.langgraph.services import LangGraphServices
from gateway.runtime.serialization import dumps
from store.threads import Thread, ThreadQuery

_PAGE = 250
_PATH = re.compile(r"[A-Za-z_]\w*(?:\.\w+|\[-?\d{1,9}\])*")
_STEP = re.compile(r"\w+|\[-?\d+\]")


async def values_of(services: LangGraphServices, thread: Thread) -> dict[str, Any] | None:
    """Return a thread's newest values as plain JSON."""
    values = await services.states.values(thread.thread_id)
    return None if values is None else orjson.loads(dumps(values))


async def with_values(
    services: LangGraphServices, query: ThreadQuery, wanted: Mapping[str, Any]
) -> list[Thread]:
    """Return all threads of a query, limit and offset aside, whose state holds the wanted values.

    Raises:
        Refused: too many threads would have to be looked at.
    """
    most = services.most_looked_at
    if await services.threads.count(query) > most:
        raise Refused(
            422,
            f"A search by values looks at {most} threads at most: "
            "narrow it down by metadata, status or ids.",
        )
    found: list[Thread] = []
    for offset in range(0, most, _PAGE):
        page = await services.threads.search(replace(query, limit=_PAGE, offset=offset))
        held = [contains(await values_of(services, thread), wanted) for thread in page]
        found += compress(page, held)
        if len(page) < _PAGE:
            break
    return found


def contains(value: object, wanted: object) -> bool:
    """Return whether JSON holds other JSON: objects key by key, lists in any order, all else if equal.

    >>> contains({"a": {"b": 1, "c": 2}, "l": [1, 2]}, {"a": {"b": 1}, "l": [2]})
    True
    >>> contains({"a": 1}, {"a": 2}), contains(None, {})
    (False, False)
    """
    if isinstance(wanted, Mapping):
        return isinstance(value, Mapping) and all(
            key in value and contains(value[key], one) for key, one in wanted.items()
        )
    if isinstance(wanted, list):
        return isinstance(value, list) and all(
            any(contains(have, one) for have in value) for one in wanted
        )
    return value == wanted


def steps_of(path: str) -> list[str | int]:
    """Return the steps of a path. Raises Refused (422).

    >>> steps_of("values.messages[-1].content")
    ['values', 'messages', -1, 'content']
    """
    if not _PATH.fullmatch(path):
        raise Refused(422, f"extract: {path[:80]!r} is not a path like values.messages[-1].content")
    return [int(step[1:-1]) if step.startswith("[") else step for step in _STEP.findall(path)]


def at(value: object, steps: Sequence[str | int]) -> object:
    """Return what lies at the end of a path; None where it leads nowhere.

    >>> at({"values": {"l": [1, {"x": 5}]}}, ["values", "l", -1, "x"]), at({}, ["a", 0])
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
