"""Delegation through the whole agent: results, events, failures, deadlines, cancellation, and possible leaks."""

import asyncio
import json
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from datetime import datetime
from pathlib import Path
from typing import Any

import anyio
import pytest
from langchain_core.callbacks import BaseCallbackHandler
from langchain_core.messages import AIMessage, AnyMessage, HumanMessage, SystemMessage, ToolMessage
from langchain_core.outputs import ChatGeneration, LLMResult
from langchain_core.runnables import RunnableConfig
from langgraph.types import StreamMode
from typing_extensions import override

from agent.errors import ThreadIdMissing
from agent.middleware.turn_limit import LAST_TURN_REMINDER
from agent.paths import OUTPUTS
from agent.streaming import delegated_usage
from tests.agent.agent_harness import AgentHarness, open_agent
from tests.agent.plain_agent import THREAD
from tests.eventually import eventually
from tests.fakes.model import FakeModelServer, ModelReply, ToolCall
from tests.fakes.scripted import ScriptedChatModel, registered

MODES: list[StreamMode] = ["messages", "values", "updates", "custom"]
DELEGATING = {"thread_id": THREAD, "subagent_enabled": True}


def task(
    prompt: str,
    kind: str = "general-purpose",
    call_id: str = "t0",
    **more: Any,  # noqa: ANN401
) -> ToolCall:
    args = {"description": f"do {prompt}", "prompt": prompt, "subagent_type": kind, **more}
    return ToolCall(name="task", args=args, id=call_id)


@asynccontextmanager
async def pair(
    home: Path,
    lead: ScriptedChatModel,
    child: ScriptedChatModel,
    subagents: Mapping[str, Any] | None = None,
    **sections: Any,  # noqa: ANN401
) -> AsyncIterator[AgentHarness]:
    """Open an agent whose general-purpose subagents have their own model."""
    with registered(child) as keys:
        config = {
            "models": [{**keys, "name": "helper"}],
            "subagents": {"agents": {"general-purpose": {"model": "helper"}}, **(subagents or {})},
            **sections,
        }
        async with open_agent(home, lead, config) as home_of:
            yield home_of


def results(messages: Sequence[AnyMessage]) -> list[ToolMessage]:
    return [m for m in messages if isinstance(m, ToolMessage) and m.name == "task"]


def events(parts: Sequence[tuple[str, Any]]) -> list[dict[str, Any]]:
    return [chunk for mode, chunk in parts if mode == "custom" and "task_id" in chunk]


async def test_a_subagent_knows_the_date_and_the_lead_agent_the_limit(tmp_path: Path) -> None:
    lead = ScriptedChatModel.playing(ModelReply(calls=(task("look"),)), "Done.")
    child = ScriptedChatModel.playing("Found.")
    async with pair(tmp_path, lead, child) as harness:
        await harness.say("go", subagent_enabled=True)
        graph = await harness.factory.graph_for({"configurable": DELEGATING})
    today = datetime.now().astimezone().date().isoformat()
    (prompt,) = child.prompts
    assert [message.type for message in prompt] == ["system", "human"]
    assert f"<current_date>{today}, " in prompt[0].text
    assert prompt[1].text == "look"
    tool = graph.nodes["tools"].bound.tools_by_name["task"]  # type: ignore[attr-defined]
    assert "Budget: 6 calls per user message." in tool.description


async def test_a_subagent_works_in_the_thread_s_folders_and_its_result_comes_back(
    tmp_path: Path,
) -> None:
    path = f"{OUTPUTS}/report.md"
    write = ToolCall(name="write_file", args={"path": path, "content": "# Report"}, id="w")
    lead = ScriptedChatModel.playing(ModelReply(calls=(task("write a report"),)), "There you are.")
    child = ScriptedChatModel.playing(ModelReply(calls=(write,)), "Written: report.md")
    async with pair(tmp_path, lead, child) as harness:
        messages = await harness.say("a report, please", subagent_enabled=True)
        assert (harness.folders().outputs / "report.md").read_text() == "# Report"
        assert harness.services.subagents.running == 0
    (result,) = results(messages)
    assert result.text == "Task Succeeded. Result: Written: report.md"
    assert result.additional_kwargs["subagent_status"] == "completed"
    assert "subagent_error" not in result.additional_kwargs
    assert messages[-1].text == "There you are."
    assert [type(m) for m in messages] == [HumanMessage, AIMessage, ToolMessage, AIMessage]


