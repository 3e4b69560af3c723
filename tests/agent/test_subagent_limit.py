"""Limits of delegations, per answer and per run."""

from pathlib import Path
from typing import Any

import pytest
from langchain.agents import create_agent
from langchain_core.messages import AIMessage, AnyMessage, HumanMessage, ToolMessage
from langchain_core.tools import BaseTool, StructuredTool

from agent.middleware.subagent_limit import (
    BUDGET_ERROR,
    SubagentLimitMiddleware,
    delegations_made,
)
from agent.middleware.tool_calls import append_note, remove_tool_calls
from agent.state import ThreadState
from tests.agent.agent_harness import open_agent
from tests.fakes.model import FakeModelServer, ModelReply, ToolCall
from tests.fakes.scripted import ScriptedChatModel

BUDGET = 6


def call(name: str, number: int) -> ToolCall:
    return ToolCall(name=name, args={}, id=f"{name}-{number}")


def counted(name: str, log: list[str]) -> BaseTool:
    async def tool() -> str:
        log.append(name)
        return "ok"

    return StructuredTool.from_function(coroutine=tool, name=name, description=name)


async def run(
    limit: SubagentLimitMiddleware, *script: ModelReply | str
) -> tuple[list[Any], list[str]]:
    log: list[str] = []
    graph: Any = create_agent(
        ScriptedChatModel.playing(*script),
        [counted("task", log), counted("ls", log)],
        middleware=[limit],
        state_schema=ThreadState,
    )
    asked = {"messages": [HumanMessage("go")]}
    state = await graph.ainvoke(asked)
    return state["messages"], log


MIXED = ModelReply(
    calls=(
        *(call("task", 0), call("ls", 0), call("task", 1), call("task", 2)),
        *(call("task", 3), call("ls", 1), call("task", 4)),
    )
)


@pytest.mark.parametrize(("asked", "kept"), [(3, 3), (0, 2), (-5, 2), (1, 2), (4, 4), (9, 4)])
async def test_the_first_calls_are_kept_and_all_others_of_other_tools(
    asked: int, kept: int
) -> None:
    messages, log = await run(SubagentLimitMiddleware(asked, BUDGET), MIXED, "done")
    assert log.count("task") == kept
    assert log.count("ls") == 2
    names = [c["id"] for c in messages[1].tool_calls]
    whole = [c.id for c in MIXED.calls]
    dropped = {f"task-{number}" for number in range(kept, 5)}
    assert names == [call_id for call_id in whole if call_id not in dropped]


async def test_few_calls_are_left_as_they_are() -> None:
    messages, log = await run(
        SubagentLimitMiddleware(3, BUDGET), ModelReply(calls=MIXED.calls[:4]), "done"
    )
    assert len(messages[1].tool_calls) == 4
    assert log.count("task") == 3


async def test_a_call_above_the_budget_gets_a_result_that_says_so() -> None:
    three = ModelReply(calls=tuple(call("task", n) for n in range(3)))
    more = ModelReply(calls=(call("task", 7), call("ls", 7), call("task", 8)))
    messages, log = await run(
        SubagentLimitMiddleware(3, 5), three, three, more, "I did the rest myself."
    )
    assert log == [*["task"] * 5, "ls"]
    assert messages[-1].text == "I did the rest myself."
    refused = [m for m in messages if isinstance(m, ToolMessage) and m.text != "ok"]
    assert [m.tool_call_id for m in refused] == ["task-2", "task-7", "task-8"]
    assert {m.text for m in refused} == {BUDGET_ERROR.format(budget=5)}
    assert {m.additional_kwargs["subagent_status"] for m in refused} == {"failed"}
    assert all(m.status == "error" for m in refused)


async def test_the_model_goes_on_if_no_call_is_left() -> None:
    one, two = ModelReply(calls=(call("task", 1),)), ModelReply(calls=(call("task", 2),))
    messages, log = await run(SubagentLimitMiddleware(3, 1), one, two, two, "By myself, then.")
    assert log == ["task"]
    assert messages[-1].text == "By myself, then."


