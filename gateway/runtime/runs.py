"""RunManager: starts, streams, joins and cancels runs, one at a time per thread."""

import logging
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Container, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Self
from uuid import uuid4

import anyio
from anyio.abc import TaskGroup
from langchain_core.runnables import RunnableConfig
from langgraph_sdk.runtime import AccessContext

from agent.thread_queue import ThreadQueue
from gateway.runtime.abandoned_runs import AbandonedRuns
from gateway.runtime.assistants import GraphSource, resolve_graph_id
from gateway.runtime.counters import RunCounters
from gateway.runtime.creation import (
    RunCreation,
    decode_abandoned_run,
    new_local_run,
    require_checkpoint,
)
from gateway.runtime.errors import InvalidRequest, RuntimeClosing, ThreadBusyError
from gateway.runtime.event_log import MAX_BYTES
from gateway.runtime.execution import Graph, RunExecutor
from gateway.runtime.finalizer import RunFinalizer
from gateway.runtime.finished_runs import FinishedRuns
from gateway.runtime.graph_sources import FixedGraph, GraphFactory, server_runtime
from gateway.runtime.lifecycle import CancelAction
from gateway.runtime.local_run import LocalRun
from gateway.runtime.request import (
    GraphRunRequest,
    graph_input,
    parse_messages,
    request_options,
    requested_checkpoint,
)
from gateway.runtime.steering import SteeringQueue
from gateway.runtime.stopping import stop_runs
from gateway.runtime.thread_watchers import ThreadWatchers
from gateway.runtime.webhook_delivery import WebhookDelivery
from gateway.runtime.webhooks import RunWebhooks
from store.assistants import AssistantStore
from store.checkpoints import CheckpointSaver
from store.database import Database
from store.errors import RowNotFound, StoreUnavailable
from store.key_value_store import ItemStore
from store.run_requests import AbandonedRun
from store.runs import Run, RunStatus, RunStore, ThreadAtOtherNode
from store.threads import ThreadStore

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class RuntimeSettings:
    """Limits of the runtime.

    Attributes:
        keep_s: How long a finished run can be replayed, seconds. The contract requires at least 60.
        keep_bytes: Size limit of all finished runs' events. Beyond it, the oldest are dropped.
        active_bytes: Size limit of all active runs' events. Each run has an equal share.
        drain_s: Time limit for shutdown, seconds.
        write_s: Time limit for a write to disk, seconds.
        sweep_s: Interval at which finished runs are evicted, seconds.
    """

    keep_s: float = 60.0
    keep_bytes: int = 128 * 1024 * 1024
    active_bytes: int = 128 * 1024 * 1024
    drain_s: float = 5.0
    write_s: float = 30.0
    sweep_s: float = 30.0