async def test_a_subagent_sees_its_task_one_system_message_and_not_the_conversation(
    tmp_path: Path,
) -> None:
    lead = ScriptedChatModel.playing("Hello.", ModelReply(calls=(task("count"),)), "Three.")
    child = ScriptedChatModel.playing("3")
    async with pair(tmp_path, lead, child) as harness:
        await harness.say("a secret: banana", subagent_enabled=True)
        await harness.say("now count", subagent_enabled=True)
    (prompt,) = child.prompts
    assert [type(m) for m in prompt] == [SystemMessage, HumanMessage]
    assert prompt[1].text == "count"
    assert "banana" not in str(prompt)
    assert "<trust>" in prompt[0].text


async def test_the_events_come_in_order(tmp_path: Path) -> None:
    look = ToolCall(name="ls", args={"path": OUTPUTS}, id="l")
    lead = ScriptedChatModel.playing(
        ModelReply(calls=(task("look", call_id="t7"),)), "Nothing there."
    )
    child = ScriptedChatModel.playing(ModelReply(text="Looking.", calls=(look,)), "It is empty.")
    async with pair(tmp_path, lead, child) as harness:
        parts = await harness.stream("look", *MODES, subagent_enabled=True)
    told = events(parts)
    assert [event["type"] for event in told] == [
        *("task_started", "task_running", "task_running", "task_completed")
    ]
    assert {event["task_id"] for event in told} == {"t7"}
    assert told[0]["description"] == "do look"
    assert [event["message"]["content"] for event in told[1:3]] == ["Looking.", "It is empty."]
    assert [(e["message_index"], e["total_messages"]) for e in told[1:3]] == [(1, 1), (2, 2)]
    assert told[3]["result"] == "It is empty."
    used = [event["message"]["usage_metadata"]["total_tokens"] for event in told[1:3]]
    assert told[3]["usage"]["total_tokens"] == sum(used)
    json.dumps(told)


@pytest.mark.parametrize("subgraphs", [False, True])
async def test_nothing_of_a_subagent_appears_in_the_parent_s_stream(
    tmp_path: Path, *, subgraphs: bool
) -> None:
    lead = ScriptedChatModel.playing(ModelReply(calls=(task("whisper"),)), "Done.")
    look = ToolCall(name="ls", args={"path": OUTPUTS}, id="inner-call")
    child = ScriptedChatModel.playing(
        ModelReply(text="murmur murmur", calls=(look,)), "quiet words"
    )
    async with pair(tmp_path, lead, child) as harness:
        config: RunnableConfig = {"configurable": DELEGATING}
        graph = await harness.factory.graph_for(config)
        modes: list[StreamMode] = [*MODES, "tasks", "checkpoints", "debug"]
        parts: list[Any] = [
            part
            async for part in graph.astream(
                {"messages": [HumanMessage("go")]},
                config,
                stream_mode=modes,
                subgraphs=subgraphs,
            )
        ]
        history = [state async for state in graph.aget_state_history(config)]
    heard = [part for part in parts if "custom" not in part]
    assert any("Done." in str(part) for part in heard)
    assert not any("murmur" in str(part) or "inner-call" in str(part) for part in heard)
    if subgraphs:
        assert {part[0] for part in parts} == {()}
    told = [part for part in heard if "messages" in part]
    assert not any(
        isinstance(part[-1][0], AIMessage) and "quiet" in part[-1][0].text for part in told
    )
    assert [state.metadata["step"] for state in history if state.metadata] == [3, 2, 1, 0, -1]


