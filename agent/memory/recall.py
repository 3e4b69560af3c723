"""ConversationSearch: stores the messages that people saw, and searches them within one scope."""

import logging
from collections.abc import Sequence
from datetime import UTC, datetime

import anyio

from agent.memory.scope import MemoryScope
from agent.memory.turns import MemoryTurn
from store.errors import StoreError
from store.past_messages import PastMessage, PastMessages

log = logging.getLogger(__name__)

STORE_AFTER_S = 2.0
"""Time for which turns are collected, then stored in one transaction, seconds. A search stores them at once."""

MAX_WAITING = 2_000
"""Maximum number of turns that wait while the database cannot be used. Older ones are dropped."""


class ConversationSearch:
    """Stores turns in the background, and finds their messages.

    Args:
        messages: The table.
    """

    def __init__(self, messages: PastMessages) -> None:
        self._messages = messages
        self._waiting: list[MemoryTurn] = []
        self._added = anyio.Event()
        self._storing = anyio.Lock()

    def add(self, turn: MemoryTurn) -> None:
        """Store a turn soon."""
        self._waiting.append(turn)
        del self._waiting[:-MAX_WAITING]
        self._added.set()

    async def run(self) -> None:
        """Store turns forever."""
        while True:
            await self._added.wait()
            await anyio.sleep(STORE_AFTER_S)
            await self.flush()

    async def flush(self) -> None:
        """Store the waiting turns. Failures are logged, and turns that could not be stored keep waiting."""
        async with self._storing:
            self._added = anyio.Event()
            turns, self._waiting = self._waiting, []
            if not turns:
                return
            try:
                await self._messages.add([(_previous_id(turn), _rows(turn)) for turn in turns])
            except StoreError:
                log.warning("Could not store %s turns for recall", len(turns))
                self._waiting = [*turns, *self._waiting]

    async def search(self, scope: MemoryScope, query: str, *, limit: int) -> list[PastMessage]:
        """Return the messages of a scope that match a query, best first. Raises StoreError."""
        await self.flush()
        return await self._messages.search(scope.scope, scope.agent or "", query, limit=limit)

    async def forget(self, scope: MemoryScope) -> None:
        """Delete the messages of a scope. Without an agent, delete those of all its agents. Raises StoreError."""
        async with self._storing:
            self._waiting = [turn for turn in self._waiting if not scope.covers(turn.scope)]
            await self._messages.delete_scope(scope.scope, scope.agent)

    async def forget_turn(self, thread_id: str, message_id: str) -> None:
        """Delete a message and the other messages of its turn. Raises StoreError."""
        await self.flush()
        await self._messages.delete_turn(thread_id, message_id)

    async def forget_from(self, thread_id: str, message_id: str) -> None:
        """Delete a message and all later messages of its thread. Raises StoreError."""
        await self.flush()
        await self._messages.delete_from(thread_id, message_id)


def _previous_id(turn: MemoryTurn) -> str:
    return turn.context[-1].id if turn.context else ""


def _rows(turn: MemoryTurn) -> Sequence[PastMessage]:
    said_at = (
        datetime.fromisoformat(turn.said_at) if turn.said_at else datetime.now(UTC)
    ).timestamp()
    return [
        PastMessage(
            scope=turn.scope.scope,
            agent=turn.scope.agent or "",
            thread_id=turn.thread_id,
            message_id=one.id,
            speaker=" ".join(filter(None, (one.speaker, one.speaker_id))),
            text=one.text,
            said_at=said_at,
        )
        for one in turn.messages
    ]
