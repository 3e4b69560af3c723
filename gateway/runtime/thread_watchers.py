"""ThreadWatchers: notifies the watchers of a thread about each run that starts on it."""

from collections import deque
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Protocol

import anyio
from typing_extensions import override

from gateway.runtime.local_run import LocalRun

MAX_PENDING_RUNS = 1000
"""Maximum number of runs that can wait for a slow watcher. Beyond it, the oldest are dropped."""


class ThreadWatcher:
    """One watcher's runs, in the order of their starts."""

    def __init__(self) -> None:
        self._runs: deque[LocalRun] = deque(maxlen=MAX_PENDING_RUNS)
        self._more = anyio.Event()
        self._closed = False

    def add(self, live: LocalRun) -> None:
        """Add a run."""
        self._runs.append(live)
        self._more.set()

    def close(self) -> None:
        """End the subscription."""
        self._closed = True
        self._more.set()

    async def receive(self) -> LocalRun | None:
        """Wait for the next run. None = the subscription has ended."""
        while not self._runs:
            if self._closed:
                return None
            self._more = anyio.Event()
            await self._more.wait()
        return self._runs.popleft()


class RunsOfOtherNodes(Protocol):
    """The runs of other nodes."""

    async def watch(self, thread_id: str) -> None:
        """Publish runs that other nodes start on a thread, from now on until nobody watches it."""
        ...

    def announce(self, live: LocalRun) -> None:
        """Tell the nodes that watch a run's thread about the run, which this node executes."""
        ...

    async def fetch(self, thread_id: str) -> list[LocalRun]:
        """Return the runs on a thread whose events other nodes have in memory."""
        ...

    def copies(self, thread_id: str) -> list[LocalRun]:
        """Return the copies of other nodes' runs on a thread."""
        ...


class NoOtherNodes(RunsOfOtherNodes):
    """Knows no other nodes. Used until the service has opened the runs of all nodes, and after it has closed them."""

    @override
    async def watch(self, thread_id: str) -> None:
        return

    @override
    def announce(self, live: LocalRun) -> None:
        return

    @override
    async def fetch(self, thread_id: str) -> list[LocalRun]:
        return []

    @override
    def copies(self, thread_id: str) -> list[LocalRun]:
        return []


class ThreadWatchers:
    """The watchers of each thread.

    Args:
        own_runs: Returns the runs of this node on a thread whose events are in memory.

    Attributes:
        own_runs: The argument.
        other_nodes: The runs of other nodes.
    """

    def __init__(self, own_runs: Callable[[str], list[LocalRun]]) -> None:
        self.own_runs = own_runs
        self.other_nodes: RunsOfOtherNodes = NoOtherNodes()
        self._watchers: dict[str, set[ThreadWatcher]] = {}

    def has(self, thread_id: str) -> bool:
        """Whether somebody watches a thread."""
        return thread_id in self._watchers

    @asynccontextmanager
    async def subscribe(self, thread_id: str) -> AsyncIterator[ThreadWatcher]:
        """Subscribe to a thread's runs from now on, whichever node starts them."""
        watcher = ThreadWatcher()
        watchers = self._watchers.setdefault(thread_id, set())
        watchers.add(watcher)
        try:
            await self.other_nodes.watch(thread_id)
            yield watcher
        finally:
            watchers.discard(watcher)
            if not watchers and self._watchers.get(thread_id) is watchers:
                del self._watchers[thread_id]

    def runs(self, thread_id: str) -> list[LocalRun]:
        """Return the runs on a thread whose events are in memory, in the order of their starts."""
        begun = self.own_runs(thread_id) + self.other_nodes.copies(thread_id)
        return sorted(begun, key=_start_order)

    async def runs_since(self, thread_id: str, run_id: str) -> list[LocalRun]:
        """Return the runs on a thread whose events some node has in memory, in the order of their starts.

        `run_id`: The last run whose events a client has seen. If this node knows it, no other node is asked.
        """
        known = {live.attempt_id: live for live in self.runs(thread_id)}
        is_known = any(live.run_id == run_id for live in known.values())
        if run_id and not is_known:
            fetched = await self.other_nodes.fetch(thread_id)
            known = {live.attempt_id: live for live in fetched} | known
        return sorted(known.values(), key=_start_order)

    def publish(self, live: LocalRun) -> None:
        """Tell the watchers of a thread about a run that this node starts."""
        self.publish_here(live)
        self.other_nodes.announce(live)

    def publish_here(self, live: LocalRun) -> None:
        """Tell the watchers of a thread at this node about a run."""
        for watcher in self._watchers.get(live.thread_id, ()):
            watcher.add(live)

    def close(self) -> None:
        """End all subscriptions."""
        for watchers in self._watchers.values():
            for watcher in watchers:
                watcher.close()


def _start_order(live: LocalRun) -> tuple[float, int]:
    return live.row.created_at, live.attempt