async def test_three_subagents_work_at_the_same_time(tmp_path: Path) -> None:
    calls = tuple(task(f"part {n}", call_id=f"t{n}") for n in range(3))
    lead = ScriptedChatModel.playing(ModelReply(calls=calls), "All done.")
    child = ScriptedChatModel.playing(*3 * [ModelReply(text="a b c d", token_delay_s=0.01)])
    async with pair(tmp_path, lead, child) as harness:
        parts = await harness.stream("go", *MODES, subagent_enabled=True)
        state = await harness.state(subagent_enabled=True)
    told = [(event["type"], event["task_id"]) for event in events(parts)]
    assert {kind for kind, _ in told[:3]} == {"task_started"}
    assert sorted(told[3:]) == sorted(
        (kind, f"t{n}") for kind in ("task_running", "task_completed") for n in range(3)
    )
    assert [m.tool_call_id for m in results(state["messages"])] == ["t0", "t1", "t2"]


class CountingCallback(BaseCallbackHandler):
    """Counts the tokens of every model call, as a tracer would."""

    def __init__(self) -> None:
        self.tokens = 0
        self.calls = 0

    @override
    def on_llm_end(self, response: LLMResult, **kwargs: Any) -> None:
        generation = response.generations[0][0]
        assert isinstance(generation, ChatGeneration)
        message = generation.message
        assert isinstance(message, AIMessage)
        assert message.usage_metadata is not None
        self.tokens += message.usage_metadata["total_tokens"]
        self.calls += 1


async def test_the_tokens_of_a_subagent_are_counted_once_and_added_to_the_run_s(
    tmp_path: Path,
) -> None:
    look = ToolCall(name="ls", args={"path": OUTPUTS}, id="l")
    lead = ScriptedChatModel.playing(ModelReply(calls=(task("look"),)), "Nothing.")
    child = ScriptedChatModel.playing(ModelReply(calls=(look,)), "Empty.")
    counter = CountingCallback()
    async with pair(tmp_path, lead, child) as harness:
        config: RunnableConfig = {"configurable": DELEGATING, "callbacks": [counter]}
        graph = await harness.factory.graph_for(config)
        state = await graph.ainvoke({"messages": [HumanMessage("go")]}, config)
    messages: list[AnyMessage] = state["messages"]
    own = [m.usage_metadata for m in messages if isinstance(m, AIMessage) and m.usage_metadata]
    delegated = [usage for m in messages if (usage := delegated_usage(m)) is not None]
    assert (len(own), len(delegated)) == (2, 1)
    assert counter.calls == 4
    assert sum(usage["total_tokens"] for usage in [*own, *delegated]) == counter.tokens


async def test_a_failing_subagent_is_reported_and_the_run_goes_on(tmp_path: Path) -> None:
    lead = ScriptedChatModel.playing(ModelReply(calls=(task("fail"),)), "It did not work.")
    child = ScriptedChatModel.playing(ValueError("/home/somebody/key sk-secret"))
    async with pair(tmp_path, lead, child, llm_retry={"attempts": 1}) as harness:
        parts = await harness.stream("go", *MODES, subagent_enabled=True)
        state = await harness.state(subagent_enabled=True)
    (result,) = results(state["messages"])
    assert result.text.startswith("Task failed. Error: ")
    assert "sk-secret" not in str(state["messages"])
    assert result.additional_kwargs["subagent_status"] == "failed"
    assert result.additional_kwargs["subagent_error"]
    assert events(parts)[-1]["type"] == "task_failed"
    assert state["messages"][-1].text == "It did not work."


async def test_a_deadline_ends_a_subagent(tmp_path: Path) -> None:
    lead = ScriptedChatModel.playing(ModelReply(calls=(task("dawdle"),)), "Too slow.")
    child = ScriptedChatModel.playing("never said")
    child.hold()
    async with pair(tmp_path, lead, child, {"timeout_seconds": 0.2}) as harness:
        parts = await harness.stream("go", *MODES, subagent_enabled=True)
        state = await harness.state(subagent_enabled=True)
        assert harness.services.subagents.running == 0
    (result,) = results(state["messages"])
    assert result.text == "Task timed out. Error: Execution timed out after 0.2 seconds"
    assert result.additional_kwargs["subagent_status"] == "timed_out"
    assert [event["type"] for event in events(parts)] == ["task_started", "task_timed_out"]


