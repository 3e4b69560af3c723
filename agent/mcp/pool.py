"""The open sessions of stdio servers: one for each server and thread, the least recently used ended first."""

import contextvars
from collections import OrderedDict
from collections.abc import Callable, Coroutine
from typing import Any, Final

import anyio
from anyio.abc import TaskGroup

from agent.mcp.session import Connect, McpSession

CLOSE_S: Final = 5.0
"""How long all sessions together may take to end. A process is killed after 3 s."""

Key = tuple[object, str]
"""A server and a thread."""


class McpSessionPool:
    """Starts sessions in its task group, and keeps those that are to be used again.

    Args:
        tasks: Owns the sessions' tasks; outlives every run.
        most: How many may be kept.
    """

    def __init__(self, tasks: TaskGroup, most: Callable[[], int]) -> None:
        self._tasks = tasks
        self._most = most
        self._kept: OrderedDict[Key, McpSession] = OrderedDict()
        self._all: set[McpSession] = set()

    def __len__(self) -> int:
        """Return how many have not ended yet."""
        return len(self._all)

    def open(self, connect: Connect, greet_s: float) -> McpSession:
        """Start a session that only its caller knows; the caller closes it."""
        session = McpSession(connect, greet_s)
        self._all.add(session)
        self.start(lambda: self._own(session))
        return session

    def start(self, work: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Start something that outlives the run which asked for it, and keeps nothing of that run's context."""
        contextvars.Context().run(lambda: self._tasks.start_soon(work))

    def get_or_open(self, key: Key, connect: Connect, greet_s: float, idle_s: float) -> McpSession:
        """Return the session of a server and thread; it ends by itself when nobody has used it for `idle_s`."""
        session = self._kept.get(key)
        if session is None or not session.is_usable:
            session = self._kept[key] = self.open(connect, greet_s)
            self._kept.move_to_end(key)
            self._make_room()
        self._kept.move_to_end(key)
        session.close(after_idle_s=idle_s)
        return session

    def drop(self, server: object, *, after_idle_s: float = 0.0) -> None:
        """End all sessions of a server: now, or when they have not been used for some seconds."""
        for (owner, _), session in list(self._kept.items()):
            if owner is server:
                session.close(after_idle_s=after_idle_s)

    async def aclose(self) -> None:
        """End all sessions, within `CLOSE_S`."""
        for session in self._all:
            session.close()
        with anyio.move_on_after(CLOSE_S, shield=True):
            for session in list(self._all):
                await session.ended.wait()

    def _make_room(self) -> None:
        """Close the least recently used that nobody waits for; where all are busy, there are more for a while."""
        idle = [key for key, session in self._kept.items() if not session.is_busy][:-1]
        for key in idle[: max(0, len(self._kept) - self._most())]:
            self._kept.pop(key).close()

    async def _own(self, session: McpSession) -> None:
        try:
            await session.run()
        finally:
            self._all.discard(session)
            for key in [key for key, kept in self._kept.items() if kept is session]:
                del self._kept[key]
