"""Plan mode: the list, its reminders, and that people never see them."""

from pathlib import Path
from typing import Any

import pytest
from langchain_core.messages import AIMessage, HumanMessage, ToolMessage
from langchain_core.runnables import RunnableConfig

from agent.locales.en import ENGLISH
from agent.middleware.todo_list import PARALLEL_CALLS_ERROR, PROMPT
from agent.paths import WORKSPACE
from agent.user_messages import PLAN_REMINDER
from tests.agent.agent_harness import AgentHarness, open_agent
from tests.agent.plain_agent import THREAD
from tests.eventually import eventually
from tests.fakes.model import ModelReply, ToolCall
from tests.fakes.scripted import ScriptedChatModel, registered

STEPS = {"first": "completed", "second": "in_progress", "third": "pending"}
QUIET = {"memory": {"enabled": False}}


def planning(number: int = 0, **steps: str) -> ModelReply:
    todos = [
        {"id": f"todo-{at}", "title": title, "status": status}
        for at, (title, status) in enumerate((steps or STEPS).items(), start=1)
    ]
    return ModelReply(calls=(ToolCall(name="write_todos", args={"todos": todos}, id=f"p{number}"),))


def reminders(prompt: list[Any]) -> list[str]:
    return [message.text for message in prompt if message.name == PLAN_REMINDER]


async def plan(harness: AgentHarness, said: str = "go") -> list[Any]:
    return await harness.say(said, is_plan_mode=True)


async def test_the_list_is_kept_in_plan_mode_alone(tmp_path: Path) -> None:
    done = dict.fromkeys(STEPS, "completed")
    model = ScriptedChatModel.playing(planning(), planning(1, **done), "All done.", "Hello.")
    async with open_agent(tmp_path, model, QUIET) as harness:
        messages = await plan(harness)
        assert messages[-1].text == "All done."
        state = await harness.state(is_plan_mode=True)
        assert state["todos"][0] == {"id": "todo-1", "title": "first", "status": "completed"}
        assert [todo["status"] for todo in state["todos"]] == ["completed"] * 3
        graph = await harness.factory.graph_for({"configurable": {"is_plan_mode": True}})
        assert set(graph.nodes) == {"__start__", "model", "tools"}
        assert graph is not await harness.factory.graph_for({})
        await harness.say("hi", thread="another")
    assert PROMPT in model.prompts[0][0].text
    assert PROMPT not in model.prompts[3][0].text
    assert not any(reminders(prompt) for prompt in model.prompts)


async def test_an_answer_with_open_steps_is_sent_back_twice_at_most(tmp_path: Path) -> None:
    model = ScriptedChatModel.playing(planning(), "Done.", "Really.", "I stop here.", "Never.")
    async with open_agent(tmp_path, model, QUIET) as harness:
        messages = await plan(harness)
    assert messages[-1].text == "I stop here."
    (first,), (second,) = reminders(model.prompts[2]), reminders(model.prompts[3])
    assert "- [in_progress] todo-2: second\n- [pending] todo-3: third" in first
    assert "todo-1" not in first
    assert second == first
    assert len(model.prompts) == 4
    assert [m.text for m in messages if isinstance(m, HumanMessage)] == ["go"]
    assert [m.text for m in messages if isinstance(m, AIMessage)][1:] == [
        *("Done.", "Really.", "I stop here.")
    ]


async def test_work_that_goes_on_after_a_reminder_counts_for_the_bound(tmp_path: Path) -> None:
    look = ModelReply(calls=(ToolCall(name="ls", args={"path": WORKSPACE}, id="l"),))
    model = ScriptedChatModel.playing(planning(), "Done.", look, "Done now.", "Enough.")
    async with open_agent(tmp_path, model, QUIET) as harness:
        messages = await plan(harness)
        assert messages[-1].text == "Enough."
        assert any(isinstance(m, ToolMessage) and m.name == "ls" for m in messages)
        assert len(model.prompts) == 5
        model._script.extend(
            [
                ModelReply(text="A"),
                ModelReply(text="B"),
                ModelReply(text="C"),
                ModelReply(text="D"),
            ]
        )
        assert (await plan(harness, "and now?"))[-1].text == "C"  # a new turn, two new reminders


@pytest.mark.parametrize(
    "left_over", [ModelReply(text="cut", finish_reason="tool_calls"), ModelReply()]
)
async def test_only_a_clean_answer_is_sent_back(tmp_path: Path, left_over: ModelReply) -> None:
    look = ModelReply(text="first", calls=(ToolCall(name="ls", args={"path": WORKSPACE}, id="l"),))
    model = ScriptedChatModel.playing(planning(), look, left_over, "asked for words")
    async with open_agent(tmp_path, model, QUIET) as harness:
        await plan(harness)
    assert not reminders(model.prompts[2])
    assert not reminders(model.prompts[-1]) or left_over == ModelReply()