async def test_a_stopped_run_stops_its_subagents(tmp_path: Path) -> None:
    calls = tuple(task(f"part {n}", call_id=f"t{n}") for n in range(3))
    lead = ScriptedChatModel.playing(ModelReply(calls=calls), "Never said.")
    child = ScriptedChatModel.playing()
    child.hold()
    async with pair(tmp_path, lead, child) as harness:
        tasks: list[asyncio.Task[Any]] = []

        async def turn() -> None:
            current = asyncio.current_task()
            assert current is not None
            tasks.append(current)
            await harness.say("go", subagent_enabled=True)

        async with anyio.create_task_group() as group:
            group.start_soon(turn)
            await eventually(lambda: len(child.prompts) >= 3)
            assert harness.services.subagents.running == 3
            tasks[0].cancel()
        assert harness.services.subagents.running == 0
        messages = await harness.say("and now?", subagent_enabled=True)
    assert messages[-1].text == "Never said."


# ---- through a real model class --------------------------------------------------------------------


def served(server: FakeModelServer) -> dict[str, Any]:
    """Return sections that let general-purpose subagents call a model server."""
    model = {
        "name": "server",
        "use": "langchain_openai:ChatOpenAI",
        "model": "fake",
        "api_key": "k",
        "base_url": server.base_url,
        "max_retries": 0,
    }
    return {
        "models": [model],
        "subagents": {"agents": {"general-purpose": {"model": "server"}}},
    }


async def test_stopping_a_run_closes_its_subagents_requests(tmp_path: Path) -> None:
    calls = tuple(task(f"part {n}", call_id=f"t{n}") for n in range(3))
    lead = ScriptedChatModel.playing(ModelReply(calls=calls), "Fine.")
    async with FakeModelServer() as server:
        server.reply(*(ModelReply(text="on and on", hang_after=1) for _ in range(3)))
        async with open_agent(tmp_path, lead, served(server)) as harness:
            running = asyncio.ensure_future(harness.say("go", subagent_enabled=True))
            await server.until(lambda s: len(s.requests) == 3)
            running.cancel()
            with pytest.raises(asyncio.CancelledError):
                await running
            await server.until(lambda s: all(r.closed_by_client for r in s.requests))
            assert harness.services.subagents.running == 0


async def test_a_run_taken_up_again_delegates_again(tmp_path: Path) -> None:
    lead = ScriptedChatModel.playing(ModelReply(calls=(task("x"),)), "Done after all.")
    async with FakeModelServer() as server:
        server.reply(ModelReply(text="on and on", hang_after=1), "here it is")
        async with open_agent(tmp_path, lead, served(server)) as harness:
            running = asyncio.ensure_future(harness.say("go", subagent_enabled=True))
            await server.until(lambda s: len(s.requests) == 1)
            running.cancel()
            with pytest.raises(asyncio.CancelledError):
                await running
            config: RunnableConfig = {"configurable": DELEGATING}
            graph = await harness.factory.graph_for(config)
            state = await graph.ainvoke(None, config)
    messages: list[AnyMessage] = state["messages"]
    assert results(messages)[0].text == "Task Succeeded. Result: here it is"
    assert messages[-1].text == "Done after all."


async def test_a_deadline_closes_the_request(tmp_path: Path) -> None:
    lead = ScriptedChatModel.playing(ModelReply(calls=(task("dawdle"),)), "Too slow.")
    async with FakeModelServer() as server:
        server.reply(ModelReply(text="on and on", hang_after=1))
        sections = served(server)
        sections["subagents"]["agents"]["general-purpose"]["timeout_seconds"] = 2.0
        async with open_agent(tmp_path, lead, sections) as harness:
            messages = await harness.say("go", subagent_enabled=True)
            await server.until(lambda s: s.requests[0].closed_by_client)
    assert messages[-1].text == "Too slow."


async def test_a_model_that_cannot_be_reached_fails_the_subagent_not_the_run(
    tmp_path: Path,
) -> None:
    lead = ScriptedChatModel.playing(ModelReply(calls=(task("ask"),)), "It did not work.")
    async with FakeModelServer() as server:
        server.reply(ModelReply(status=401))
        async with open_agent(tmp_path, lead, served(server)) as harness:
            messages = await harness.say("go", subagent_enabled=True)
    (result,) = results(messages)
    assert result.text.startswith("Task failed. Error: ")
    assert result.additional_kwargs["subagent_status"] == "failed"
    assert result.status == "error"
    assert messages[-1].text == "It did not work."


