"""Rewinds a thread to the state before a message, using the threads API of LangGraph."""

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from bus.errors import RewindUnsupported
from bus.runs.stream import Message, messages_in

HISTORY_PAGE = 10
"""Number of past states per page. Each contains the whole conversation up to it."""

HISTORY_PAGES = 20
"""Maximum number of pages to read. They cover a turn of about 200 steps."""

State = Mapping[str, Any]
"""A state of a thread in the form of LangGraph's API."""


class ThreadStatesApi(Protocol):
    """The states of one thread. Calls may raise RunError; `update` raises RewindUnsupported if the server lacks it."""

    async def latest(self) -> State:
        """Return the current state."""

    async def at(self, checkpoint_id: str) -> State:
        """Return a past state."""

    async def page(self, *, limit: int, before: State | None) -> Sequence[State]:
        """Return past states, newest first. `before`: only states before this one."""

    async def update(
        self, values: Mapping[str, Any] | None, *, as_node: str, checkpoint_id: str = ""
    ) -> None:
        """Write a new state. `checkpoint_id`: the parent state; "" = the newest."""


async def rewind_thread(states: ThreadStatesApi, message_id: str, *others: str) -> None:
    """Remove a message and everything after it from a thread. Does nothing if the thread does not contain it.

    The thread continues from its newest state without the message. If the server has deleted that state, removes the
    messages one by one.

    Args:
        states: The states of the thread.
        message_id: The ID of the message.
        others: Further IDs that it may have. The first one in the thread counts.

    Raises:
        AgentThreadBusy: A run holds the thread.
        RewindUnsupported: The server cannot do this.
        RunError: The server cannot be reached, or lost the thread.
    """
    ids = [str(message.get("id")) for message in messages_in(_values(await states.latest()))]
    candidates = {message_id, *others}
    first = next((one for one in ids if one in candidates), None)
    if first is None:
        return
    base = await _state_before(states, first)
    if base is None:
        await _remove(states, ids[ids.index(first) :])
    else:
        await _fork(states, base, first)
    if _holds(await states.latest(), first):
        raise RewindUnsupported


async def _state_before(states: ThreadStatesApi, message_id: str) -> State | None:
    """Return the newest past state that lacks a message. Prefers states that are not about to receive a message."""
    before: State | None = None
    at_start: State | None = None
    for _ in range(HISTORY_PAGES):
        page = await states.page(limit=HISTORY_PAGE, before=before)
        for state in page:
            if _holds(state, message_id):
                continue
            if "__start__" not in (state.get("next") or ()):
                return state
            at_start = at_start if messages_in(_values(state)) else state
        if len(page) < HISTORY_PAGE:
            break
        before = page[-1]
    return at_start


async def _fork(states: ThreadStatesApi, base: State, message_id: str) -> None:
    where = checkpoint_id_of(base)
    # Some histories omit the values of past states, so read this one before making it the newest.
    if _holds(await states.at(where), message_id):
        raise RewindUnsupported
    await states.update(None, as_node="__copy__", checkpoint_id=where)
    if base.get("next"):
        await _end_thread(states)


async def _remove(states: ThreadStatesApi, ids: Sequence[str]) -> None:
    removed = {"messages": [{"type": "remove", "id": one, "content": ""} for one in ids]}
    await states.update(removed, as_node="__start__")
    await _end_thread(states)


async def _end_thread(states: ThreadStatesApi) -> None:
    """End the newest state's pending steps, so that no run continues from it on its own."""
    await states.update(None, as_node="__end__")


def checkpoint_id_of(state: State) -> str:
    """Return the ID of a state; "" = the server gives none."""
    return str((state.get("checkpoint") or state).get("checkpoint_id") or "")


def _holds(state: State, message_id: str) -> bool:
    messages: list[Message] = messages_in(_values(state))
    return any(message.get("id") == message_id for message in messages)


def _values(state: State) -> Mapping[str, Any]:
    values = state.get("values")
    return values if isinstance(values, dict) else {}
