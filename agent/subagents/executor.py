"""SubagentExecutor: runs subagents with a deadline, cancels them with their parent, and waits until they end.

A subagent runs in its own task, in a context without the parent's run, so that none of its tokens, states or steps
appear in the parent's stream. Subagents report explicitly what the parent's stream should show.
"""

import asyncio
import contextvars
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass
from typing import Any

import anyio
from anyio.abc import TaskGroup
from langchain_core.runnables import RunnableConfig
from langgraph.graph.state import CompiledStateGraph

from agent.background import background_tasks
from agent.errors import AgentError
from agent.langgraph_internals import detached_context
from agent.streaming import stream_graph
from agent.subagents.progress import (
    CANCELLED_ERROR,
    SubagentMessage,
    SubagentProgress,
    SubagentResult,
)
from agent.usage.owner import CURRENT_OWNER, UsageOwner

log = logging.getLogger(__name__)

SubagentGraph = CompiledStateGraph[Any, Any, Any, Any]

MAX_RUNNING_SUBAGENTS = 64
"""Maximum number of concurrent subagents of all runs: 16 runs with four each."""

STOP_S = 5.0
"""How long a parent waits for a canceled subagent, seconds. After that, only the executor waits for it.

Closing a connection to a model or sandbox takes well under a second."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SubagentTask:
    """The input of a subagent.

    Attributes:
        build: Returns its graph.
        input: Its initial state.
        config: Its config. It shares the parent's thread and writes no checkpoints.
        context: The parent's run context.
        timeout_s: Its time limit, seconds.
        report: Called with each answer of its model, in the parent's context.
    """

    build: Callable[[], Awaitable[SubagentGraph]]
    input: Mapping[str, Any]
    config: RunnableConfig
    context: Any
    timeout_s: float
    report: Callable[[SubagentMessage], None]


class SubagentRun:
    """One running subagent. Only the first result counts."""

    def __init__(self, job: SubagentTask) -> None:
        self.task_spec = job
        self.result: SubagentResult | None = None
        self.has_result = anyio.Event()
        self.ended = anyio.Event()
        self.task: asyncio.Task[Any] | None = None
        self.is_cancelling = False
        self.progress = SubagentProgress(self._report)
        self._parent = contextvars.copy_context()

    def set_result(self, outcome: SubagentResult) -> SubagentResult:
        """Set the result unless it is already set. Return the result."""
        if self.result is None:
            self.result = outcome
            self.has_result.set()
        return self.result

    def cancel(self) -> None:
        """Cancel it once, so that no second cancellation disturbs its cleanup."""
        self.is_cancelling = True
        if self.task is not None:
            self.task.cancel()

    def _report(self, answer: SubagentMessage) -> None:
        if self.result is None:
            self._parent.run(self.task_spec.report, answer)


class SubagentExecutor:
    """Runs subagents, and waits for each until it has ended.

    Args:
        group: The task group for their tasks.
        at_once: Maximum number of concurrent subagents. Others wait, within their time limit.
        stop_s: How long a parent waits for a canceled subagent, seconds.
    """

    def __init__(
        self, group: TaskGroup, *, at_once: int = MAX_RUNNING_SUBAGENTS, stop_s: float = STOP_S
    ) -> None:
        self._group = group
        self._slots = anyio.Semaphore(at_once)
        self._stop_s = stop_s
        self._running: set[SubagentRun] = set()

    @property
    def running(self) -> int:
        """The number of subagents that have not ended."""
        return len(self._running)

    async def run(self, job: SubagentTask) -> SubagentResult:
        """Run a subagent, within its time limit.

        If the caller is canceled, the subagent is canceled and awaited for up to `stop_s`.
        """
        execution = SubagentRun(job)
        detached_context().run(self._group.start_soon, self._run_in_task, execution)
        self._running.add(execution)
        try:
            with anyio.move_on_after(job.timeout_s + self._stop_s):
                await execution.has_result.wait()
        finally:
            if execution.result is None:
                await _cancel_and_wait(execution, self._stop_s)
        usage = execution.progress.usage
        return execution.set_result(SubagentResult(status="polling_timed_out", usage=usage))

    async def _run_in_task(self, execution: SubagentRun) -> None:
        """Run one subagent in its task. Errors and cancellation become its result."""
        execution.task = asyncio.current_task()
        try:
            if not execution.is_cancelling:
                execution.set_result(await self._run_with_deadline(execution))
        except asyncio.CancelledError:
            if not execution.is_cancelling or execution.task is None:
                raise
            execution.task.uncancel()
        except Exception as error:  # noqa: BLE001 - the lead agent gets its error
            execution.set_result(_failure_result(execution, error))
        finally:
            cancelled = SubagentResult(
                status="cancelled", error=CANCELLED_ERROR, usage=execution.progress.usage
            )
            execution.set_result(cancelled)
            execution.task = None
            self._running.discard(execution)
            execution.ended.set()

    async def _run_with_deadline(self, execution: SubagentRun) -> SubagentResult:
        timeout_s = execution.task_spec.timeout_s
        deadline = asyncio.timeout(timeout_s)
        try:
            async with deadline, self._slots:
                await _run_graph(execution)
        except TimeoutError:
            if not deadline.expired():
                raise
            text = f"Execution timed out after {timeout_s:g} seconds"
            return SubagentResult(status="timed_out", error=text, usage=execution.progress.usage)
        return execution.progress.result()


@asynccontextmanager
async def open_subagent_executor(
    *, at_once: int = MAX_RUNNING_SUBAGENTS, stop_s: float = STOP_S
) -> AsyncIterator[SubagentExecutor]:
    """Open an executor. Leaving the block cancels subagents that are still running."""
    async with background_tasks() as tasks:
        yield SubagentExecutor(tasks, at_once=at_once, stop_s=stop_s)


async def _run_graph(execution: SubagentRun) -> None:
    job = execution.task_spec
    CURRENT_OWNER.set(UsageOwner.from_config(job.context, job.config, kind="subagent"))
    graph = await job.build()
    parts = stream_graph(graph, job.input, job.config, context=job.context, modes=["values"])
    async with aclosing(parts) as stream:
        async for _namespace, _mode, values in stream:
            execution.progress.add_state(values)


async def _cancel_and_wait(execution: SubagentRun, bound_s: float) -> None:
    """Cancel a subagent whose parent no longer waits for its result."""
    execution.cancel()
    with anyio.move_on_after(bound_s, shield=True):
        await execution.ended.wait()
    if not execution.ended.is_set():
        log.warning("A subagent ignores its cancellation; its executor keeps waiting for it")


def _failure_result(execution: SubagentRun, error: Exception) -> SubagentResult:
    log.warning("Subagent failed with %s", type(error).__name__, exc_info=error)
    # Other errors may quote a request, a path or a key: report only their type.
    text = error.user_message if isinstance(error, AgentError) else type(error).__name__
    return SubagentResult(status="failed", error=text, usage=execution.progress.usage)