# ---- limits, refusals, guardrails --------------------------------------------------------------------


async def test_the_last_turn_is_announced_and_answers_with_the_results_so_far(
    tmp_path: Path,
) -> None:
    look = ToolCall(name="ls", args={"path": OUTPUTS}, id="l")
    again = ModelReply(text="Half of it.", calls=(look,))
    lead = ScriptedChatModel.playing(ModelReply(calls=(task("look", max_turns=2),)), "Half, then.")
    child = ScriptedChatModel.playing(again, again, "never asked")
    async with pair(tmp_path, lead, child) as harness:
        messages = await harness.say("go", subagent_enabled=True)
    (result,) = results(messages)
    assert result.text.startswith("Task Succeeded. Result: Half of it.")
    assert "may be incomplete" in result.text
    assert result.additional_kwargs["subagent_stop_reason"] == "turn_capped"
    assert [prompt[-1].text == LAST_TURN_REMINDER for prompt in child.prompts] == [False, True]


@pytest.mark.parametrize(("asked", "turns"), [(0, 1), (-3, 1), (99, 3), (None, 3)])
async def test_turns_are_bounded_by_the_kind_s(
    tmp_path: Path, asked: int | None, turns: int
) -> None:
    script = [
        ModelReply(
            text=f"{n}",
            calls=(ToolCall(name="ls", args={"path": f"{OUTPUTS}/{n}"}, id=f"l{n}"),),
        )
        for n in range(9)
    ]
    lead = ScriptedChatModel.playing(ModelReply(calls=(task("look", max_turns=asked),)), "ok")
    child = ScriptedChatModel.playing(*script)
    async with pair(tmp_path, lead, child, {"max_turns": 3}) as harness:
        messages = await harness.say("go", subagent_enabled=True)
    assert len(child.prompts) == turns
    assert results(messages)[0].text.startswith(f"Task Succeeded. Result: {turns - 1}")


@pytest.mark.parametrize(
    ("call", "text"),
    [
        (
            task("x", "painter"),
            "Error: Unknown subagent type 'painter'. Available: general-purpose",
        ),
        (task("x", "bash"), "Error: The bash subagent is not available"),
        (task("  "), "Error: The prompt is empty"),
        (task("x", "y" * 5_000), "Error: Unknown subagent type 'yyy"),
    ],
)
async def test_impossible_delegations_are_reported(
    tmp_path: Path, call: ToolCall, text: str
) -> None:
    lead = ScriptedChatModel.playing(ModelReply(calls=(call,)), "ok")
    async with pair(
        tmp_path, lead, ScriptedChatModel.playing(), sandbox={"use": "local"}
    ) as harness:
        parts = await harness.stream("go", *MODES, subagent_enabled=True)
        state = await harness.state(subagent_enabled=True)
    (result,) = results(state["messages"])
    assert result.text.startswith(text)
    assert len(result.text) < 300
    assert result.additional_kwargs["subagent_status"] == "failed"
    assert result.additional_kwargs["subagent_error"] in result.text
    assert events(parts) == []


async def test_arguments_of_a_wrong_shape_are_reported(tmp_path: Path) -> None:
    wrong = ToolCall(name="task", args={"prompt": ["x"], "subagent_type": None}, id="t0")
    lead = ScriptedChatModel.playing(ModelReply(calls=(wrong,)), "ok")
    async with pair(tmp_path, lead, ScriptedChatModel.playing()) as harness:
        messages = await harness.say("go", subagent_enabled=True)
    (result,) = results(messages)
    assert result.text.startswith("Error")
    assert result.additional_kwargs["subagent_status"] == "failed"
    assert messages[-1].text == "ok"


