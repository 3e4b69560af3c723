"""Turns that repeat their calls: the model gets a warning, then must answer."""

from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from langchain_core.messages import AIMessage, AnyMessage, HumanMessage, ToolMessage
from pydantic import ValidationError

from agent.config import LoopDetectionConfig
from agent.locales.en import ENGLISH
from agent.middleware.loop_detection import STOP_MESSAGE, count_calls
from agent.paths import OUTPUTS, WORKSPACE
from tests.agent.agent_harness import AgentHarness, open_agent
from tests.fakes.model import FakeModelServer, ModelReply, ToolCall
from tests.fakes.scripted import ScriptedChatModel

LIST = {"path": WORKSPACE, "description": "look"}


def looking(number: int, text: str = "", **args: object) -> ModelReply:
    return ModelReply(
        text=text, calls=(ToolCall(name="ls", args={**LIST, **args}, id=f"c{number}"),)
    )


def warnings(prompt: list[Any]) -> list[str]:
    return [m.text for m in prompt if m.name == "loop_warning"]


def executed(messages: list[Any]) -> int:
    return sum(isinstance(message, ToolMessage) for message in messages)


async def test_warned_at_three_and_stopped_at_five(tmp_path: Path) -> None:
    model = ScriptedChatModel.playing(*[looking(n) for n in range(5)], "There is nothing.")
    async with open_agent(tmp_path, model) as harness:
        messages = await harness.say("look")
        state = await harness.state()
    assert [len(warnings(prompt)) for prompt in model.prompts] == [0, 0, 0, 1, 1, 1]
    assert "3 times" in warnings(model.prompts[3])[0]
    assert warnings(model.prompts[5]) == [STOP_MESSAGE]
    assert executed(messages) == 4
    assert messages[-1].text == "There is nothing."
    assert not [m for m in state["messages"] if m.name == "loop_warning"]


async def test_the_warning_follows_the_results(tmp_path: Path) -> None:
    model = ScriptedChatModel.playing(*[looking(n) for n in range(3)], "Enough.")
    async with open_agent(tmp_path, model) as harness:
        await harness.say("look")
    last = model.prompts[-1]
    assert isinstance(last[-1], HumanMessage)
    assert isinstance(last[-2], ToolMessage)


async def test_the_order_of_arguments_and_calls_does_not_matter(tmp_path: Path) -> None:
    def both(number: int) -> ModelReply:
        here = ToolCall(name="ls", args={"path": WORKSPACE, "description": ""}, id=f"a{number}")
        there = ToolCall(name="ls", args={"description": "", "path": OUTPUTS}, id=f"b{number}")
        return ModelReply(calls=(here, there) if number % 2 else (there, here))

    model = ScriptedChatModel.playing(*[both(n) for n in range(5)], "Enough.")
    async with open_agent(tmp_path, model) as harness:
        messages = await harness.say("look")
    assert executed(messages) == 8
    assert messages[-1].text == "Enough."


async def test_a_call_among_others_is_counted_too(tmp_path: Path) -> None:
    def with_other(number: int) -> ModelReply:
        same = ToolCall(name="ls", args=LIST, id=f"a{number}")
        other = ToolCall(name="ls", args={**LIST, "description": str(number)}, id=f"b{number}")
        return ModelReply(calls=(same, other))

    model = ScriptedChatModel.playing(*[with_other(n) for n in range(5)], "Enough.")
    async with open_agent(tmp_path, model) as harness:
        messages = await harness.say("look")
    assert executed(messages) == 8
    assert messages[-1].text == "Enough."


async def test_many_different_calls_of_one_tool_are_no_loop(tmp_path: Path) -> None:
    """Subagents may take 100 turns."""
    calls = [
        ToolCall(name="ls", args={**LIST, "description": str(n)}, id=f"c{n}") for n in range(60)
    ]
    script = [ModelReply(calls=tuple(calls[start : start + 5])) for start in range(0, 60, 5)]
    model = ScriptedChatModel.playing(*script, "Done.")
    async with open_agent(tmp_path, model) as harness:
        messages = await harness.say("look")
    assert executed(messages) == 60
    assert messages[-1].text == "Done."
    assert not [word for prompt in model.prompts for word in warnings(prompt)]


async def test_different_calls_and_new_turns_and_other_threads_are_no_loop(tmp_path: Path) -> None:
    script: list[Any] = [looking(n, description=str(n)) for n in range(6)]
    again: list[Any] = [looking(1), looking(2), "b"] * 3
    model = ScriptedChatModel.playing(*script, "a", *again)
    async with open_agent(tmp_path, model) as harness:
        await harness.say("look")
        await harness.say("again")
        await harness.say("again")
        await harness.say("again", thread="another")
    assert not [word for prompt in model.prompts for word in warnings(prompt)]


