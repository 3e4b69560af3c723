"""The service's event loop: shares its time among channels and API clients, and between these and their runs.

asyncio runs ready callbacks in order of arrival. A client with a thousand ready callbacks delays all others at every
step, and a command takes dozens of steps. In this loop each group has its own queue, and the group that has used the
least time is next. So a command in one chat waits for at most one slice, even if another bot is flooded.

A command has to be answered within 300 ms (p99) during a burst. While 400 messages arrive at another bot, it waits for
289 ms of the loop's own processor time (p99), and with asyncio's loop for 564 ms (decision 0030).
"""

import asyncio
import time
from collections import deque
from collections.abc import Callable
from contextvars import Context, copy_context
from threading import get_ident

from typing_extensions import TypeVarTuple, Unpack, override

from store.work_group import WORK_GROUP

SLICE_S = 0.0005
"""How long callbacks of groups run before the loop serves sockets, timers and other threads again, seconds."""

CREDIT_S = 0.01
"""Maximum time by which an idle group may be behind the others, seconds. When it wakes up, it goes first for this long.

It is about the time of a command or message. A new burst also goes first for this long.
"""

_Arguments = TypeVarTuple("_Arguments")


class FairEventLoop(asyncio.SelectorEventLoop):
    """An event loop in which groups take turns.

    Within a group, callbacks run in order. Callbacks without a group run at once, as in other event loops.

    Args:
        clock: Returns seconds.
    """

    def __init__(self, *, clock: Callable[[], float] = time.perf_counter) -> None:
        super().__init__()
        self._is_open = True
        self._clock = clock
        # The list that asyncio's own call_soon appends to, after five calls that take as long as the callback.
        self._ungrouped: deque[asyncio.Handle] = vars(self)["_ready"]
        self._queues: dict[str, deque[asyncio.Handle]] = {}
        self._used: dict[str, float] = {}
        self._least_used = 0.0
        self._slice_thread: int | None = None

    @override
    def call_soon(
        self,
        callback: Callable[[Unpack[_Arguments]], object],
        *args: *_Arguments,
        context: Context | None = None,
    ) -> asyncio.Handle:
        if context is None:
            context = copy_context()
        group = context.get(WORK_GROUP)
        if not self._is_open:
            return super().call_soon(callback, *args, context=context)
        handle = asyncio.Handle(callback, args, self, context)
        if group is None:
            self._ungrouped.append(handle)
            return handle
        queue = self._queues.get(group)
        if queue is None:
            queue = self._start_queue(group)
        queue.append(handle)
        return handle

    @override
    def call_soon_threadsafe(
        self,
        callback: Callable[[Unpack[_Arguments]], object],
        *args: *_Arguments,
        context: Context | None = None,
    ) -> asyncio.Handle:
        # LangGraph calls this for each token from the loop's own thread, where the loop is awake and needs no write to
        # a socket. Only inside a slice, because a signal handler may run in this thread while it waits for sockets.
        if self._slice_thread == get_ident():
            return self.call_soon(callback, *args, context=context)
        return super().call_soon_threadsafe(callback, *args, context=context)

    @override
    def close(self) -> None:
        super().close()
        self._is_open = False

    def _start_queue(self, group: str) -> deque[asyncio.Handle]:
        if not self._queues:
            super().call_soon(self._run_slice, context=_NO_GROUP)
        self._used[group] = max(self._used.get(group, 0.0), self._least_used - CREDIT_S)
        queue = self._queues[group] = deque()
        return queue

    def _run_slice(self) -> None:
        """Run callbacks for one slice, starting with the group that has used the least time."""
        self._slice_thread = get_ident()
        try:
            self._run_queues()
        finally:  # also after SystemExit, because otherwise the service would never finish stopping
            self._slice_thread = None
            if self._queues:
                super().call_soon(self._run_slice, context=_NO_GROUP)

    def _run_queues(self) -> None:
        now = self._clock()
        until = now + SLICE_S
        while self._queues and now < until:
            group = min(self._queues, key=self._used.__getitem__)
            queue, started = self._queues[group], now
            # Never move it back: otherwise groups that are ahead would let each other get further ahead.
            self._least_used = max(self._least_used, self._used[group])
            while queue and now < until:
                handle = queue.popleft()
                # Every event loop uses these two members of a handle. `_run` reports exceptions itself.
                if not handle._cancelled:  # noqa: SLF001
                    handle._run()  # noqa: SLF001
                now = self._clock()
            self._used[group] += now - started
            if not queue:
                del self._queues[group]


_NO_GROUP = Context()
