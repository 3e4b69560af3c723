"""RunExecutor: executes runs, each from its place in the queue to its recorded end."""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, aclosing, suppress
from dataclasses import dataclass, fields, is_dataclass, replace
from functools import partial
from typing import Any, Protocol

import anyio
from anyio.lowlevel import checkpoint
from langchain_core.callbacks import AsyncCallbackHandler
from langchain_core.messages import AnyMessage, BaseMessage
from langchain_core.runnables import RunnableConfig
from langgraph.channels.base import BaseChannel
from langgraph.constants import START
from langgraph.errors import GraphDrained
from langgraph.pregel import Pregel
from langgraph.types import Command, StateSnapshot
from langgraph_sdk.runtime import AccessContext
from pydantic import BaseModel
from typing_extensions import override

from agent.options import STEERING_SOURCE_KEY
from agent.streaming import stream_graph
from agent.thread_queue import ThreadQueue
from agent.usage.owner import CURRENT_OWNER, UsageOwner
from gateway.runtime.finalizer import RunFinalizer
from gateway.runtime.lifecycle import (
    RunFailure,
    RunResult,
    describe_failure,
    ends_with_model_failure,
    state_fields,
)
from gateway.runtime.local_run import LocalRun
from gateway.runtime.log_context import CURRENT_RUN, RunLogContext
from gateway.runtime.message_state import has_messages
from gateway.runtime.request import (
    CHECKPOINT_KEYS,
    GraphRunRequest,
    graph_input,
    request_options,
    runnable_config,
)
from gateway.runtime.serialization import dumps
from gateway.runtime.steering import SteeringQueue
from gateway.runtime.stream_modes import StreamEncoder
from gateway.runtime.thread_watchers import ThreadWatchers
from store.checkpoints import WRITE_RETRY
from store.errors import StoreError, StoreUnavailable
from store.runs import RunStore
from store.work_group import WORK_GROUP, group_of_runs

Graph = Pregel[Any, Any, Any, Any]
"""A compiled graph, or a function of LangGraph's functional API (`@entrypoint`)."""

MAX_RUN_S = 86_400.0
"""Time limit of one run, seconds: one day, as on LangGraph's server."""

STATE_S = 10.0
"""Time limit for reading the state of a canceled run, seconds."""

SLICE_S = 0.001
"""How long all runs together may encode events in one iteration of the event loop, seconds."""

MAX_CRASHES = 3
"""Maximum number of attempts of a run that ended because their process did. Then the run is given up, because it may be
the cause.
"""

CLOSE_S = 10.0
"""Time limit of the cleanup of a function that made a graph, seconds."""

_CRASHED = RunFailure(
    error="TooManyAttempts",
    message=f"The server ended unexpectedly during {MAX_CRASHES} attempts of this run.",
)

log = logging.getLogger(__name__)


class LoopBudget:
    """The time that runs share in each iteration of the event loop.

    An asynchronous loop over available events never suspends. Without this budget, a run with 10,000 tokens at once
    would block commands and all other chats until its last token.

    Call `is_spent` after each event. When the time is used up, await `next_turn`: one run gets a turn per iteration,
    in order of arrival.

    Args:
        clock: Returns monotonic seconds.
    """

    def __init__(self, clock: Callable[[], float] = time.perf_counter) -> None:
        self._clock = clock
        self._started_at: float | None = None
        self._turns = anyio.Lock()

    def is_spent(self) -> bool:
        """Return whether the time of this iteration is used up. The first call in an iteration starts the time."""
        now = self._clock()
        if self._started_at is None:
            self._started_at = now
            asyncio.get_running_loop().call_soon(self._start_iteration)
            return False
        return now - self._started_at > SLICE_S

    async def next_turn(self) -> None:
        """Wait for a turn in a later iteration."""
        async with self._turns:
            await checkpoint()

    def _start_iteration(self) -> None:
        self._started_at = None


