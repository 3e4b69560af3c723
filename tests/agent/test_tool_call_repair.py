"""Answers with bad calls: invalid JSON, truncated, without an id, or with names that providers reject."""

import re
from pathlib import Path
from typing import Any

import pytest
from langchain_core.messages import AIMessage, AnyMessage, HumanMessage, ToolMessage
from langchain_core.messages.tool import invalid_tool_call

from agent.middleware.tool_call_repair import CUT_OFF, UNKNOWN_TOOL, repair_message
from agent.paths import OUTPUTS, WORKSPACE
from tests.agent.agent_harness import open_agent
from tests.agent.plain_agent import CONFIG
from tests.fakes.model import FakeModelServer, ModelReply, ToolCall
from tests.fakes.scripted import ScriptedChatModel

LOOK = {"path": WORKSPACE, "description": "look"}
WRITE = {"path": f"{OUTPUTS}/a.txt", "content": "half of it"}


def results(messages: list[AnyMessage]) -> list[ToolMessage]:
    return [message for message in messages if isinstance(message, ToolMessage)]


def test_sound_answers_are_left_alone() -> None:
    for message in (
        AIMessage("hi"),
        AIMessage("", tool_calls=[{"name": "ls", "args": {}, "id": "1"}]),
        AIMessage("cut", response_metadata={"finish_reason": "length"}),
    ):
        assert repair_message(message) is message


async def test_malformed_json_arguments_are_reported_to_the_model(tmp_path: Path) -> None:
    async with FakeModelServer() as server:
        server.reply(ModelReply(calls=(ToolCall("ls", '{"path": nowhere}}', "a"),)), "Then so.")
        served = {"use": "langchain_openai:ChatOpenAI", "model": "m", "api_key": "k"}
        served["base_url"] = server.base_url
        async with open_agent(tmp_path, ScriptedChatModel.playing(), entry=served) as harness:
            messages = await harness.say("look")
            state = await harness.state()
    told = results(messages)
    assert [message.status for message in told] == ["error"]
    assert "Expecting value at line 1, column 10 (character 9)" in told[0].text
    assert '{"path": <<here>>nowhere}}' in told[0].text
    assert messages[-1].text == "Then so."
    assert not any(getattr(message, "invalid_tool_calls", ()) for message in state["messages"])
    assert server.requests[1].messages[-1]["tool_call_id"] == "a"


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ('{"path": "/a", "line": 1 "end": 2}', "Expecting ',' delimiter at line 1, column 26"),
        ("{'path': '/a'}", "Expecting property name enclosed in double quotes at line 1, column 2"),
        ('{\n"path": "/a",\n"line": one}', "Expecting value at line 3, column 9"),
        ('["/a"]', "They must be one JSON object."),
        ('"' + "x" * 20_000, "Unterminated string"),  # langchain takes quadratic time here
    ],
)
@pytest.mark.parametrize("streams", [True, False])
async def test_the_model_reads_where_its_json_breaks_and_repairs_it(
    tmp_path: Path, arguments: str, expected: str, *, streams: bool
) -> None:
    given: list[Any] = [arguments, LOOK]
    async with FakeModelServer() as server:
        bad, good = (ToolCall("ls", args, f"c{n}") for n, args in enumerate(given))
        server.reply(ModelReply(calls=(bad,)), ModelReply(calls=(good,)), "Done.")
        served: dict[str, Any] = {
            "use": "langchain_openai:ChatOpenAI",
            "model": "m",
            "api_key": "k",
        }
        served |= {"base_url": server.base_url, "streaming": streams}
        async with open_agent(tmp_path, ScriptedChatModel.playing(), entry=served) as harness:
            messages = await harness.say("look")
    first, second = results(messages)
    assert expected in first.text
    assert len(first.text) < 700
    assert (first.status, second.status) == ("error", "success")


async def test_half_a_call_is_not_made(tmp_path: Path) -> None:
    look = ToolCall(name="ls", args=LOOK, id="a")
    write = ToolCall(name="write_file", args=WRITE, id="b")
    cut = ModelReply(calls=(look, write), finish_reason="length")
    model = ScriptedChatModel.playing(cut, "In parts, then.")
    async with open_agent(tmp_path, model) as harness:
        messages = await harness.say("write")
        assert not (harness.folders().outputs / "a.txt").exists()
    assert [message.text for message in results(messages)] == ["(empty)", CUT_OFF]
    assert messages[-1].text == "In parts, then."


@pytest.mark.parametrize("given", ["", "functions.ls <|x|>", "n" * 200])
async def test_names_that_no_provider_takes_back(tmp_path: Path, given: str) -> None:
    model = ScriptedChatModel.playing(
        ModelReply(calls=(ToolCall(name=given, args={}, id="a"),)), "So."
    )
    async with open_agent(tmp_path, model) as harness:
        messages = await harness.say("look")
    names = [
        call["name"] for m in model.prompts[1] if isinstance(m, AIMessage) for call in m.tool_calls
    ]
    assert len(names) == 1
    assert re.fullmatch(r"[A-Za-z0-9_-]{1,64}", names[0])
    assert "is not a valid tool" in results(messages)[0].text
    assert results(messages)[0].name == names[0]


@pytest.mark.parametrize("ids", [("",), ("a", "a"), ("", "")])
async def test_calls_without_an_id_of_their_own_get_one(
    tmp_path: Path, ids: tuple[str, ...]
) -> None:
    calls = tuple(ToolCall(name="ls", args=LOOK, id=given) for given in ids)
    model = ScriptedChatModel.playing(ModelReply(calls=calls), "Nothing there.")
    async with open_agent(tmp_path, model) as harness:
        await harness.say("look")
    shown: list[Any] = model.prompts[1]
    made = [call["id"] for m in shown if isinstance(m, AIMessage) for call in m.tool_calls]
    assert len(set(made)) == len(ids)
    assert all(made)
    assert [(m.tool_call_id, m.text) for m in results(shown)] == [(one, "(empty)") for one in made]


async def test_a_thread_that_holds_such_calls_works_again(tmp_path: Path) -> None:
    model = ScriptedChatModel.playing("Here I am.")
    nameless = AIMessage("", tool_calls=[{"name": "", "args": {}, "id": None}])
    async with open_agent(tmp_path, model) as harness:
        graph = await harness.factory.graph_for(CONFIG)
        said = [HumanMessage("hi"), nameless, HumanMessage("there?")]
        await graph.ainvoke({"messages": said}, CONFIG)
    shown: list[Any] = model.prompts[0]
    assert [message.type for message in shown] == ["system", "human", "ai", "tool", "human"]
    (call,) = shown[2].tool_calls
    assert call["name"] == UNKNOWN_TOOL
    assert results(shown)[0].tool_call_id == call["id"]


def test_the_provider_s_own_form_of_a_broken_call_is_taken_out() -> None:
    broken = invalid_tool_call(name="ls", args="{", id="a", error="no end")
    message = AIMessage(
        [
            {"type": "text", "text": "hm"},
            {"type": "tool_use", "id": "a", "name": "ls", "input": "{"},
        ],
        invalid_tool_calls=[broken],
        additional_kwargs={
            "tool_calls": [{"id": "a", "function": {"name": "ls", "arguments": "{"}}]
        },
    )
    repaired = repair_message(message)
    assert isinstance(repaired, AIMessage)
    assert repaired.content == [{"type": "text", "text": "hm"}]
    assert "tool_calls" not in repaired.additional_kwargs
    assert [(call["id"], call["args"]) for call in repaired.tool_calls] == [("a", {})]
    assert repair_message(repaired) is repaired
