"""ThreadSubscribers: notifies subscribers of a thread about each run that starts on it."""

from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager

import anyio

from gateway.runtime.live_run import LiveRun

MAX_PENDING_RUNS = 1000
"""Runs that a slow follower may lag behind; beyond it the oldest are left out."""


class ThreadSubscription:
    """One follower's runs, in the order in which they began."""

    def __init__(self) -> None:
        self._runs: deque[LiveRun] = deque(maxlen=MAX_PENDING_RUNS)
        self._more = anyio.Event()
        self._closed = False

    def add(self, live: LiveRun) -> None:
        """Take a run."""
        self._runs.append(live)
        self._more.set()

    def close(self) -> None:
        """Say that there will be no more runs."""
        self._closed = True
        self._more.set()

    async def receive(self) -> LiveRun | None:
        """Wait for the next run; None = there will be none."""
        while not self._runs:
            if self._closed:
                return None
            self._more = anyio.Event()
            await self._more.wait()
        return self._runs.popleft()


class ThreadSubscribers:
    """The followers of all threads. A thread without any takes no memory."""

    def __init__(self) -> None:
        self._followers: dict[str, set[ThreadSubscription]] = {}

    @contextmanager
    def subscribe(self, thread_id: str) -> Iterator[ThreadSubscription]:
        """Follow a thread from now on."""
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
        """Tell a thread's followers that a run begins."""
        for follower in self._followers.get(live.thread_id, ()):
            follower.add(live)

    def close(self) -> None:
        """Send all followers away."""
        for followers in self._followers.values():
            for follower in followers:
                follower.close()
