"""ThreadSubscribers: notifies subscribers of a thread about each run that starts on it."""

from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager

import anyio

from gateway.runtime.live_run import LiveRun

MAX_PENDING_RUNS = 1000
"""Runs that can wait for a slow subscriber; beyond it the oldest are dropped."""


class ThreadSubscription:
    """One subscriber's runs, in the order of their starts."""

    def __init__(self) -> None:
        self._runs: deque[LiveRun] = deque(maxlen=MAX_PENDING_RUNS)
        self._more = anyio.Event()
        self._closed = False

    def add(self, live: LiveRun) -> None:
        """Add a run."""
        self._runs.append(live)
        self._more.set()

    def close(self) -> None:
        """End the subscription."""
        self._closed = True
        self._more.set()

    async def receive(self) -> LiveRun | None:
        """Wait for the next run; None = the subscription has ended."""
        while not self._runs:
            if self._closed:
                return None
            self._more = anyio.Event()
            await self._more.wait()
        return self._runs.popleft()


class ThreadSubscribers:
    """The subscribers of all threads."""

    def __init__(self) -> None:
        self._followers: dict[str, set[ThreadSubscription]] = {}

    @contextmanager
    def subscribe(self, thread_id: str) -> Iterator[ThreadSubscription]:
        """Subscribe to a thread's runs from now on."""
        follower = ThreadSubscription()
        followers = self._followers.setdefault(thread_id, set())
        followers.add(follower)
        try:
            yield follower
        finally:
            followers.discard(follower)
            if not followers:
                self._followers.pop(thread_id, None)

    def publish(self, live: LiveRun) -> None:
        """Notify a thread's subscribers of a new run."""
        for follower in self._followers.get(live.thread_id, ()):
            follower.add(live)

    def close(self) -> None:
        """End all subscriptions."""
        for followers in self._followers.values():
            for follower in followers:
                follower.close()