class RunManager:
    """Manages all runs of this process. It is an async context manager, and owns the runs' tasks.

    On entry it continues the runs of dead processes (`AbandonedRuns`). On exit it starts no more runs, and ends active
    runs within `drain_s`. Other nodes continue these runs after the current step. Without other nodes, the runs are
    `interrupted` at once and keep their last checkpoint.

    Args:
        database: Stores threads, runs and items.
        graphs: Maps graph names to sources. Read at each start of a run, so it may change.
        checkpointer: The checkpointer for graphs without their own.
        now: Returns the time, Unix seconds.
        settings: Limits.
        webhooks: Posts the results of runs. None = runs with a webhook are rejected.

    Attributes:
        assistants: Assistants created over the API.
        items: The key-value store, for graphs without their own.
        watchers: The watchers of each thread, who are notified of its runs.
    """

    def __init__(
        self,
        database: Database,
        graphs: Mapping[str, GraphSource],
        checkpointer: CheckpointSaver,
        *,
        now: Callable[[], float] = time.time,
        settings: RuntimeSettings | None = None,
        webhooks: RunWebhooks | None = None,
    ) -> None:
        self.threads = ThreadStore(database)
        self.rows = RunStore(database)
        self._nodes = database.nodes
        self.items = ItemStore(database, now=now)
        self.assistants = AssistantStore(database)
        self.watchers = ThreadWatchers(self._started_runs)
        self.graphs = graphs
        self.checkpointer = checkpointer
        self.now = now
        self.counters = RunCounters()
        self._steering = SteeringQueue()
        self._settings = settings = settings or RuntimeSettings()
        self.abandoned_runs = AbandonedRuns(
            self.rows, self._nodes, now, self._start_again, write_s=settings.write_s
        )
        self._webhooks = webhooks
        self._queue = ThreadQueue()
        self._active: dict[str, LocalRun] = {}
        self._finished_runs = FinishedRuns(keep_s=settings.keep_s, keep_bytes=settings.keep_bytes)
        self._delivery = (
            None if webhooks is None else WebhookDelivery(self.rows.webhooks, webhooks, self._nodes)
        )
        self._finalizer = RunFinalizer(
            self.rows, checkpointer, now, self._delivery, write_s=settings.write_s
        )
        self._creation = RunCreation(self.rows, self._finalizer, write_s=settings.write_s)
        self._executor = RunExecutor(self, self._queue, self._steering, self._finalizer)
        self._tasks: TaskGroup | None = None

    async def __aenter__(self) -> Self:
        abandoned = await self._delivery.take_abandoned() if self._delivery else ()
        self._tasks = tasks = anyio.create_task_group()
        await tasks.__aenter__()
        try:
            await self.abandoned_runs.take()
        except BaseException:
            await self.__aexit__(None, None, None)
            raise
        tasks.start_soon(self._sweep)
        tasks.start_soon(self.abandoned_runs.watch)
        if self._delivery:
            tasks.start_soon(self._delivery.watch, abandoned)
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> bool | None:
        tasks, self._tasks = self._tasks, None
        if tasks is None:
            return None
        may_go_on = self._nodes.can_hand_over
        await stop_runs(self.active, self._settings.drain_s, may_go_on=may_go_on)
        with anyio.move_on_after(self._settings.write_s, shield=True):
            await self.abandoned_runs.hand_over(self.active)
        self.watchers.close()
        tasks.cancel_scope.cancel()
        result = await tasks.__aexit__(kind, error, trace)
        if self._webhooks is not None:
            await self._webhooks.close()
        return result

    async def start(self, request: GraphRunRequest) -> LocalRun:
        """Start a run or queue it behind others of its thread. Its row is on disk when this returns.

        Raises:
            RuntimeClosing, ThreadBusyError, ThreadAtOtherNode, UnknownAssistant, InvalidRequest: Nothing was started.
            RowNotFound: The thread, or the checkpoint to continue from, does not exist.
            RunExists: A run of the thread with the request's `start_key` is pending, is running or has succeeded. This
                is checked before the request's multitask strategy changes other runs.
            StoreError: The row could not be written, at least not in time.
        """
        tasks = self._tasks
        if tasks is None:
            raise RuntimeClosing
        graph_id = await self.validate(request)
        live = self._register(request, graph_id)
        try:
            # Shielded, because a row whose run has no task would look active forever.
            with anyio.CancelScope(shield=True):
                await self._creation.save(tasks, live, request)
        except BaseException:
            self._queue.leave(live.ticket)
            del self._active[live.run_id]
            live.close_log()
            raise
        self._begin(tasks, live, request)
        return live

    def _start_again(self, abandoned: AbandonedRun) -> None:
        """Start an abandoned run of another process. Its row belongs to this node."""
        if self._tasks is None:
            return  # This process is stopping. Another one takes the run when it has ended.
        request, live = decode_abandoned_run(abandoned, now=self.now())
        self._begin(self._tasks, self._enter(live, request), request)
        if abandoned.cancel_action is not None:
            live.request_cancel(
                "rollback" if abandoned.cancel_action == "rollback" else "interrupt"
            )

    def _begin(self, tasks: TaskGroup, live: LocalRun, request: GraphRunRequest) -> None:
        if request.multitask in ("interrupt", "rollback"):
            for other in self.active_on_thread(live.thread_id):
                if other is not live:
                    other.request_cancel(request.multitask)
        tasks.start_soon(self._executor.run, live, request)

    async def validate(self, request: GraphRunRequest) -> str:
        """Check a request, as far as possible without starting it, and return its graph's name.

        Raises:
            UnknownAssistant, InvalidRequest: The request cannot be carried out.
            RowNotFound: The checkpoint to continue from does not exist.
        """
        graph_id = resolve_graph_id(request.assistant_id, self.graphs)
        request_options(request)
        graph_input(request, has_messages=_may_check_messages(self.graphs[graph_id]))
        if request.thread_id is not None:
            await require_checkpoint(
                self.checkpointer, request.thread_id, requested_checkpoint(request)
            )
        elif request.command is not None:
            raise InvalidRequest("You must provide a thread_id when resuming.")
        if request.webhook is not None:
            if self._webhooks is None:
                raise InvalidRequest("webhook: this server sends none.", malformed=True)
            await self._webhooks.validate_url(request.webhook)
        return graph_id

    def find(self, thread_id: str | None, run_id: str) -> LocalRun | None:
        """Return an active or recently finished run. `thread_id` None = of any thread."""
        live = self._active.get(run_id) or self._finished_runs.find(run_id)
        return live if live and thread_id in {None, live.thread_id} else None

    @property
    def active(self) -> list[LocalRun]:
        """The pending and running runs, oldest first."""
        return list(self._active.values())

    @property
    def outage(self) -> str:
        """Why runs wait for the database. "" if no run waits."""
        return next(filter(None, (live.write_retry.outage for live in self.active)), "")

    def count_by_status(self) -> Counter[RunStatus]:
        """Return the number of pending and running runs, by status."""
        return Counter(live.row.status for live in self._active.values())

    def active_on_thread(self, thread_id: str) -> list[LocalRun]:
        """Return a thread's pending and running runs, oldest first."""
        return [live for live in self._active.values() if live.thread_id == thread_id]

    def _started_runs(self, thread_id: str) -> list[LocalRun]:
        on_thread = self.active_on_thread(thread_id)
        running = [live for live in on_thread if live.row.status != "pending"]
        return self._finished_runs.for_thread(thread_id) + running

    async def get(self, thread_id: str, run_id: str) -> Run:
        """Return a run. Raises RowNotFound."""
        live = self._active.get(run_id)
        if live and live.thread_id == thread_id:
            return live.row
        try:
            return await self.rows.get(thread_id, run_id)
        except RowNotFound:
            ended = self.find(thread_id, run_id)
            if ended is None or not ended.temporary:
                raise
            return ended.row

    async def cancel(
        self, thread_id: str, run_id: str, action: CancelAction = "interrupt"
    ) -> LocalRun:
        """Cancel an active run.

        Raises:
            RowNotFound: It is unknown or has ended.
            StoreUnavailable: It is moving to another node.
        """
        live = self._active.get(run_id)
        if live is None or live.thread_id != thread_id or live.is_finished:
            raise RowNotFound("No runs found to cancel.")
        if live.is_handed_over:
            raise StoreUnavailable("The run is moving to another node. Try again.")
        await self.cancel_all([live], action)
        return live

    async def cancel_all(self, runs: Sequence[LocalRun], action: CancelAction) -> None:
        """Cancel active runs. If one has not ended when this process ends, the next process cancels it."""
        for live in runs:
            live.request_cancel(action)
        await self.abandoned_runs.store_cancel(runs, action)

    def select(
        self, *, status: str | None, thread_id: str, run_ids: Container[str]
    ) -> list[LocalRun]:
        """Return the active runs with a status (`all` = any), or else a thread's active runs with these IDs."""
        if status is not None:
            return [live for live in self.active if status in {"all", live.row.status}]
        on_thread = self.active_on_thread(thread_id)
        return [live for live in on_thread if live.run_id in run_ids and not live.is_finished]

    async def inject(self, thread_id: str, run_id: str | None, messages: object) -> str | None:
        """Pass messages to an active run. Its agent takes them before its next model call.

        If the run continues at another node, or after a restart, it gets them there, unless they are in its thread.

        Args:
            thread_id: The thread.
            run_id: The run. None = the thread's running one.
            messages: The messages, in any form that a run's input accepts.

        Returns:
            The run's ID. None = the run does not exist, or accepts no messages.

        Raises:
            InvalidRequest: The messages are malformed.
            StoreUnavailable: They cannot be stored. The agent may have taken them.
        """
        said = parse_messages(messages)
        for live in self.active_on_thread(thread_id):
            if run_id in {None, live.run_id} and self._steering.offer(live.run_id, said):
                try:
                    await self.abandoned_runs.store_messages(live, said)
                except BaseException:
                    self._steering.retract(live.run_id, said)
                    raise
                return live.run_id
        return None

    async def delete_thread(self, thread_id: str) -> bool:
        """Cancel a thread's runs, then delete it with its runs and checkpoints. Returns False if it does not exist."""
        running = self.active_on_thread(thread_id)
        for live in running:
            live.request_cancel("interrupt")
        with anyio.move_on_after(self._settings.drain_s):
            for live in running:
                await live.finished.wait()
        known = await self.threads.delete(thread_id)
        await self.checkpointer.adelete_thread(thread_id)
        self._finished_runs.remove_thread(thread_id)
        return known or bool(running)

    async def check_thread(self, thread_id: str) -> None:
        """Raise ThreadAtOtherNode if another node executes runs on a thread. Runs of an ended node fail over."""
        try:
            await self.rows.check_thread(thread_id)
        except ThreadAtOtherNode as error:
            if error.node in {node.number for node in self._nodes.living}:
                raise
            await self.abandoned_runs.take_of(thread_id, "")
            await self.rows.check_thread(thread_id)

    @asynccontextmanager
    async def lock_thread(self, thread_id: str) -> AsyncIterator[None]:
        """Block runs on a thread while its state is changed. Raises ThreadBusyError."""
        if self._queue.length(thread_id):
            raise ThreadBusyError
        ticket = self._queue.join(thread_id)
        try:
            yield
        finally:
            self._queue.leave(ticket)

    @asynccontextmanager
    async def open_graph(
        self,
        graph_id: str,
        config: RunnableConfig,
        access: AccessContext,
        context: Mapping[str, Any] | None = None,
    ) -> AsyncIterator[Graph]:
        """Yield a graph with a checkpointer and a key-value store.

        Args:
            graph_id: The graph's name.
            config: The config of the run, as far as it is known.
            access: The purpose of the graph.
            context: The context of the run.
        """
        source = self.graphs[graph_id]
        if isinstance(source, GraphFactory):
            runtime = server_runtime(access, self.items, context or {})
            async with source.open(config, runtime) as graph:
                yield self._with_stores(graph)
        else:
            yield self._with_stores(await source(config))

    def _with_stores(self, graph: Graph) -> Graph:
        if graph.checkpointer is None:
            graph.checkpointer = self.checkpointer
        if graph.store is None:
            graph.store = self.items
        return graph

    def _register(self, request: GraphRunRequest, graph_id: str) -> LocalRun:
        """Create the run and queue it. Does not await, so no other request can come in between."""
        thread_id = request.thread_id or str(uuid4())
        if request.multitask == "reject" and self._queue.length(thread_id):
            raise ThreadBusyError
        live = new_local_run(
            request,
            run_id=str(uuid4()),
            thread_id=thread_id,
            graph_id=graph_id,
            created_at=self.now(),
            temporary=request.thread_id is None and not request.keep_thread,
        )
        return self._enter(live, request)

    def _enter(self, live: LocalRun, request: GraphRunRequest) -> LocalRun:
        live.open_log(self._max_log_bytes)
        # A delayed run is not queued until its time has come.
        if not request.after_seconds:
            self._queue.enter(live.ticket)
        self._active[live.run_id] = live
        return live

    def _max_log_bytes(self) -> int:
        """Return the size limit of an active run's events. All active runs share one budget."""
        return min(MAX_BYTES, self._settings.active_bytes // max(1, len(self._active)))

    def close(self, live: LocalRun) -> None:
        """Notify all waiters that a run has ended."""
        live.close_log()
        self.counters.record_finished(live.row.status, live.row.updated_at - live.row.created_at)
        del self._active[live.run_id]
        self._finished_runs.add(live, now=anyio.current_time())
        self._queue.leave(live.ticket)
        live.finished.set()

    async def _sweep(self) -> None:
        while True:
            await anyio.sleep(self._settings.sweep_s)
            self._finished_runs.evict(now=anyio.current_time())
            await self._finalizer.save_unsaved()


def _may_check_messages(source: GraphSource) -> bool:
    """Return whether a request's messages can be checked before the run.

    Only the run knows whether a graph that a function makes has LangChain's messages.
    """
    if isinstance(source, FixedGraph):
        return source.has_messages
    return not isinstance(source, GraphFactory)