class ModelPacer(AsyncCallbackHandler):
    """Callback of a run's models: lets others work between the tokens of an answer that arrives at once.

    LangChain never suspends while more of an answer is available: 20,000 tokens took two seconds.

    Args:
        budget: Shared by all runs.
    """

    run_inline = True  # Otherwise each token would pass through a task of its own.
    ignore_agent = ignore_chain = ignore_custom_event = ignore_retriever = ignore_retry = True

    def __init__(self, budget: LoopBudget) -> None:
        self._budget = budget

    @override
    async def on_chat_model_start(
        self, serialized: dict[str, Any], messages: list[list[BaseMessage]], **kwargs: Any
    ) -> None:
        """Do nothing. Without this method, LangChain formats the whole prompt as text for the callback."""

    @override
    async def on_llm_new_token(
        self, token: str | list[str | dict[str, Any]], **kwargs: Any
    ) -> None:
        if self._budget.is_spent():
            await self._budget.next_turn()


@dataclass(frozen=True, slots=True, kw_only=True)
class PreparedRun:
    """A graph with its input and config.

    Attributes:
        values: The thread's values, if nothing is left to execute.
    """

    request: GraphRunRequest
    graph: Graph
    input: object
    config: RunnableConfig
    values: Any = None

    @property
    def thread_config(self) -> RunnableConfig:
        """The config that names the thread and its newest checkpoint."""
        return {"configurable": {"thread_id": self.config["configurable"]["thread_id"]}}


async def execute_run(
    live: LocalRun,
    prepare: Callable[[], Awaitable[PreparedRun]],
    roll_back: Callable[[], Awaitable[None]],
    budget: LoopBudget,
) -> RunResult:
    """Run a graph until it ends, is canceled, or must end before its next step. Its events go to the run's log.

    Args:
        live: The run.
        prepare: Builds the graph and its input.
        roll_back: Restores the thread's state from before the run.
        budget: Shared by all runs.
    """
    prepared: PreparedRun | None = None
    live.task = asyncio.current_task()
    try:
        prepared = await prepare()
        return await _run_with_timeout(live, prepared, budget)
    except GraphDrained:
        log.info("Run %s ends before its next step: this process stops.", live.run_id)
        live.is_handed_over = live.restartable and live.cancel_action in {None, "hand_over"}
    except asyncio.CancelledError:
        task = asyncio.current_task()
        if live.cancel_action is None or task is None:
            raise
        task.uncancel()
        live.is_handed_over = live.cancel_action == "hand_over"
    except Exception as error:  # noqa: BLE001 - a run's worker: whatever a graph raises ends the run, not Parley
        return _failure_result(live, error)
    finally:
        live.task = None
    if live.is_handed_over:
        return RunResult(status="interrupted", thread_unchanged=True)
    return await _canceled_result(live, prepared, roll_back)


async def continue_attempt(prepared: PreparedRun) -> PreparedRun | None:
    """Continue a run of another process at its newest checkpoint.

    None = it has no checkpoint, and starts with its input.
    """
    state = await prepared.graph.aget_state(prepared.thread_config)
    run_id = prepared.config["configurable"]["run_id"]
    if (state.metadata or {}).get("run_id") != run_id:
        return None
    options = prepared.config["configurable"]
    config: RunnableConfig = {
        **prepared.config,
        "configurable": {key: options[key] for key in options if key not in CHECKPOINT_KEYS},
    }
    # A continued graph does not stop again where it stopped.
    has_stopped = _is_among(prepared.request.interrupt_before, state.next) or _is_among(
        prepared.request.interrupt_after, await _last_nodes(prepared.graph, state)
    )
    return replace(
        prepared, input=None, config=config, values=state.values if has_stopped else None
    )


def _is_among(stops: Sequence[str] | str | None, nodes: Iterable[str]) -> bool:
    return any(stops == "*" or node in (stops or ()) for node in nodes if node != START)


async def _last_nodes(graph: Graph, state: StateSnapshot) -> list[str]:
    """Return the nodes that ran last: those whose `versions_seen` differ from the previous checkpoint's."""
    seen: list[Mapping[str, Any]] = []
    for config in (state.config, state.parent_config):
        saved = await graph.checkpointer.aget_tuple(config) if config else None  # type: ignore[union-attr]  # a saver
        seen.append(saved.checkpoint["versions_seen"] if saved else {})
    newest, before = seen
    return [node for node in graph.nodes if newest.get(node) != before.get(node)]


