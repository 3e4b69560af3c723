"""The subagent executor alone: all kinds of histories, deadlines, subagents that do not stop, and their owners."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

import anyio
import pytest
from langchain_core.messages import AIMessage, AnyMessage, HumanMessage, ToolMessage
from langchain_core.runnables.config import var_child_runnable_config
from langgraph.graph import END, START, MessagesState, StateGraph
from langgraph.types import interrupt

from agent.errors import ModelUnusable
from agent.models.failures import FALLBACK_KEY
from agent.subagents.executor import (
    SubagentExecutor,
    SubagentGraph,
    SubagentRun,
    SubagentTask,
    open_subagent_executor,
)
from agent.subagents.progress import (
    INTERRUPTED_ERROR,
    NO_RESPONSE,
    NO_TEXT,
    SubagentMessage,
    SubagentProgress,
    SubagentResult,
    final_text,
)
from agent.subagents.tool import result_text
from tests.eventually import eventually

Node = Callable[[MessagesState], Awaitable[Mapping[str, Any]]]


def graph_of(*nodes: Node) -> SubagentGraph:
    builder: Any = StateGraph(MessagesState)
    names = [f"n{number}" for number in range(len(nodes))]
    for name, node in zip(names, nodes, strict=True):
        builder.add_node(name, node)
    for one, other in zip([START, *names], [*names, END], strict=True):
        builder.add_edge(one, other)
    compiled: SubagentGraph = builder.compile(checkpointer=False)
    return compiled


def saying(*messages: AnyMessage) -> Node:
    async def say(_: MessagesState) -> Mapping[str, Any]:
        return {"messages": list(messages)}

    return say


def job(
    *nodes: Node, timeout_s: float = 20.0, heard: list[SubagentMessage] | None = None
) -> SubagentTask:
    graph = graph_of(*nodes)

    async def build() -> SubagentGraph:
        return graph

    return SubagentTask(
        build=build,
        input={"messages": [HumanMessage("go")]},
        config={},
        context=None,
        timeout_s=timeout_s,
        report=(heard if heard is not None else []).append,
    )


async def outcome_of(*nodes: Node, heard: list[SubagentMessage] | None = None) -> SubagentResult:
    async with open_subagent_executor() as subagents:
        outcome = await subagents.run(job(*nodes, heard=heard))
        assert subagents.running == 0
    return outcome


# ---- the result of a history -------------------------------------------------------------------------


def answer(text: str | list[str | dict[str, Any]], total: int = 0, **more: Any) -> AIMessage:  # noqa: ANN401
    usage = (
        {"input_tokens": total - 1, "output_tokens": 1, "total_tokens": total} if total else None
    )
    return AIMessage(text, usage_metadata=usage, **more)


@pytest.mark.parametrize(
    ("messages", "text"),
    [
        ([], NO_RESPONSE),
        ([answer("")], NO_RESPONSE),
        ([answer([])], NO_TEXT),
        ([answer([{"type": "image_url", "image_url": "x"}])], NO_TEXT),
        ([answer([{"type": "text", "text": "one"}, "two"])], "one\ntwo"),
        ([answer("early"), HumanMessage("and?")], "early"),
        ([HumanMessage("only asked")], "only asked"),
        ([answer("early"), ToolMessage("r", tool_call_id="1"), answer("late")], "late"),
    ],
)
def test_the_final_text(messages: list[AnyMessage], text: str) -> None:
    assert final_text(messages) == text


async def test_messages_are_reported_once_and_their_tokens_counted_once() -> None:
    heard: list[SubagentMessage] = []
    first, second = answer("a", 5, id="m1"), answer("b", 7, id="m2")
    outcome = await outcome_of(saying(first), saying(first), saying(second), heard=heard)
    assert [(said.message.text, said.index) for said in heard] == [("a", 1), ("b", 2)]
    assert outcome.status == "completed"
    assert outcome.usage is not None
    assert outcome.usage["total_tokens"] == 12


def test_long_histories_are_looked_at_once() -> None:
    reported: list[SubagentMessage] = []
    progress = SubagentProgress(reported.append)
    messages: list[AnyMessage] = []
    for number in range(3_000):
        messages.append(answer("x", 2, id=str(number)))
        progress.add_state({"messages": messages})
    assert len(reported) == 3_000
    assert progress.usage is not None
    assert progress.usage["total_tokens"] == 6_000


async def test_an_answer_that_no_model_could_give_is_a_failure() -> None:
    fallback = answer("The model could not be reached.", additional_kwargs={FALLBACK_KEY: True})
    outcome = await outcome_of(saying(fallback))
    assert (outcome.status, outcome.error) == ("failed", "The model could not be reached.")


async def test_an_interrupt_is_a_failure_because_nobody_can_be_asked() -> None:
    async def ask(_: MessagesState) -> Mapping[str, Any]:
        interrupt("May I?")
        return {}

    outcome = await outcome_of(saying(answer("so far", 3)), ask)
    assert (outcome.status, outcome.error) == ("failed", INTERRUPTED_ERROR)
    assert outcome.usage is not None


@pytest.mark.parametrize(
    ("error", "told"),
    [
        (ValueError("/home/me sk-secret"), "ValueError"),
        (TimeoutError("of its own"), "TimeoutError"),
        (ModelUnusable("The model m cannot be used."), "The model m cannot be used."),
    ],
)
async def test_an_exception_is_a_failure_without_secrets(error: Exception, told: str) -> None:
    async def fail(_: MessagesState) -> Mapping[str, Any]:
        raise error

    outcome = await outcome_of(saying(answer("so far", 3)), fail)
    assert (outcome.status, outcome.error) == ("failed", told)
    assert outcome.usage is not None
    assert outcome.usage["total_tokens"] == 3


@pytest.mark.parametrize(
    ("outcome", "text"),
    [
        (SubagentResult(status="completed", result="r"), "Task Succeeded. Result: r"),
        (SubagentResult(status="failed", error="e"), "Task failed. Error: e"),
        (SubagentResult(status="cancelled", error="e"), "Task cancelled by user."),
        (SubagentResult(status="timed_out", error="e"), "Task timed out. Error: e"),
        (
            SubagentResult(status="polling_timed_out"),
            "Task polling timed out after 15 minutes. This may indicate the background task is stuck. "
            "Status: running",
        ),
    ],
)
def test_the_texts_that_the_model_reads(outcome: SubagentResult, text: str) -> None:
    assert result_text(outcome, 900) == text


# ---- deadlines, cancellation, owners -------------------------------------------------------------------


async def hang(_: MessagesState) -> Mapping[str, Any]:
    await anyio.sleep_forever()
    return {}


class StubbornGraph:
    """A node that ignores cancellation until the test releases it."""

    def __init__(self) -> None:
        self.started, self.let_go = anyio.Event(), anyio.Event()
        self.cancelled = 0

    async def __call__(self, _: MessagesState) -> Mapping[str, Any]:
        self.started.set()
        while not self.let_go.is_set():
            try:
                await self.let_go.wait()
            except asyncio.CancelledError:
                self.cancelled += 1
        return {"messages": [answer("too late", id="late")]}


async def test_a_deadline() -> None:
    heard: list[SubagentMessage] = []
    async with open_subagent_executor() as subagents:
        outcome = await subagents.run(job(saying(answer("a", 4)), hang, timeout_s=3.0, heard=heard))
        assert subagents.running == 0
    assert outcome.status == "timed_out"
    assert outcome.error == "Execution timed out after 3 seconds"
    assert outcome.usage is not None
    assert len(heard) == 1


async def test_one_that_does_not_stop_is_abandoned_and_its_events_are_ignored() -> None:
    stubborn, heard = StubbornGraph(), list[SubagentMessage]()
    async with open_subagent_executor(stop_s=0.5) as subagents:
        with anyio.fail_after(20):
            outcome = await subagents.run(job(stubborn, timeout_s=3.0, heard=heard))
        assert outcome.status == "polling_timed_out"
        assert subagents.running == 1
        stubborn.let_go.set()
        await eventually(lambda: not subagents.running)
    assert stubborn.cancelled >= 2
    assert heard == []


async def test_a_cancelled_parent_waits_for_its_child_a_limited_time() -> None:
    stubborn = StubbornGraph()
    async with open_subagent_executor(stop_s=0.5) as subagents:
        with anyio.fail_after(20):
            async with anyio.create_task_group() as group:
                group.start_soon(subagents.run, job(stubborn))
                group.start_soon(subagents.run, job(hang))
                await reached(subagents, 2)
                await stubborn.started.wait()
                group.cancel_scope.cancel()
        assert subagents.running == 1
        stubborn.let_go.set()
    assert subagents.running == 0


async def test_leaving_stops_what_still_runs() -> None:
    outcomes: list[SubagentResult] = []

    async def run(subagents: SubagentExecutor) -> None:
        outcomes.append(await subagents.run(job(hang)))

    async with anyio.create_task_group() as group, open_subagent_executor() as subagents:
        group.start_soon(run, subagents)
        await reached(subagents, 1)
    assert [outcome.status for outcome in outcomes] == ["cancelled"]
    assert subagents.running == 0


async def test_an_error_inside_comes_out_as_it_is() -> None:
    with pytest.raises(LookupError, match="mine"):
        async with open_subagent_executor():
            raise LookupError("mine")
    with anyio.move_on_after(0) as scope:
        async with open_subagent_executor():
            await anyio.sleep_forever()
    assert scope.cancelled_caught


async def test_more_than_the_process_takes_wait_their_turn() -> None:
    working, most = 0, 0

    async def work(_: MessagesState) -> Mapping[str, Any]:
        nonlocal working, most
        working += 1
        most = max(most, working)
        await anyio.sleep(0.002)
        working -= 1
        return {"messages": [answer("ok")]}

    async with open_subagent_executor(at_once=2) as subagents, anyio.create_task_group() as group:
        for _ in range(7):
            group.start_soon(subagents.run, job(work))
    assert most == 2


async def test_the_outcome_is_written_once() -> None:
    execution = SubagentRun(job(hang))
    first, second = SubagentResult(status="timed_out"), SubagentResult(status="completed")
    assert execution.set_result(first) is first
    assert execution.set_result(second) is first
    assert execution.result is first


async def test_the_parent_s_run_is_unknown_inside() -> None:
    seen: list[object] = []

    async def look() -> SubagentGraph:
        seen.append(var_child_runnable_config.get())
        return graph_of(saying(answer("ok")))

    async with open_subagent_executor() as subagents:
        token = var_child_runnable_config.set({"tags": ["parent"]})
        plain = job(hang)
        await subagents.run(
            SubagentTask(
                build=look,
                input=plain.input,
                config={},
                context=None,
                timeout_s=5,
                report=plain.report,
            )
        )
        assert var_child_runnable_config.get() == {"tags": ["parent"]}
        var_child_runnable_config.reset(token)
    assert seen == [None]


async def reached(subagents: SubagentExecutor, number: int) -> None:
    await eventually(lambda: subagents.running >= number)
