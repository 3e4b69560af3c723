"""Internals of LangGraph, LangChain and LangSmith that Parley uses. These tests fail if a version changes them."""

import asyncio
from collections.abc import Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import aclosing
from typing import Any

import anyio
import pytest
from langchain.agents import create_agent
from langchain_core.callbacks import AsyncCallbackManager, BaseCallbackHandler
from langchain_core.messages import HumanMessage
from langchain_core.runnables import RunnableConfig
from langgraph.config import get_config
from langgraph.errors import NodeCancelledError
from langgraph.graph import START, MessagesState, StateGraph
from typing_extensions import override

from agent.langgraph_internals import (
    detached_context,
    langsmith_checks_inline,
    listening_model,
    step_tasks,
    without_stream_handlers,
)
from agent.middleware.tool_call_repair import ToolCallRepairMiddleware
from agent.streaming import stream_graph
from tests.fakes.scripted import ScriptedChatModel

RUN_ID = "2a7d2bb6-5f53-4d6b-b7fd-5d2f5a0e9f6b"
CONFIG: RunnableConfig = {"configurable": {"run_id": RUN_ID, "thread_id": "t"}}
QUESTION = {"messages": [HumanMessage("hi")]}


def graph_of(node: Any) -> Any:  # noqa: ANN401 - a node, a compiled graph
    return StateGraph(MessagesState).add_node("node", node).add_edge(START, "node").compile()


@pytest.mark.parametrize("with_events", [False, True])
async def test_the_tasks_of_a_runs_nodes_are_found(*, with_events: bool) -> None:
    begun, cancelled = anyio.Event(), anyio.Event()

    async def hang(_: MessagesState) -> Mapping[str, Any]:
        begun.set()
        try:
            await anyio.sleep_forever()
        finally:
            cancelled.set()
        return {}

    async def run() -> None:
        parts = stream_graph(
            graph_of(hang),
            QUESTION,
            CONFIG,
            context=None,
            modes=["values"],
            with_events=with_events,
        )
        async with aclosing(parts) as stream:
            async for _ in stream:
                pass

    running = asyncio.create_task(run())
    with anyio.fail_after(20):
        await begun.wait()
        assert step_tasks("another run") == []
        tasks = step_tasks(RUN_ID)
        assert tasks
        assert running not in tasks
        for task in tasks:
            task.cancel()
        await cancelled.wait()
        with pytest.raises((asyncio.CancelledError, NodeCancelledError)):
            await running
    assert step_tasks(RUN_ID) == []


async def test_a_detached_context_knows_of_no_run() -> None:
    seen: list[object] = []

    async def node(_: MessagesState) -> Mapping[str, Any]:
        seen.append(get_config()["configurable"]["run_id"])
        with pytest.raises(RuntimeError):
            detached_context().run(get_config)
        seen.append("detached")
        return {}

    await graph_of(node).ainvoke(QUESTION, CONFIG)
    assert seen == [RUN_ID, "detached"]


@pytest.mark.parametrize("filtered", [False, True])
async def test_callbacks_without_stream_handlers_feed_no_stream(*, filtered: bool) -> None:
    model = ScriptedChatModel.playing("secret words")

    async def node(_: MessagesState, config: RunnableConfig) -> Mapping[str, Any]:
        callbacks = config.get("callbacks")
        given = without_stream_handlers(callbacks) if filtered else callbacks
        task = detached_context().run(
            asyncio.create_task, model.ainvoke("go", {"callbacks": given})
        )
        await task
        return {}

    stream = graph_of(node).astream(QUESTION, CONFIG, stream_mode="messages")
    text = "".join([message.text async for message, _ in stream])
    assert ("secret words" in text) is not filtered


class CountingExecutor(ThreadPoolExecutor):
    """Counts the calls that go to worker threads."""

    calls = 0

    @override
    def submit(self, *args: Any, **kwargs: Any) -> Future[Any]:
        self.calls += 1
        return super().submit(*args, **kwargs)


async def test_langsmith_checks_run_on_the_loop() -> None:
    executor = CountingExecutor()
    asyncio.get_running_loop().set_default_executor(executor)
    agent: Any = create_agent(
        ScriptedChatModel.playing("Hello.", "Hello."), middleware=[ToolCallRepairMiddleware()]
    )
    await agent.ainvoke(QUESTION)
    by_default, executor.calls = executor.calls, 0
    with langsmith_checks_inline():
        await agent.ainvoke(QUESTION)
    assert executor.calls < by_default, (
        "LangSmith no longer uses worker threads: remove langsmith_checks_inline"
    )


@pytest.mark.parametrize("given", [None, "list", "manager"])
async def test_a_listening_model_is_described_once_and_calls_all_listeners(
    given: str | None,
) -> None:
    class Counting(BaseCallbackHandler):
        started = 0

        @override
        def on_chat_model_start(self, *args: Any, **kwargs: Any) -> None:
            self.started += 1

    first, second = Counting(), Counting()
    callbacks: Any = {None: None, "list": [first], "manager": AsyncCallbackManager([first])}[given]
    model = ScriptedChatModel.playing("a", "b")
    model.callbacks = callbacks
    copies = [listening_model(model, second) for _ in range(2)]
    for copy in copies:
        await copy.ainvoke("hi")
        assert copy._serialized is model._serialized
    assert (first.started, second.started) == (2 if given else 0, 2)
