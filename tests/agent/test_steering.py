"""Messages that arrive while the agent works: it gets them before the next model call, and they stay in order."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from langchain_core.messages import AnyMessage, HumanMessage

from agent.options import STEERING_SOURCE_KEY
from agent.paths import WORKSPACE
from tests.agent.agent_harness import open_agent
from tests.fakes.model import ModelReply, ToolCall
from tests.fakes.scripted import ScriptedChatModel

LOOK = ModelReply(text="I look.", calls=(ToolCall(name="ls", args={"path": WORKSPACE}, id="l"),))
NOTE = HumanMessage("in German, please", id="m2", additional_kwargs={"steering": True})


class InjectionQueue:
    """The messages that wait for a run. The n-th call returns the n-th list."""

    def __init__(self, said: AnyMessage, *, at: int) -> None:
        self._said = said
        self._at = at
        self.asked = 0

    def __call__(self) -> list[AnyMessage]:
        self.asked += 1
        return [self._said] if self.asked == self._at else []


def context(take: Callable[[], list[AnyMessage]], **more: object) -> dict[str, Any]:
    return {STEERING_SOURCE_KEY: take, **more}


def kinds(messages: list[AnyMessage]) -> list[str]:
    return [message.type for message in messages]


async def test_injected_messages_arrive_between_two_calls(tmp_path: Path) -> None:
    model = ScriptedChatModel.playing(LOOK, "Nichts da.", "Gern.")
    async with open_agent(tmp_path, model) as harness:
        said = await harness.say("look", **context(InjectionQueue(NOTE, at=2)))
        assert kinds(said) == ["human", "ai", "tool", "human", "ai"]
        assert (said[3].id, said[3].text) == ("m2", "in German, please")
        assert said[3].additional_kwargs == {"steering": True}
        assert [m.text for m in model.prompts[1][-2:]][-1] == "in German, please"
        again = await harness.say("thanks")
        assert kinds(again)[-4:] == ["human", "ai", "human", "ai"]
        assert [m.text for m in model.prompts[2] if m.type == "human"] == [
            "look",
            "in German, please",
            "thanks",
        ]


async def test_injected_messages_arrive_before_the_first_call_and_in_order(tmp_path: Path) -> None:
    model = ScriptedChatModel.playing("Both.")
    waiting = [HumanMessage("one", id="a"), HumanMessage("two", id="b")]

    def take() -> list[AnyMessage]:
        taken: list[AnyMessage] = [*waiting]
        waiting.clear()
        return taken

    async with open_agent(tmp_path, model) as harness:
        said = await harness.say("go", **context(take))
        assert [m.text for m in said] == ["go", "one", "two", "Both."]
        state = await harness.state()
        assert [m.id for m in state["messages"]][1:3] == ["a", "b"]


async def test_messages_taken_by_a_failed_call_are_in_no_thread(tmp_path: Path) -> None:
    model = ScriptedChatModel.playing(LOOK, ValueError("broken"))
    async with open_agent(tmp_path, model) as harness:
        with pytest.raises(ValueError, match="broken"):
            await harness.say("look", **context(InjectionQueue(NOTE, at=2)))
        assert kinds((await harness.state())["messages"]) == ["human", "ai", "tool"]


async def test_subagents_get_no_injected_messages(tmp_path: Path) -> None:
    brief = {"description": "d", "prompt": "p", "subagent_type": "general-purpose"}
    delegate = ModelReply(calls=(ToolCall(name="task", args=brief, id="t"),))
    model = ScriptedChatModel.playing(delegate, "Found it.", "Here it is.")
    take = InjectionQueue(NOTE, at=2)
    async with open_agent(tmp_path, model) as harness:
        said = await harness.say("find", **context(take, subagent_enabled=True))
    assert len(model.prompts) == 3
    assert take.asked == 2
    assert kinds(said) == ["human", "ai", "tool", "human", "ai"]
    assert "m2" not in [m.id for m in model.prompts[1]]
