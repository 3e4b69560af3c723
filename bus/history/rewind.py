"""Rewinds a thread to the state before a message, over the LangGraph wire API."""

from collections.abc import Mapping, Sequence
from typing import Any, cast

import httpx
from langgraph_sdk.schema import Checkpoint

from bus.errors import AgentThreadBusy, RewindUnsupported, RunError
from bus.runs.client import RunClient, run_error
from bus.runs.stream import Message, messages_in

HISTORY_PAGE = 10
"""Past states that are read at once; each holds the whole conversation up to it."""

HISTORY_PAGES = 20
"""Pages that are read at most: a turn of some 200 steps."""

State = Mapping[str, Any]


class ThreadRewinder:
    """Rewinds the threads of one server."""

    def __init__(self, runs: RunClient) -> None:
        self._runs = runs

    async def rewind(self, thread_id: str, message_id: str, *others: str) -> None:
        """Remove a message and everything after it from a thread; do nothing if it is not there.

        `others`: further ids that it may have; the first of them in the thread counts.

        The thread goes on from its newest state without the message. Where that state is gone (a server
        keeps so many) the messages are removed one by one.

        Raises:
            AgentThreadBusy: a run holds the thread.
            RewindUnsupported: the server does not do this.
            RunError: the server cannot be reached, or lost the thread.
        """
        ids = [str(message.get("id")) for message in await self._runs.get_messages(thread_id)]
        candidates = {message_id, *others}
        first = next((one for one in ids if one in candidates), None)
        if first is None:
            return
        try:
            base = await self._state_before(thread_id, first)
            if base is None:
                await self._remove(thread_id, ids[ids.index(first) :])
            else:
                await self._fork(thread_id, base, first)
        except httpx.HTTPError as error:
            raise _unchanged(error) from error
        if _holds(await self._runs.get_messages(thread_id), first):
            raise RewindUnsupported

    async def _state_before(self, thread_id: str, message_id: str) -> State | None:
        """Return the newest past state without a message, rather none that is about to take a message in."""
        before: Checkpoint | None = None
        at_start: State | None = None
        for _ in range(HISTORY_PAGES):
            page = await self._runs.threads.get_history(
                thread_id, limit=HISTORY_PAGE, before=before
            )
            for state in page:
                held = messages_in(_values(state))
                if _holds(held, message_id):
                    continue
                if "__start__" not in (state.get("next") or ()):
                    return state
                at_start = state if not held else at_start
            if len(page) < HISTORY_PAGE:
                break
            # Some servers know a state by its id alone.
            before = page[-1].get("checkpoint") or cast(Checkpoint, _id_of(page[-1]))
        return at_start

    async def _fork(self, thread_id: str, base: State, message_id: str) -> None:
        threads, where = self._runs.threads, _id_of(base)
        # Some histories leave out what past states held: ask for this one before it becomes the newest.
        whole = await threads.get_state(thread_id, checkpoint_id=where)
        if _holds(messages_in(_values(whole)), message_id):
            raise RewindUnsupported
        await threads.update_state(thread_id, None, as_node="__copy__", checkpoint_id=where)
        if base.get("next"):
            await self._end_thread(thread_id)

    async def _remove(self, thread_id: str, ids: Sequence[str]) -> None:
        removed = {"messages": [{"type": "remove", "id": one, "content": ""} for one in ids]}
        await self._runs.threads.update_state(thread_id, removed, as_node="__start__")
        await self._end_thread(thread_id)

    async def _end_thread(self, thread_id: str) -> None:
        """Let no run continue from the newest state by itself."""
        await self._runs.threads.update_state(thread_id, None, as_node="__end__")


def _holds(messages: Sequence[Message], message_id: str) -> bool:
    return any(message.get("id") == message_id for message in messages)


def _values(state: State) -> Mapping[str, Any]:
    values = state.get("values")
    return values if isinstance(values, dict) else {}


def _id_of(state: State) -> str:
    return str((state.get("checkpoint") or state).get("checkpoint_id") or "")


def _unchanged(error: httpx.HTTPError) -> RunError:
    """Return what a refused change of a thread means: a route that is missing is a refusal too."""
    meaning = run_error(error)
    if isinstance(meaning, AgentThreadBusy) or meaning.retryable:
        return meaning
    return RewindUnsupported()
