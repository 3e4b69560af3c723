"""Run slots: limits how many runs are active at once, and decides who is next."""

from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import anyio

Person = tuple[str, str]
"""A workspace and the ID of a user in it."""


class RunSlots:
    """Limits how many runs are active at once.

    Channels that wait for a slot take turns, and so do the people of each channel. So a flood of messages to one bot
    delays another bot's message by at most one run.

    Args:
        total: Maximum number of active runs.
    """

    def __init__(self, total: int) -> None:
        self._free = total
        self._waiting: dict[str, dict[Person, deque[anyio.Event]]] = {}

    @asynccontextmanager
    async def slot(self, channel: str, person: Person) -> AsyncIterator[None]:
        """Wait for a slot and hold it inside the block."""
        await self._acquire(channel, person)
        try:
            yield
        finally:
            self._release()

    async def _acquire(self, channel: str, person: Person) -> None:
        if self._free:
            self._free -= 1
            return
        granted = anyio.Event()
        people = self._waiting.setdefault(channel, {})
        people.setdefault(person, deque()).append(granted)
        is_held = False
        try:
            await granted.wait()
            is_held = True
        finally:
            if not is_held and granted.is_set():
                self._release()
            elif not is_held:
                self._forget(channel, person, granted)

    def _release(self) -> None:
        """Give the slot to the next person. Move their channel, and them within it, to the end of the line."""
        if not self._waiting:
            self._free += 1
            return
        channel = next(iter(self._waiting))
        people = self._waiting.pop(channel)
        person = next(iter(people))
        queue = people.pop(person)
        queue.popleft().set()
        if queue:
            people[person] = queue
        if people:
            self._waiting[channel] = people

    def _forget(self, channel: str, person: Person, granted: anyio.Event) -> None:
        people = self._waiting[channel]
        people[person].remove(granted)
        if not people[person]:
            del people[person]
        if not people:
            del self._waiting[channel]
