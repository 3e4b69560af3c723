"""The `task` tool: runs a subagent, reports its progress to the run's stream, and returns its result."""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

from langchain.tools import ToolRuntime
from langchain_core.messages import HumanMessage, SystemMessage, ToolMessage
from langchain_core.runnables import RunnableConfig
from langchain_core.tools import BaseTool, StructuredTool
from pydantic import BaseModel, Field

from agent.langgraph_internals import without_stream_handlers
from agent.memory.prompt_block import date_block
from agent.streaming import SUBAGENT_USAGE_KEY
from agent.subagents.executor import SubagentExecutor, SubagentGraph, SubagentTask
from agent.subagents.progress import CANCELLED_ERROR, TURN_CAPPED, SubagentMessage, SubagentResult
from agent.subagents.status import STOP_REASON_KEY, TASK, parse_error, status_kwargs
from agent.subagents.subagent_types import SubagentType
from agent.tools.bash import BASH

BuildSubagent = Callable[[SubagentType], Awaitable[SubagentGraph]]
"""Returns the graph of a subagent type. Raises AgentError."""

_SHARED_STATE = ("sandbox", "thread_data")
"""The state keys that a subagent inherits from its parent."""

_SPARE_STEPS = 20
"""Graph steps allowed beyond those of its turns, so that a subagent never reaches the recursion limit."""

_CAPPED_NOTE = "(The subagent reached its turn limit: this may be incomplete.)"

NO_BASH = (
    "Error: The bash subagent is not available: this sandbox cannot run commands (see sandbox.use and "
    "sandbox.allow_host_bash in the configuration)"
)


class TaskArgs(BaseModel):
    """The arguments of `task`."""

    description: str = Field(description="The task in three to five words, shown to the user.")
    prompt: str = Field(
        description="The complete task: what to do, what is known, which files to use, and what to return."
    )
    subagent_type: str = Field(description="The type of subagent.")
    max_turns: int | None = Field(
        default=None, description="Maximum number of model calls. Usually omitted."
    )


def task_tool(
    subagents: SubagentExecutor,
    kinds: Mapping[str, SubagentType],
    build: BuildSubagent,
    *,
    budget: int,
) -> BaseTool:
    """Build the `task` tool.

    Args:
        subagents: Runs them.
        kinds: The available types by name.
        build: Returns the graph of a type.
        budget: Delegations per message of a person, for the tool's description. `SubagentLimitMiddleware` enforces it.
    """
    tool = _TaskTool(subagents, kinds, build)
    names = "\n".join(f"- {kind.name}: {kind.description}" for kind in kinds.values())
    return StructuredTool.from_function(
        coroutine=tool.task,
        name=TASK,
        description=(
            "Delegate work to a subagent, which works independently and returns one message. It knows only the "
            "prompt, not this conversation, and shares the files. Several calls in one message run in parallel. "
            f"Budget: {budget} calls per user message. "
            f"Types (subagent_type):\n{names}"
        ),
        args_schema=TaskArgs,
    )


class _TaskTool:
    """Handles calls of `task`."""

    def __init__(
        self, subagents: SubagentExecutor, kinds: Mapping[str, SubagentType], build: BuildSubagent
    ) -> None:
        self._subagents = subagents
        self._kinds = kinds
        self._build = build

    async def task(
        self,
        description: str,
        prompt: str,
        subagent_type: str,
        runtime: ToolRuntime,
        max_turns: int | None = None,
    ) -> ToolMessage:
        kind = self._kinds.get(subagent_type.strip())
        refusal = self._refusal(kind, subagent_type, prompt)
        if kind is None or refusal is not None:
            text = refusal or ""
            return _tool_message(runtime, text, status_kwargs("failed", parse_error(text)))
        if max_turns is not None:
            kind = replace(kind, max_turns=max(1, min(max_turns, kind.max_turns)))
        return await self._delegate(kind, _TaskCall(description, prompt, runtime))

    def _refusal(self, kind: SubagentType | None, requested: str, prompt: str) -> str | None:
        if kind is None and requested.strip() == BASH:
            return NO_BASH
        if kind is None:
            names = ", ".join(sorted(self._kinds))
            return f"Error: Unknown subagent type '{requested[:80]}'. Available: {names}"
        if not prompt.strip():
            return "Error: The prompt is empty: describe the complete task in it"
        return None

    async def _delegate(self, kind: SubagentType, call: "_TaskCall") -> ToolMessage:
        call.emit_started()
        job = call.to_subagent_task(kind, self._build)
        outcome = SubagentResult(status="cancelled", error=CANCELLED_ERROR)
        try:
            outcome = await self._subagents.run(job)
        finally:
            # Send this even if the run is canceled, because a client may still read its stream.
            call.emit_finished(outcome)
        return _tool_message(
            call.runtime, result_text(outcome, kind.timeout_seconds), _status_kwargs(outcome)
        )