async def test_a_model_that_will_not_stop_is_stopped(tmp_path: Path) -> None:
    model = ScriptedChatModel.playing(*[looking(n, "Let me look. ") for n in range(6)])
    async with open_agent(tmp_path, model) as harness:
        messages = await harness.say("look")
        assert len(model.prompts) == 6  # five with tools, then one without
        assert (await harness.say("and now?"))[-1].text == "(done)"
    assert executed(messages) == 4
    said = [m.text for m in messages if isinstance(m, AIMessage)]
    assert said == ["Let me look. "] * 6
    assert not any(m.tool_calls for m in messages[-2:] if isinstance(m, AIMessage))
    # The model gets the two answers at the end of the first turn as one, because strict templates reject consecutive
    # ones.
    types = [message.type for message in model.prompts[-1]]
    assert all(pair != ("ai", "ai") for pair in pairwise(types))
    assert "Let me look. \n\nLet me look. " in [message.text for message in model.prompts[-1]]


async def test_a_model_that_still_answers_nothing_gets_a_fallback_text(tmp_path: Path) -> None:
    model = ScriptedChatModel.playing(*[looking(n) for n in range(9)])
    async with open_agent(tmp_path, model) as harness:
        messages = await harness.say("look")
    assert messages[-1].text == ENGLISH.loop_detected
    assert isinstance(messages[-1], AIMessage)
    assert not messages[-1].tool_calls


async def test_one_tool_too_often(tmp_path: Path) -> None:
    config = {"loop_detection": {"tool_freq_warn": 3, "tool_freq_hard_limit": 4}}
    script = [looking(n, description=str(n)) for n in range(5)]
    model = ScriptedChatModel.playing(*script, "So far.")
    async with open_agent(tmp_path, model, config) as harness:
        messages = await harness.say("look")
    assert executed(messages) == 4
    assert messages[-1].text == "So far."
    assert "ls 3 times" in warnings(model.prompts[3])[0]


async def test_it_can_be_switched_off(tmp_path: Path) -> None:
    model = ScriptedChatModel.playing(*[looking(n) for n in range(8)], "Done.")
    async with open_agent(tmp_path, model, {"loop_detection": {"enabled": False}}) as harness:
        assert executed(await harness.say("look")) == 8


async def test_the_model_s_tools_stay_named_but_closed(tmp_path: Path) -> None:
    found = await _last_choice(tmp_path)
    assert found == "none"


async def _last_choice(home_folder: Path) -> object:
    """Return the tool choice of the last request that a real model class sends."""
    async with FakeModelServer() as server:
        call = ToolCall("ls", LIST)
        server.reply(*[ModelReply(calls=(call,))] * 5, "Enough.")
        entry = {"name": "fake", "use": "langchain_openai:ChatOpenAI", "model": "fake"}
        entry |= {"api_key": "test", "base_url": server.base_url}
        config = {"models": [entry], "memory": {"enabled": False}}
        async with open_agent(home_folder, ScriptedChatModel.playing(), config) as harness:
            await _say(harness)
        assert server.requests[-1].tool_names
        return server.requests[-1].body["tool_choice"]


async def _say(harness: AgentHarness) -> None:
    messages = await harness.say("look", model_name="fake")
    assert messages[-1].text == "Enough."


def test_only_the_window_counts() -> None:
    def called(number: int) -> AIMessage:
        return AIMessage("", tool_calls=[{"name": "ls", "args": {"n": number}, "id": "x"}])

    messages: list[AnyMessage] = [
        HumanMessage("go"),
        called(1),
        *[called(n) for n in range(2, 9)],
        called(1),
    ]
    assert max(count_calls(messages, 3).same.values()) == 1
    assert max(count_calls(messages, 20).same.values()) == 2
    assert count_calls(messages, 3).tools["ls"] == 9


@pytest.mark.parametrize(
    "section",
    [
        {"warn_threshold": 6},
        {"tool_freq_warn": 60, "tool_freq_hard_limit": 50},
        {"window_size": 4},
        {"hard_limit": 0},
    ],
)
def test_limits_that_contradict_each_other_are_refused(section: dict[str, int]) -> None:
    with pytest.raises(ValidationError):
        LoopDetectionConfig.model_validate(section)