async def test_the_next_message_of_a_person_has_a_new_budget() -> None:
    calls = [{"name": "task", "args": {}, "id": str(n)} for n in range(4)]
    turn: list[AnyMessage] = [
        HumanMessage("go"),
        AIMessage("", tool_calls=calls),
        ToolMessage("x", tool_call_id="0"),
    ]
    assert delegations_made(turn) == 4
    assert delegations_made([*turn, AIMessage("", tool_calls=calls)]) == 8
    assert delegations_made([*turn, AIMessage("done"), HumanMessage("next")]) == 0


async def test_the_budget_is_configured_and_said_in_the_prompt(tmp_path: Path) -> None:
    kind = {"description": "d", "prompt": "p", "subagent_type": "general-purpose"}
    two = ModelReply(calls=tuple(ToolCall("task", kind, f"c{n}") for n in range(2)))
    model = ScriptedChatModel.playing(two, "Half of it is done.", "By myself.")
    sections = {"subagents": {"calls_per_message": 1}}
    async with open_agent(tmp_path, model, sections) as harness:
        messages = await harness.say("go", subagent_enabled=True)
        graph = await harness.factory.graph_for({"configurable": {"subagent_enabled": True}})
        tool = graph.nodes["tools"].bound.tools_by_name["task"]  # type: ignore[attr-defined]
    assert "Budget: 1 calls per user message." in tool.description
    results = {m.tool_call_id: m.text for m in messages if isinstance(m, ToolMessage)}
    assert results["c0"].startswith("Task Succeeded.")
    assert results["c1"] == BUDGET_ERROR.format(budget=1)


async def test_the_tool_stays_on_offer_so_that_requests_can_be_cached(tmp_path: Path) -> None:
    kind = {"description": "d", "prompt": "p", "subagent_type": "general-purpose"}
    three = ModelReply(calls=tuple(ToolCall("task", kind, f"c{n}") for n in range(3)))
    async with FakeModelServer() as server:
        server.reply(three, three, "By myself, then.")
        entry = {
            "use": "langchain_openai:ChatOpenAI",
            "model": "fake",
            "api_key": "k",
            "base_url": server.base_url,
        }
        sections = {
            "models": [{"name": "server", **entry}],
            "subagents": {"agents": {"general-purpose": {"model": "scripted"}}},
        }
        async with open_agent(tmp_path, ScriptedChatModel.playing(), sections) as harness:
            messages = await harness.say("go", subagent_enabled=True, model_name="server")
    assert messages[-1].text == "By myself, then."
    assert ["task" in request.tool_names for request in server.requests] == [True, True, True]


# ---- calls are taken out wherever a provider keeps them -----------------------------------------------


def test_raw_calls_and_content_blocks_go_with_their_calls() -> None:
    calls = [{"name": "task", "args": {}, "id": str(n)} for n in range(3)]
    message = AIMessage(
        content=[
            {"type": "text", "text": "Working."},
            *({"type": "tool_use", "id": str(n), "name": "task", "input": {}} for n in range(2)),
            {"type": "function_call", "id": "fc_2", "call_id": "2", "name": "task"},
        ],
        id="m",
        tool_calls=calls,
        additional_kwargs={
            "tool_calls": [{"id": str(n), "function": {"name": "task"}} for n in range(3)],
            "refusal": None,
        },
    )
    cut = remove_tool_calls(message, lambda c: c["id"] != "0")
    assert cut.id == "m"
    assert [c["id"] for c in cut.tool_calls] == ["0"]
    assert [c["id"] for c in cut.additional_kwargs["tool_calls"]] == ["0"]
    assert cut.content == message.content[:2]
    bare = remove_tool_calls(message, lambda _: True)
    assert bare.additional_kwargs == {"refusal": None}
    assert bare.content == message.content[:1]
    assert append_note(bare, "note").text == "Working.note"
    assert len(message.tool_calls) == 3


def test_a_message_without_dropped_calls_is_returned_unchanged() -> None:
    message = AIMessage("x", tool_calls=[{"name": "ls", "args": {}, "id": "1"}])
    assert remove_tool_calls(message, lambda c: c["name"] == "task") is message
