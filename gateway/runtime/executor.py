"""RunExecutor: takes one run from its place in the queue to its recorded end."""

import asyncio
import logging
from collections.abc import Callable, Mapping
from contextlib import AbstractAsyncContextManager, AsyncExitStack, suppress
from dataclasses import replace
from functools import partial
from typing import Any, Protocol

import anyio
from langchain_core.runnables import RunnableConfig
from langgraph_sdk.runtime import AccessContext

from agent.options import STEERING_SOURCE_KEY
from agent.thread_queue import ThreadQueue
from gateway.runtime.finalizer import RunFinalizer
from gateway.runtime.lifecycle import RunFailure, RunResult
from gateway.runtime.local_run import LocalRun
from gateway.runtime.log_context import CURRENT_RUN, RunLogContext
from gateway.runtime.loop_budget import LoopBudget, ModelPacer
from gateway.runtime.message_state import has_messages
from gateway.runtime.request import (
    GraphRunRequest,
    graph_input,
    request_options,
    runnable_config,
)
from gateway.runtime.serialization import dumps
from gateway.runtime.steering import SteeringQueue
from gateway.runtime.thread_watchers import ThreadWatchers
from gateway.runtime.worker import (
    Graph,
    PreparedRun,
    address_resume,
    check_update,
    continue_attempt,
    execute_run,
    untaken_messages,
)
from store.errors import StoreUnavailable
from store.runs import RunStore
from store.work_group import WORK_GROUP, group_of_runs
from store.write_retry import WRITE_RETRY

MAX_CRASHES = 3
"""Attempts of a run that ended with their process. It is given up then: it may be what ends them."""

CLOSE_S = 10.0
"""Time limit of the cleanup of a function that made a graph, seconds."""

_CRASHED = RunFailure(
    error="TooManyAttempts",
    message=f"The server ended unexpectedly during {MAX_CRASHES} attempts of this run.",
)

log = logging.getLogger(__name__)


class RunOwner(Protocol):
    """The manager of the runs, as their executor needs it.

    Attributes:
        now: Returns the time, Unix seconds.
        rows: The runs' rows.
        watchers: Who is notified of runs on which thread.
    """

    now: Callable[[], float]
    rows: RunStore
    watchers: ThreadWatchers

    def open_graph(
        self,
        graph_id: str,
        config: RunnableConfig,
        access: AccessContext,
        context: Mapping[str, Any] | None = None,
    ) -> AbstractAsyncContextManager[Graph]:
        """Yield a graph with a checkpointer and a key-value store."""
        ...

    def close(self, live: LocalRun) -> None:
        """Let those who wait for a run know that it has ended."""
        ...


class RunExecutor:
    """Executes runs.

    Args:
        runs: Their manager.
        queue: Runs on one thread, one after the other.
        steering: Messages for active runs.
        finalizer: Writes their ends.
    """

    def __init__(
        self,
        runs: RunOwner,
        queue: ThreadQueue,
        steering: SteeringQueue,
        finalizer: RunFinalizer,
    ) -> None:
        self._runs = runs
        self._queue = queue
        self._steering = steering
        self._finalizer = finalizer
        self._budget = LoopBudget()
        self._pacer = ModelPacer(self._budget)

    async def run(self, live: LocalRun, request: GraphRunRequest) -> None:
        """Wait for the thread, execute the run, and record its end."""
        CURRENT_RUN.set(RunLogContext(thread_id=live.thread_id, run_id=live.run_id))
        WORK_GROUP.set(group_of_runs(WORK_GROUP.get()))
        WRITE_RETRY.set(live.write_retry)
        live.started_at = self._runs.now()
        webhook = None
        try:
            outcome = await self._execute(live, request)
            if live.is_left:
                return
            webhook = await self._finalizer.finish(live, outcome)
        except Exception:
            log.exception("Could not finish run %s.", live.run_id)
            live.row = replace(live.row, status="error", updated_at=self._runs.now())
        finally:
            if not live.is_left:
                self._runs.close(live)
            live.stopped.set()
        await self._finalizer.clean_up(live, webhook)

    async def _execute(self, live: LocalRun, request: GraphRunRequest) -> RunResult:
        now = self._runs.now
        waited = live.attempt > 1 or not live.ticket.ready.is_set()
        if request.after_seconds:
            with anyio.move_on_after(request.after_seconds):
                await live.ticket.ready.wait()
            if live.cancel_action is None:
                self._queue.enter(live.ticket)
        await live.ticket.ready.wait()
        may_start = live.cancel_action is None and not live.is_left
        if waited and may_start and not live.temporary:
            with suppress(StoreUnavailable):  # canceled meanwhile
                await live.write_retry(
                    partial(self._runs.rows.mark_running, live.run_id, now=now())
                )
        if live.is_left:
            return RunResult(status="interrupted", thread_unchanged=True)
        if live.cancel_action is not None:
            if live.attempt > 1 and live.cancel_action == "rollback":
                await self._finalizer.roll_back(live)
            return RunResult(status="interrupted", thread_unchanged=True)
        live.transition_to("running", now=now())
        self._runs.watchers.publish(live)
        if live.crashes >= MAX_CRASHES:
            live.log.append("error", dumps(_CRASHED.as_dict()))
            return RunResult(status="error", thread_status="error", failure=_CRASHED)
        self._steering.open(live.run_id)
        graphs = AsyncExitStack()
        prepare = partial(self._prepare, live, request, graphs)
        roll_back = partial(self._finalizer.roll_back, live)
        try:
            return await execute_run(live, prepare, roll_back, self._budget)
        finally:
            left = self._steering.close(live.run_id)
            live.unconsumed_ids = tuple(str(message.id) for message in left)
            await _close_graph(graphs, live)

    async def _prepare(
        self, live: LocalRun, request: GraphRunRequest, graphs: AsyncExitStack
    ) -> PreparedRun:
        options = request_options(request)
        config = runnable_config(
            request, options, run_id=live.run_id, thread_id=live.thread_id, graph_id=live.graph_id
        )
        config["callbacks"] = [self._pacer]
        config["configurable"][STEERING_SOURCE_KEY] = partial(self._steering.take, live.run_id)
        if live.temporary and request.durability is None:
            request = replace(request, durability="exit")
        opening = self._runs.open_graph(live.graph_id, config, "threads.create_run", options)
        graph = await graphs.enter_async_context(opening)
        prepared = PreparedRun(
            request=request,
            graph=graph,
            input=graph_input(request, has_messages=has_messages(graph)),
            config=config,
        )
        if live.attempt > 1:
            self._steering.restore(live.run_id, await untaken_messages(live, prepared))
            if continued := await continue_attempt(prepared):
                return continued
        await check_update(prepared)
        return await address_resume(prepared)


async def _close_graph(graphs: AsyncExitStack, live: LocalRun) -> None:
    """Let the factory of a run's graph clean up: the run has its result, whatever comes of it."""
    try:
        # Not a cancel scope of anyio: the factory may have some open, and they end in the order of their nesting.
        async with asyncio.timeout(CLOSE_S):
            await graphs.aclose()
    except Exception:
        log.exception("Run %s: the function that made its graph failed to clean up.", live.run_id)