async def untaken_messages(live: LocalRun, prepared: PreparedRun) -> Sequence[AnyMessage]:
    """Return the messages that were injected into earlier attempts of a run but are not in its thread."""
    if not live.messages:
        return ()
    state = await prepared.graph.aget_state(prepared.thread_config)
    taken = {
        getattr(message, "id", None) for message in state_fields(state.values).get("messages") or ()
    }
    return [message for message in live.messages if message.id not in taken]


async def check_update(prepared: PreparedRun) -> None:
    """Raise the error that the graph's channels raise for a command's update.

    LangGraph saves an update before it applies it. If the channels reject a saved update, the thread can never be read
    again.
    """
    update = prepared.input.update if isinstance(prepared.input, Command) else None
    if not update:
        return
    state = await prepared.graph.aget_state(prepared.config)
    values = state_fields(state.values)
    for key, value in update.items() if isinstance(update, Mapping) else update:
        channel = prepared.graph.channels.get(key)
        if isinstance(channel, BaseChannel):
            tried = channel.copy()
            if key in values:
                tried.update([values[key]])
            tried.update([value])


async def address_resume(prepared: PreparedRun) -> PreparedRun:
    """Address a resume value without an interrupt ID to the latest interrupt.

    LangGraph fails if several are pending. Clients that show one at a time send such values.

    Raises:
        ValueError: No interrupt is pending. The graph would start over without an input.
    """
    command = prepared.request.command or {}
    answer = command.get("resume")
    if answer is None or command.get("update") or command.get("goto"):
        return prepared
    state = await prepared.graph.aget_state(prepared.config)
    if not state.next:
        raise ValueError("Nothing on this thread waits for an answer.")
    ids = [one.id for task in state.tasks for one in task.interrupts]
    is_named = isinstance(answer, Mapping) and any(key in ids for key in answer)
    if is_named or len(set(ids)) <= 1:
        return prepared
    return replace(prepared, input=Command(resume={ids[-1]: answer}))


async def _run_with_timeout(live: LocalRun, prepared: PreparedRun, budget: LoopBudget) -> RunResult:
    with anyio.move_on_after(MAX_RUN_S) as limit:
        await _stream(live, prepared, budget)
    if limit.cancelled_caught:
        failure = RunFailure(error="TimeoutError", message="The run took longer than a day.")
        live.log.append("error", dumps(failure.as_dict()))
        return RunResult(status="timeout", thread_status="error", failure=failure)
    return await _success_result(live, prepared)


