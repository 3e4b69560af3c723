"""Pool of MCP sessions: one per server and thread, the least recently used closed first."""

import contextvars
from collections import OrderedDict
from collections.abc import Callable, Coroutine
from typing import Any

import anyio
from anyio.abc import TaskGroup

from agent.mcp.session import Connect, McpSession

CLOSE_S = 5.0
"""Time limit for closing all sessions together. A process is killed after 3 s."""

Key = tuple[object, str]
"""A server and a thread id."""


class McpSessionPool:
    """Runs sessions in its task group, and keeps sessions for reuse.

    Args:
        tasks: Owns the sessions' tasks; outlives every run.
        max_sessions: Maximum number of kept sessions.
    """

    def __init__(self, tasks: TaskGroup, max_sessions: Callable[[], int]) -> None:
        self._tasks = tasks
        self._max_sessions = max_sessions
        self._kept: OrderedDict[Key, McpSession] = OrderedDict()
        self._all: set[McpSession] = set()

    def __len__(self) -> int:
        """Return how many sessions have not ended yet."""
        return len(self._all)

    def open(self, connect: Connect, connect_timeout_s: float) -> McpSession:
        """Open a session for this caller only. The caller must close it."""
        session = McpSession(connect, connect_timeout_s)
        self._all.add(session)
        self.start(lambda: self._run(session))
        return session

    def start(self, work: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Start a task that outlives the current run and inherits none of its context variables."""
        contextvars.Context().run(lambda: self._tasks.start_soon(work))

    def start_call(self, work: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Start the task of a tool call. It may outlive the run. The server receives the run's trace context."""
        self._tasks.start_soon(work)

    def get_or_open(
        self, key: Key, connect: Connect, connect_timeout_s: float, idle_s: float
    ) -> McpSession:
        """Return the session of a server and thread; it closes after `idle_s` without use."""
        session = self._kept.get(key)
        if session is None or not session.is_usable:
            session = self._kept[key] = self.open(connect, connect_timeout_s)
            self._kept.move_to_end(key)
            self._make_room()
        self._kept.move_to_end(key)
        session.close(after_idle_s=idle_s)
        return session

    def drop(self, server: object, *, after_idle_s: float = 0.0) -> None:
        """Close all sessions of a server, now or after some seconds without use."""
        for (owner, _), session in list(self._kept.items()):
            if owner is server:
                session.close(after_idle_s=after_idle_s)

    async def aclose(self) -> None:
        """Close all sessions, within `CLOSE_S`."""
        for session in self._all:
            session.close()
        with anyio.move_on_after(CLOSE_S, shield=True):
            for session in list(self._all):
                await session.ended.wait()

    def _make_room(self) -> None:
        """Close the least recently used idle sessions. If all are busy, the pool exceeds its limit for a while."""
        idle = [key for key, session in self._kept.items() if not session.is_busy][:-1]
        for key in idle[: max(0, len(self._kept) - self._max_sessions())]:
            self._kept.pop(key).close()

    async def _run(self, session: McpSession) -> None:
        try:
            await session.run()
        finally:
            self._all.discard(session)
            for key in [key for key, kept in self._kept.items() if kept is session]:
                del self._kept[key]