async def test_a_model_that_cannot_be_reached_is_not_reminded(tmp_path: Path) -> None:
    model = ScriptedChatModel.playing(planning(), TimeoutError(), "Never.")
    config = {**QUIET, "llm_retry": {"max_attempts": 1}}
    async with open_agent(tmp_path, model, config) as harness:
        assert (await plan(harness))[-1].text == ENGLISH.model_timeout
    assert len(model.prompts) == 2


async def test_two_lists_at_once_are_refused_beside_other_calls(tmp_path: Path) -> None:
    one, two = planning(1).calls[0], planning(2).calls[0]
    look = ToolCall(name="ls", args={"path": WORKSPACE}, id="l")
    model = ScriptedChatModel.playing(ModelReply(calls=(one, look, two)), "I see.")
    async with open_agent(tmp_path, model, QUIET) as harness:
        messages = await plan(harness)
        assert (await harness.state(is_plan_mode=True)).get("todos") is None
    results = {m.tool_call_id: m for m in messages if isinstance(m, ToolMessage)}
    assert results["p1"].text == results["p2"].text == PARALLEL_CALLS_ERROR
    assert results["p1"].status == "error"
    assert results["l"].text == "(empty)"
    shown = [m.tool_call_id for m in model.prompts[1] if isinstance(m, ToolMessage)]
    assert shown == ["p1", "l", "p2"]


STEP = {"id": "todo-1", "title": "look", "status": "pending"}


@pytest.mark.parametrize(
    ("todos", "problem"),
    [
        ([{**STEP, "status": "soon"}], "status"),
        ([{"content": "look", "status": "pending"}], "title"),
        ([STEP, {**STEP, "title": "think"}], "'todo-1'"),
    ],
)
async def test_a_wrong_list_is_answered_with_what_is_wrong(
    tmp_path: Path, todos: list[dict[str, str]], problem: str
) -> None:
    bad = ToolCall(name="write_todos", args={"todos": todos}, id="b")
    model = ScriptedChatModel.playing(ModelReply(calls=(bad,)), "I see.")
    async with open_agent(tmp_path, model, QUIET) as harness:
        messages = await plan(harness)
        assert (await harness.state(is_plan_mode=True)).get("todos") is None
    assert problem in messages[2].text
    assert messages[2].text.startswith("Error")
    assert str(tmp_path) not in messages[2].text


async def test_a_list_that_was_summed_up_is_shown_again(tmp_path: Path) -> None:
    model = ScriptedChatModel.playing(planning(), *["Done."] * 600)
    writer = ScriptedChatModel.playing(*["Planned."] * 200)
    with registered(writer) as keys:
        summaries = {
            "enabled": True,
            "model_name": "writer",
            "trigger": {"type": "messages", "value": 5},
            "keep": {"value": 2},
        }
        config = {**QUIET, "summarization": summaries, "models": [{**keys, "name": "writer"}]}
        async with open_agent(tmp_path, model, config) as harness:
            await plan(harness)

            async def prompts_with_a_summary() -> list[Any]:
                await plan(harness, "and?")  # the summary is written concurrently
                return [prompt for prompt in model.prompts if prompt[1].name == "summary"]

            shown = (await eventually(prompts_with_a_summary))[0]
            state = await harness.state(is_plan_mode=True)
    assert shown[2].name == PLAN_REMINDER
    assert "- [completed] todo-1: first\n- [in_progress] todo-2: second" in shown[2].text
    assert not [m for m in state["messages"] if m.name in ("summary", PLAN_REMINDER)]


@pytest.mark.parametrize("todos", ["soon", [{"content": "look", "status": "pending"}], [1], {}])
async def test_steps_of_another_form_in_the_state_are_left_out(
    tmp_path: Path, todos: object
) -> None:
    """Clients of the API can write anything into the state."""
    model = ScriptedChatModel.playing("Done.")
    async with open_agent(tmp_path, model, QUIET) as harness:
        config: RunnableConfig = {"configurable": {"thread_id": THREAD, "is_plan_mode": True}}
        graph = await harness.factory.graph_for(config)
        await graph.aupdate_state(config, {"todos": todos})
        messages = await plan(harness)
    assert messages[-1].text == "Done."
    assert len(model.prompts) == 1
