"""The service's event loop: shares its time between channels and API clients, and between these and their runs.

asyncio runs what is ready in order of arrival. Whoever has a thousand callbacks ready makes everybody wait for all of
them: at each step of a command, of which there are dozens. Here each group has a queue of its own, and the group that
used the least time is next, so that a command of one chat waits for a slice, however much arrives at another bot.
"""

import asyncio
import time
from collections import deque
from collections.abc import Callable, Hashable
from concurrent.futures import Executor
from contextvars import Context, copy_context
from threading import get_ident

import orjson
from typing_extensions import TypeVar, TypeVarTuple, Unpack, override

from gateway.runtime.log_context import CURRENT_RUN
from store.work_group import WORK_GROUP

SLICE_S = 0.0005
"""How long callbacks of groups run before sockets, timers and other threads are served again, seconds."""

CREDIT_S = 0.05
"""How far a group that rested may be behind the others: for so long it goes first when it has something to do."""

_Arguments = TypeVarTuple("_Arguments")
_Result = TypeVar("_Result")

_KEEPS_LOCK: tuple[object, ...] = (orjson.dumps, orjson.loads)
"""Functions that keep the interpreter's lock from start to end, so that a thread gains nothing."""

GroupOf = Callable[[Context], Hashable]
"""Returns the group of a context; None = none, its callbacks are not held back."""


def work_group(context: Context) -> Hashable:
    """Return who a context works for: a channel, the API, or the runs of one of them.

    >>> def enter() -> Context:
    ...     WORK_GROUP.set("telegram")
    ...     return copy_context()
    >>> work_group(copy_context()), work_group(copy_context().run(enter))
    (None, 'telegram')
    """
    group = context.get(WORK_GROUP)
    return group if context.get(CURRENT_RUN) is None else (group, "runs")


class FairEventLoop(asyncio.SelectorEventLoop):
    """An event loop in which groups take turns.

    Within a group, callbacks run in order. Callbacks without a group run at once, as in any event loop.

    Args:
        group_of: Called with the context of each callback.
        clock: Returns seconds.
    """

    def __init__(
        self, group_of: GroupOf = work_group, *, clock: Callable[[], float] = time.perf_counter
    ) -> None:
        super().__init__()
        self._group_of = group_of
        self._clock = clock
        # What asyncio's own call_soon appends to, after five calls that take as long as the callback's own.
        self._ungrouped: deque[asyncio.Handle] = vars(self)["_ready"]
        self._queues: dict[Hashable, deque[asyncio.Handle]] = {}
        self._used: dict[Hashable, float] = {}
        self._last_used = 0.0
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
        group = self._group_of(context)
        if self.is_closed():
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
        # LangGraph calls this for each token from the loop's own thread, which needs no write to a socket to wake up.
        # Only inside a slice: a signal's handler may run in that thread while it waits for sockets.
        if self._slice_thread == get_ident():
            return self.call_soon(callback, *args, context=context)
        return super().call_soon_threadsafe(callback, *args, context=context)

    @override
    def run_in_executor(
        self,
        executor: Executor | None,
        func: Callable[[Unpack[_Arguments]], _Result],
        *args: *_Arguments,
    ) -> asyncio.Future[_Result]:
        # langgraph_sdk encodes and decodes each body in a thread: the loop waits all the same, and for two changes of
        # threads besides.
        if executor is not None or func not in _KEEPS_LOCK:
            return super().run_in_executor(executor, func, *args)
        future: asyncio.Future[_Result] = self.create_future()
        try:
            future.set_result(func(*args))
        except (TypeError, ValueError) as error:  # what orjson raises
            future.set_exception(error)
        return future

    def _start_queue(self, group: Hashable) -> deque[asyncio.Handle]:
        if not self._queues:
            super().call_soon(self._run_slice, context=_NO_GROUP)
        self._used[group] = max(self._used.get(group, 0.0), self._last_used - CREDIT_S)
        queue = self._queues[group] = deque()
        return queue

    def _run_slice(self) -> None:
        """Run callbacks for one slice, first of the group that used the least time."""
        self._slice_thread = get_ident()
        try:
            self._run_queues()
        finally:  # also after SystemExit, so that the end of the service does not wait for ever
            self._slice_thread = None
            if self._queues:
                super().call_soon(self._run_slice, context=_NO_GROUP)

    def _run_queues(self) -> None:
        now = self._clock()
        until = now + SLICE_S
        while self._queues and now < until:
            group = min(self._queues, key=self._used.__getitem__)
            queue, started = self._queues[group], now
            while queue and now < until:
                handle = queue.popleft()
                if not handle.cancelled():
                    handle._run()  # noqa: SLF001 - what every event loop calls; it reports exceptions
                now = self._clock()
            self._used[group] += now - started
            self._last_used = self._used[group]
            if not queue:
                del self._queues[group]


_NO_GROUP = Context()