def _context_for(graph: Graph, options: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options that a graph takes as its context: all, unless its schema is a class with fields."""
    # A graph may copy its context into the state, so values that cannot be saved are left out.
    context = {k: v for k, v in options.items() if k != STEERING_SOURCE_KEY}
    schema = graph.context_schema
    if isinstance(schema, type) and is_dataclass(schema):
        known: Collection[str] = {field.name for field in fields(schema)}
    elif isinstance(schema, type) and issubclass(schema, BaseModel):
        known = schema.model_fields
    else:
        return context
    return {key: value for key, value in context.items() if key in known}


async def _stream(live: LocalRun, prepared: PreparedRun, budget: LoopBudget) -> None:
    if prepared.values is not None:
        live.values = prepared.values
        live.is_interrupted = "__interrupt__" in state_fields(live.values)
        return
    live.in_graph = True
    request, options = prepared.request, prepared.config["configurable"]
    CURRENT_OWNER.set(UsageOwner.from_config(options, None))
    encoder = StreamEncoder(request.modes, live.log.append)
    parts = stream_graph(
        prepared.graph,
        prepared.input,
        prepared.config,
        context=_context_for(prepared.graph, options),
        modes=request.modes.graph_modes(),
        subgraphs=request.modes.subgraphs,
        durability=request.durability,
        control=live.control,
        with_events="events" in request.modes.requested,
        interrupt_before=request.interrupt_before,
        interrupt_after=request.interrupt_after,
    )
    async with aclosing(parts) as stream:
        async for namespace, mode, data in stream:
            encoder.encode(namespace, mode, data)
            live.values, live.encoded_values = encoder.values, encoder.encoded_values
            live.is_interrupted = encoder.is_interrupted
            if budget.is_spent():
                await budget.next_turn()


async def _success_result(live: LocalRun, prepared: PreparedRun) -> RunResult:
    if ends_with_model_failure(live.values):
        return RunResult(status="error", thread_status="error", values=live.values)
    request = prepared.request
    may_wait = request.interrupt_before or request.interrupt_after
    if not (may_wait or live.is_interrupted):
        return RunResult(status="success", thread_status="idle", values=live.values)
    state = await prepared.graph.aget_state(prepared.thread_config)
    return RunResult(
        status="success",
        thread_status="interrupted" if state.next else "idle",
        values=_with_all_interrupts(live.values, state),
        interrupts=interrupts_by_task(state),
    )


def _with_all_interrupts(values: object, state: StateSnapshot) -> object:
    """Return the values with all pending interrupts.

    Tasks that stop at the same time stream their interrupts one after another. If other tasks end in the same step, the
    last values contain no interrupts.
    """
    pending = [one for task in state.tasks for one in task.interrupts]
    streamed = state_fields(values).get("__interrupt__", ())
    return (
        {**state_fields(values), "__interrupt__": pending}
        if len(pending) > len(streamed)
        else values
    )


async def _canceled_result(
    live: LocalRun, prepared: PreparedRun | None, roll_back: Callable[[], Awaitable[None]]
) -> RunResult:
    """Return the result of a run that was canceled or ended early. The thread is `interrupted` if steps remain."""
    if prepared is None:
        return RunResult(status="interrupted", thread_unchanged=True)
    back = live.cancel_action == "rollback"
    with anyio.move_on_after(STATE_S, shield=True):
        if back:
            await roll_back()
        try:
            state = await prepared.graph.aget_state(prepared.thread_config)
        except StoreError as error:
            log.warning("Run %s: its thread's state cannot be read: %s", live.run_id, error)
            return RunResult(status="interrupted", thread_unchanged=back)
        return RunResult(
            status="interrupted",
            thread_status="interrupted" if state.next else "idle",
            values=None if back else state.values,
            interrupts=interrupts_by_task(state),
            thread_unchanged=back,
        )
    return RunResult(status="interrupted")


def _failure_result(live: LocalRun, error: Exception) -> RunResult:
    failure = describe_failure(error)
    # An error with a user_message needs no traceback.
    stack = None if hasattr(error, "user_message") else error
    log.warning("Run %s failed with %s.", live.run_id, failure.error, exc_info=stack)
    if stack is None:
        log.warning("Run %s: %s", live.run_id, failure.message)
    live.log.append("error", dumps(failure.as_dict()))
    return RunResult(status="error", thread_status="error", values=live.values, failure=failure)


def interrupts_by_task(state: StateSnapshot) -> Mapping[str, Any]:
    """Return a state's interrupts, by task ID."""
    return {
        task.id: [{"id": one.id, "value": one.value} for one in task.interrupts]
        for task in state.tasks
        if task.interrupts
    }


class RunOwner(Protocol):
    """The parts of the run manager that the executor uses.

    Attributes:
        now: Returns the time, Unix seconds.
        rows: The runs' rows.
        watchers: The watchers of each thread, who are notified of its runs.
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
        """Notify all waiters that a run has ended."""
        ...


class RunExecutor:
    """Executes runs.

    Args:
        runs: Their manager.
        queue: Runs on one thread, one after another.
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
            if live.is_handed_over:
                return
            webhook = await self._finalizer.finish(live, outcome)
        except Exception:
            log.exception("Could not finish run %s.", live.run_id)
            live.row = replace(live.row, status="error", updated_at=self._runs.now())
        finally:
            if not live.is_handed_over:
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
        may_start = live.cancel_action is None and not live.is_handed_over
        if waited and may_start and not live.temporary:
            with suppress(StoreUnavailable):  # The run was canceled meanwhile.
                await live.write_retry(
                    partial(self._runs.rows.mark_running, live.run_id, now=now())
                )
        if live.is_handed_over:
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
    """Let the factory of a run's graph clean up. The run keeps its result even if that fails."""
    try:
        # Not a cancel scope of anyio: the factory may have some open, and they end in the order of their nesting.
        async with asyncio.timeout(CLOSE_S):
            await graphs.aclose()
    except Exception:
        log.exception("Run %s: the function that made its graph failed to clean up.", live.run_id)
