"""Turns that use up their steps: the last model call gets a reminder and answers before the graph would fail."""

from pathlib import Path
from typing import Any

from langchain_core.messages import HumanMessage
from langchain_core.runnables import RunnableConfig

from agent.locales.en import ENGLISH
from agent.middleware.turn_limit import LAST_TURN_REMINDER
from agent.paths import WORKSPACE
from tests.agent.agent_harness import AgentHarness, open_agent
from tests.agent.plain_agent import THREAD
from tests.fakes.model import ModelReply, ToolCall
from tests.fakes.scripted import ScriptedChatModel


def looking(number: int) -> ModelReply:
    args = {"path": f"{WORKSPACE}/{number}"}
    return ModelReply(calls=(ToolCall(name="ls", args=args, id=f"c{number}"),))


async def say(harness: AgentHarness, said: str, steps: int) -> list[Any]:
    config: RunnableConfig = {"configurable": {"thread_id": THREAD}, "recursion_limit": steps}
    graph = await harness.factory.graph_for(config)
    return list((await graph.ainvoke({"messages": [HumanMessage(said)]}, config))["messages"])


def told(model: ScriptedChatModel) -> list[bool]:
    return [prompt[-1].text == LAST_TURN_REMINDER for prompt in model.prompts]


async def test_the_last_step_answers_with_what_there_is(tmp_path: Path) -> None:
    model = ScriptedChatModel.playing(*map(looking, range(3)), "So far: nothing.")
    async with open_agent(tmp_path, model) as harness:
        assert (await say(harness, "look everywhere", steps=8))[-1].text == "So far: nothing."
        assert told(model) == [False, False, False, True]
        assert LAST_TURN_REMINDER not in str((await harness.state())["messages"])


async def test_calls_beyond_the_limit_do_not_run_and_the_next_turn_has_its_own_steps(
    tmp_path: Path,
) -> None:
    model = ScriptedChatModel.playing(*map(looking, range(3)), looking(4), "Ready.")
    async with open_agent(tmp_path, model) as harness:
        assert (await say(harness, "look", steps=6))[-1].text == ENGLISH.step_limit_reached
        assert (await say(harness, "and?", steps=6))[-1].text == "Ready."
    assert told(model) == [False, False, True, False, False]