async def test_guardrails_hold_inside_a_subagent(tmp_path: Path) -> None:
    path = f"{OUTPUTS}/secret.txt"
    write = ToolCall(name="write_file", args={"path": path, "content": "x"}, id="w")
    lead = ScriptedChatModel.playing(ModelReply(calls=(task("write"),)), "ok")
    child = ScriptedChatModel.playing(ModelReply(calls=(write,)), "I may not.")
    provider = {"use": "allowlist", "config": {"denied_tools": ["write_file"]}}
    guardrails = {"enabled": True, "provider": provider}
    async with pair(tmp_path, lead, child, guardrails=guardrails) as harness:
        await harness.say("go", subagent_enabled=True)
        assert not (harness.folders().outputs / "secret.txt").exists()
    denied = child.prompts[1][-1]
    assert isinstance(denied, ToolMessage)
    assert denied.status == "error"
    assert "write_file" in denied.text


async def test_delegating_itself_may_need_leave(tmp_path: Path) -> None:
    lead = ScriptedChatModel.playing(ModelReply(calls=(task("write"),)), "Not allowed.")
    child = ScriptedChatModel.playing()
    provider = {"use": "allowlist", "config": {"denied_tools": ["task"]}}
    guardrails = {"enabled": True, "provider": provider}
    async with pair(tmp_path, lead, child, guardrails=guardrails) as harness:
        messages = await harness.say("go", subagent_enabled=True)
    (result,) = results(messages)
    assert result.additional_kwargs["subagent_status"] == "failed"
    assert child.prompts == []


async def test_a_tool_error_is_reported_to_the_subagent(tmp_path: Path) -> None:
    wrong = ToolCall(name="read_file", args={"path": "/etc/passwd"}, id="r")
    lead = ScriptedChatModel.playing(ModelReply(calls=(task("read"),)), "ok")
    child = ScriptedChatModel.playing(ModelReply(calls=(wrong,)), "Refused.")
    async with pair(tmp_path, lead, child) as harness:
        messages = await harness.say("go", subagent_enabled=True)
    assert child.prompts[1][-1].text.startswith("Error")
    assert results(messages)[0].text == "Task Succeeded. Result: Refused."


async def test_ids_of_calls_may_come_again_in_later_turns(tmp_path: Path) -> None:
    lead = ScriptedChatModel.playing(
        *(ModelReply(calls=(task("one"),)), "first", ModelReply(calls=(task("two"),)), "second")
    )
    child = ScriptedChatModel.playing("1", "2")
    async with pair(tmp_path, lead, child) as harness:
        await harness.say("go", subagent_enabled=True)
        messages = await harness.say("again", subagent_enabled=True)
    assert [result.text[-1] for result in results(messages)] == ["1", "2"]


async def test_a_subagent_works_for_its_parents_user(tmp_path: Path) -> None:
    path = f"{OUTPUTS}/mine.txt"
    write = ToolCall(name="write_file", args={"path": path, "content": "x"}, id="w")
    lead = ScriptedChatModel.playing(ModelReply(calls=(task("write"),)), "ok")
    child = ScriptedChatModel.playing(ModelReply(calls=(write,)), "done")
    async with pair(tmp_path, lead, child) as harness:
        graph = await harness.factory.graph_for({"configurable": DELEGATING})
        question = {"messages": [HumanMessage("go")]}
        with pytest.raises((ThreadIdMissing, ValueError)):
            await graph.ainvoke(question)
        # Only the context names the thread, as with LangGraph Server.
        graph.checkpointer = None
        await graph.ainvoke(question, context={"thread_id": "other"})
        assert (harness.folders("other").outputs / "mine.txt").exists()
        assert not harness.folders().outputs.exists()


async def test_a_subagents_model_that_cannot_be_built_is_reported(tmp_path: Path) -> None:
    lead = ScriptedChatModel.playing(ModelReply(calls=(task("x"),)), "ok")
    broken = {"name": "broken", "use": "nowhere.at_all:Model", "model": "m"}
    sections = {
        "models": [broken],
        "subagents": {"agents": {"general-purpose": {"model": "broken"}}},
    }
    async with open_agent(tmp_path, lead, sections) as harness:
        messages = await harness.say("go", subagent_enabled=True)
    (result,) = results(messages)
    assert result.text.startswith("Task failed. Error: ")
    assert "nowhere" in result.text
    assert messages[-1].text == "ok"
