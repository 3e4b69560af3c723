"""What runs of a thread's token may not choose: whose they are, whom Parley calls when they end, and how many wait.

Whoever holds such a token, as every visitor of a page with an embedded chat does, reads and changes one thread. Notes
about people are not of the thread, so its runs have notes of their own.
"""

from collections import Counter, deque
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import anyio.to_thread
from fastapi import HTTPException

from gateway.api_tokens import TOKEN_THREAD
from gateway.runtime.live_run import LiveRun
from gateway.runtime.request import GraphRunRequest
from gateway.runtime.serialization import dumps
from gateway.services import Services

MEMORY_SCOPE = "memory_scope"
MAX_UNFINISHED_RUNS = 20
"""As many as messages may wait in a conversation."""

MAX_OPTION_BYTES = 65_536
"""Length of a run's options in JSON: each checkpoint, and each event of some streams, has a copy of them."""

MAX_SUGGESTING = 2
"""Requests for suggestions that a model answers at the same time: each calls it at once, unlike runs of one thread."""

_suggesting: Counter[str] = Counter()

MAX_VALUES = 100_000
"""Values in the JSON of a request; messages of people have few, however long they are."""

_SYSTEM_ROLES = frozenset({"system", "developer"})
_IDENTITY = (MEMORY_SCOPE, "user_id", "is_bootstrap", "chat")


def refuse_options(config: object, context: object, metadata: object, webhook: object) -> None:
    """Refuse options of a run that the token of a thread may not set. Raises HTTPException (403, 422)."""
    if not TOKEN_THREAD.get():
        return
    options = config.get("configurable") if isinstance(config, Mapping) else None
    named = {key for one in (options, context) if isinstance(one, Mapping) for key in one}
    refused = [key for key in _IDENTITY if key in named]
    if webhook is not None:
        refused.append("webhook")
    if refused:
        raise HTTPException(403, f"The token of a thread may not set {refused[0]!r} of a run.")
    if len(dumps([config, context, metadata])) > MAX_OPTION_BYTES:
        detail = f"config, context and metadata may have {MAX_OPTION_BYTES:,} bytes together."
        raise HTTPException(422, detail)


def require_few_values(given: object) -> None:
    """Refuse JSON with so many values that looking at them takes a while. Raises HTTPException (422)."""
    if TOKEN_THREAD.get():
        deque(_values_in(given), maxlen=0)


def refuse_system_messages(*given: object) -> None:
    """Refuse messages that would become part of the system message, or name who wrote them. Raises HTTPException (403).

    Args:
        given: JSON of a request in which messages may be.
    """
    if not TOKEN_THREAD.get():
        return
    if _has_system_message(given):
        raise HTTPException(403, "The token of a thread may not send system messages.")
    if any(
        isinstance(one, dict) and {"sender", "chat_type"} <= one.keys() for one in _values_in(given)
    ):
        raise HTTPException(403, "The token of a thread may not say who wrote a message.")


def _has_system_message(given: object) -> bool:
    """Return whether a message for the system is anywhere in JSON, in any form that LangChain reads.

    >>> _has_system_message({"messages": [{"role": "developer"}]}), _has_system_message([["system", "obey"]])
    (True, True)
    >>> _has_system_message({"messages": [{"role": "user", "content": "the system"}]})
    False
    """
    return any(map(_is_system_message, _values_in(given)))


def _values_in(given: object) -> Iterator[object]:
    """Yield all values in JSON. Raises HTTPException (422): there are more than `MAX_VALUES`."""
    left, found = MAX_VALUES, [given]
    while found:
        value = found.pop()
        yield value
        if not isinstance(value, dict | list | tuple):
            continue
        left -= len(value)
        if left < 0:
            raise HTTPException(
                422, f"The token of a thread may send {MAX_VALUES:,} values at once."
            )
        found += value.values() if isinstance(value, dict) else value


def _is_system_message(given: object) -> bool:
    match given:
        case dict():
            kinds = [
                kind for kind in (given.get("role"), given.get("type")) if isinstance(kind, str)
            ]
            return not _SYSTEM_ROLES.isdisjoint(kinds) or _names_system_message(given.get("id"))
        case [str(role), _]:
            return role in _SYSTEM_ROLES
    return False


def _names_system_message(identifier: object) -> bool:
    """Return whether this is the `id` of a serialized system message: the path of its class."""
    parts = identifier if isinstance(identifier, list) else ()
    return any(isinstance(part, str) and "SystemMessage" in part for part in parts)


async def require_disk_space(services: Services) -> None:
    """Refuse what the token of a thread wants stored if the disk is nearly full: what is left is for the bots.

    Raises HTTPException (503).
    """
    if not TOKEN_THREAD.get():
        return
    free = await anyio.to_thread.run_sync(services.database.free_bytes)
    if free < services.agent_services.config.get().sandbox.min_free_disk_mb * 2**20:
        raise HTTPException(503, "The disk is nearly full.", headers={"Retry-After": "60"})


@contextmanager
def permitted_suggestions() -> Iterator[None]:
    """Ask for suggestions inside the block; with the token of a thread, few at a time. Raises HTTPException (429)."""
    thread_id = TOKEN_THREAD.get()
    if not thread_id:
        yield
        return
    if _suggesting[thread_id] >= MAX_SUGGESTING:
        detail = f"The token of a thread may ask for {MAX_SUGGESTING} suggestions at a time."
        raise HTTPException(429, detail, headers={"Retry-After": "5"})
    _suggesting[thread_id] += 1
    try:
        yield
    finally:
        _suggesting[thread_id] -= 1
        if not _suggesting[thread_id]:
            del _suggesting[thread_id]


async def start_permitted(services: Services, request: GraphRunRequest) -> LiveRun:
    """Start a run; one of a thread's token only if few are unfinished, since each is kept in memory.

    Raises what `RunManager.start` raises, and HTTPException (429, 503).
    """
    await require_disk_space(services)
    thread_id = TOKEN_THREAD.get()
    if thread_id and len(services.runs.active_on_thread(thread_id)) >= MAX_UNFINISHED_RUNS:
        detail = f"The token of a thread may have {MAX_UNFINISHED_RUNS} unfinished runs."
        raise HTTPException(429, detail, headers={"Retry-After": "5"})
    return await services.runs.start(_with_own_memory(request))


def _with_own_memory(request: GraphRunRequest) -> GraphRunRequest:
    """Return a request whose run uses the notes of the token's thread, unless its assistant names others."""
    thread_id = TOKEN_THREAD.get()
    if not thread_id:
        return request
    options: dict[str, Any] = dict(request.config.get("configurable") or {})
    if MEMORY_SCOPE in options or MEMORY_SCOPE in request.context:
        return request
    return replace(request, context={**request.context, MEMORY_SCOPE: f"thread:{thread_id}"})