@dataclass(frozen=True, slots=True)
class _TaskCall:
    """One call of `task`, and its events in the run's stream (mode `custom`)."""

    description: str
    prompt: str
    runtime: ToolRuntime

    def to_subagent_task(self, kind: SubagentType, build: BuildSubagent) -> SubagentTask:
        state = self.runtime.state
        today = date_block(datetime.now().astimezone())
        shared = {key: state[key] for key in _SHARED_STATE if state.get(key) is not None}
        return SubagentTask(
            build=lambda: build(kind),
            input={"messages": [SystemMessage(today), HumanMessage(self.prompt)], **shared},
            config=_subagent_config(self.runtime.config, kind),
            context=self.runtime.context,
            timeout_s=kind.timeout_seconds,
            report=self.emit_progress,
        )

    def emit_started(self) -> None:
        self._emit("task_started", description=self.description)

    def emit_progress(self, answer: SubagentMessage) -> None:
        self._emit(
            "task_running",
            message=answer.message.model_dump(),
            message_index=answer.index,
            total_messages=answer.index,
        )

    def emit_finished(self, outcome: SubagentResult) -> None:
        usage = None if outcome.usage is None else dict(outcome.usage)
        if outcome.status == "completed":
            self._emit("task_completed", result=outcome.result, usage=usage)
            return
        ended = "timed_out" if outcome.status == "polling_timed_out" else outcome.status
        self._emit(f"task_{ended}", error=_error_text(outcome), usage=usage)

    def _emit(self, kind: str, **more: object) -> None:
        self.runtime.stream_writer({"type": kind, "task_id": self.runtime.tool_call_id, **more})


def result_text(outcome: SubagentResult, timeout_s: float) -> str:
    """Return the tool's text for a result.

    >>> result_text(SubagentResult(status="completed", result="42"), 900)
    'Task Succeeded. Result: 42'
    """
    match outcome.status:
        case "completed":
            note = f"\n\n{_CAPPED_NOTE}" if outcome.is_capped else ""
            return f"Task Succeeded. Result: {outcome.result}{note}"
        case "cancelled":
            return "Task cancelled by user."
        case "timed_out":
            return f"Task timed out. Error: {outcome.error}"
        case "polling_timed_out":
            return (
                f"Task polling timed out after {max(1, round(timeout_s / 60))} minutes. "
                "This may indicate the background task is stuck. Status: running"
            )
        case "failed":
            return f"Task failed. Error: {outcome.error}"


def _error_text(outcome: SubagentResult) -> str:
    if outcome.status == "polling_timed_out":
        return "It does not stop after its time limit"
    return outcome.error


def _status_kwargs(outcome: SubagentResult) -> dict[str, Any]:
    error = None if outcome.status == "completed" else _error_text(outcome)
    stamps: dict[str, Any] = status_kwargs(outcome.status, error)
    if outcome.is_capped:
        stamps[STOP_REASON_KEY] = TURN_CAPPED
    if outcome.usage is not None:
        stamps[SUBAGENT_USAGE_KEY] = dict(outcome.usage)
    return stamps


def _tool_message(runtime: ToolRuntime, text: str, stamps: dict[str, Any]) -> ToolMessage:
    return ToolMessage(
        content=text,
        name=TASK,
        tool_call_id=runtime.tool_call_id or "",
        status="success" if stamps["subagent_status"] == "completed" else "error",
        additional_kwargs=stamps,
    )


def _subagent_config(parent: RunnableConfig, kind: SubagentType) -> RunnableConfig:
    """Return a subagent's config: its parent's config without the parts that belong to the parent's graph."""
    configurable = {
        key: value
        for key, value in (parent.get("configurable") or {}).items()
        if not key.startswith(("__", "checkpoint"))
    }
    return RunnableConfig(
        configurable=configurable,
        callbacks=without_stream_handlers(parent.get("callbacks")),
        recursion_limit=2 * kind.max_turns + _SPARE_STEPS,
        run_name=f"subagent:{kind.name}",
        tags=[f"subagent:{kind.name}"],
    )
