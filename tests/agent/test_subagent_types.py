"""Types of subagents: their configuration, and the tools they get in the whole agent."""

from pathlib import Path
from typing import Any

import pytest
from langchain.tools import ToolRuntime
from langchain_core.tools import BaseTool, StructuredTool, tool
from pydantic import BaseModel, ValidationError

from agent.config import AgentConfig, SubagentsConfig
from agent.options import RunContext
from agent.subagents.subagent_types import (
    EXCLUDED_TOOLS,
    SubagentType,
    available_types,
    configured_types,
)
from tests.agent.agent_harness import open_agent
from tests.agent.plain_agent import THREAD
from tests.fakes.model import FakeModelServer, ModelReply, ToolCall
from tests.fakes.scripted import ScriptedChatModel


def kinds(**section: Any) -> dict[str, SubagentType]:  # noqa: ANN401
    return configured_types(SubagentsConfig.model_validate(section))


OWN = {"description": "Own.", "system_prompt": "You are mine."}


def test_the_built_in_kinds() -> None:
    general, bash = kinds().values()
    assert (general.name, general.max_turns, general.timeout_seconds) == (
        *("general-purpose", 100),
        900,
    )
    assert (general.tools, general.skills, general.model) == (None, None, "inherit")
    assert (bash.name, bash.max_turns) == ("bash", 60)
    assert bash.tools == ("bash", "ls", "read_file", "write_file", "str_replace")


def test_defaults_of_the_section_fill_built_in_kinds_only() -> None:
    found = kinds(timeout_seconds=60, max_turns=7, custom_agents={"own": OWN})
    assert (found["bash"].timeout_seconds, found["bash"].max_turns) == (60, 7)
    assert (found["own"].timeout_seconds, found["own"].max_turns) == (900, 50)


def test_a_custom_kind_replaces_a_built_in_one_and_overrides_hold_for_both() -> None:
    found = kinds(
        timeout_seconds=60,
        custom_agents={"bash": {**OWN, "max_turns": 5, "skills": ["s"]}},
        agents={
            "bash": {"timeout_seconds": 30, "skills": []},
            "general-purpose": {"max_turns": 9, "model": "m"},
        },
    )
    assert found["bash"].description == "Own."
    assert found["bash"].system_prompt.startswith("You are mine.")
    assert (found["bash"].timeout_seconds, found["bash"].max_turns) == (30, 5)
    assert found["bash"].skills == ()
    general = found["general-purpose"]
    assert (general.timeout_seconds, general.max_turns, general.model) == (60, 9, "m")


@pytest.mark.parametrize(
    ("section", "text"),
    [
        ({"agents": {"nobody": {}}}, "there is no subagent type named 'nobody'"),
        ({"agents": {"bash": {"max_turns": 0}}}, "subagents.agents.bash.max_turns"),
        ({"custom_agents": {"own": {"description": "x"}}}, "custom_agents.own.system_prompt"),
        ({"custom_agents": {"own": {**OWN, "model": "gpt"}}}, "there is no model named 'gpt'"),
        ({"timeout_seconds": 0}, "subagents.timeout_seconds"),
    ],
)
def test_mistakes_are_named(section: dict[str, Any], text: str) -> None:
    with pytest.raises(ValidationError) as caught:
        AgentConfig.model_validate({"subagents": section})
    assert text in str(caught.value)


def named(*names: str) -> list[BaseTool]:
    def nothing() -> str:
        return ""

    return [StructuredTool.from_function(nothing, name=name, description=name) for name in names]


def test_no_kind_gets_the_tools_of_the_lead_agent_alone() -> None:
    everything = named("ls", "web", *EXCLUDED_TOOLS)
    greedy = SubagentType(name="x", description="", system_prompt="", disallowed_tools=())
    assert [tool.name for tool in greedy.select_tools(everything)] == ["ls", "web"]
    asking = SubagentType(name="x", description="", system_prompt="", tools=("task", "ls"))
    assert [tool.name for tool in asking.select_tools(everything)] == ["ls"]
    denied = SubagentType(name="x", description="", system_prompt="", disallowed_tools=("web",))
    assert [tool.name for tool in denied.select_tools(everything)] == ["ls"]
    nothing = SubagentType(name="x", description="", system_prompt="", tools=())
    assert nothing.select_tools(everything) == []


def test_a_kind_with_bash_gets_the_tools_for_its_processes() -> None:
    everything = named("bash", "bash_output", "kill_bash", "web")
    bash = kinds()["bash"]
    assert [tool.name for tool in bash.select_tools(everything)] == [
        "bash",
        "bash_output",
        "kill_bash",
    ]


def test_bash_is_offered_where_there_is_a_tool_of_that_name() -> None:
    assert list(available_types(kinds(), named("ls"))) == ["general-purpose"]
    assert list(available_types(kinds(), named("ls", "bash"))) == ["general-purpose", "bash"]


# ---- in the whole agent --------------------------------------------------------------------------------


def entry(server: FakeModelServer) -> dict[str, Any]:
    return {
        "name": "server",
        "use": "langchain_openai:ChatOpenAI",
        "model": "fake",
        "api_key": "k",
        "base_url": server.base_url,
        "max_retries": 0,
    }


class TaskArguments(BaseModel):
    """Has an argument, because LangChain passes no runtime to a tool without any."""

    why: str = ""


@tool(args_schema=TaskArguments)
def whose(runtime: ToolRuntime, why: str = "") -> str:
    """Say for whom a run works."""
    caller = RunContext.from_runtime(runtime.context, runtime.config)
    return f"{caller.thread_id} {caller.user_id} {caller.memory_scope}"


WHOSE = {"name": "whose", "group": "web", "use": f"{__name__}:whose"}


def delegate(kind: str) -> ModelReply:
    args = {"description": "d", "prompt": "look around", "subagent_type": kind}
    return ModelReply(calls=(ToolCall(name="task", args=args, id="t"),))


async def test_a_custom_kind_has_its_prompt_tools_and_model(tmp_path: Path) -> None:
    lead = ScriptedChatModel.playing(delegate("reader"), delegate("general-purpose"), "ok")
    async with FakeModelServer() as server:
        server.reply("read", "done")
        reader = {**OWN, "tools": ["ls", "read_file", "task"], "model": "server"}
        config = {
            "models": [entry(server)],
            "sandbox": {"use": "local"},
            "subagents": {
                "custom_agents": {"reader": reader},
                "agents": {"general-purpose": {"model": "server"}},
            },
        }
        async with open_agent(tmp_path, lead, config) as harness:
            await harness.say("go", subagent_enabled=True)
    custom, general = server.requests
    assert custom.tool_names == ["ls", "read_file"]
    assert [m["role"] for m in custom.messages] == ["system", "user"]
    assert custom.messages[0]["content"].startswith("You are mine.")
    assert general.tool_names == ["ls", "read_file", "write_file", "str_replace", "glob", "grep"]


async def test_the_prompt_and_the_tool_are_there_only_when_asked_for(tmp_path: Path) -> None:
    lead = ScriptedChatModel.playing("a", "b", "c")
    config = {"subagents": {"custom_agents": {"reviewer": OWN}}, "sandbox": {"use": "local"}}
    async with open_agent(tmp_path, lead, config) as harness:
        plain = await harness.factory.graph_for({})
        asked = await harness.factory.graph_for({"configurable": {"subagent_enabled": True}})
        four = await harness.factory.graph_for(
            {"configurable": {"subagent_enabled": True, "max_concurrent_subagents": 9}}
        )
        await harness.say("one")
        await harness.say("two", subagent_enabled=True)
        await harness.say("three", subagent_enabled=True, max_concurrent_subagents=9)
    assert plain is not asked
    assert four is not asked
    without, three, most = (prompt[0].text for prompt in lead.prompts)
    assert "<delegation>" not in without
    assert "Subagent types: general-purpose, reviewer." in three
    assert "Up to 3 calls" in three
    assert "Up to 4 calls" in most


async def test_an_operator_can_switch_delegation_off(tmp_path: Path) -> None:
    lead = ScriptedChatModel.playing("a")
    async with open_agent(tmp_path, lead, {"subagents": {"enabled": False}}) as harness:
        plain = await harness.factory.graph_for({})
        assert (
            await harness.factory.graph_for({"configurable": {"subagent_enabled": True}}) is plain
        )


async def test_the_bash_kind_runs_commands_where_the_sandbox_does(tmp_path: Path) -> None:
    command = ToolCall(name="bash", args={"command": "echo $((6 * 7))"}, id="b")
    script = (delegate("bash"), ModelReply(calls=(command,)), "It says 42.", "ok")
    lead = ScriptedChatModel.playing(*script)
    config = {"sandbox": {"use": "local", "allow_host_bash": True}}
    async with open_agent(tmp_path, lead, config) as harness:
        messages = await harness.say("go", subagent_enabled=True)
    assert "Subagent types: general-purpose, bash." in lead.prompts[0][0].text
    assert lead.prompts[2][-1].text.strip() == "42"
    assert messages[2].text == "Task Succeeded. Result: It says 42."


@pytest.mark.parametrize("sees", [False, True])
async def test_a_subagent_looks_at_images_when_its_own_model_can(
    tmp_path: Path, *, sees: bool
) -> None:
    lead = ScriptedChatModel.playing(delegate("general-purpose"), "ok")
    async with FakeModelServer() as server:
        config = {
            "models": [{**entry(server), "supports_vision": sees}],
            "subagents": {"agents": {"general-purpose": {"model": "server"}}},
        }
        async with open_agent(tmp_path, lead, config, entry={"supports_vision": True}) as harness:
            await harness.say("go", subagent_enabled=True)
    assert ("view_image" in server.requests[0].tool_names) is sees


async def test_a_subagents_prompt_has_the_skills_of_its_type(tmp_path: Path) -> None:
    for name in ("alpha", "beta"):
        folder = tmp_path / "skills" / "custom" / name
        folder.mkdir(parents=True)
        text = f"---\nname: {name}\ndescription: The skill {name}.\n---\nDo it.\n"
        (folder / "SKILL.md").write_text(text)
    custom = {
        "some": {**OWN, "skills": ["beta"]},
        "none": {**OWN, "skills": []},
        "every": OWN,
    }
    script = [turn for name in custom for turn in (delegate(name), "done")]
    lead = ScriptedChatModel.playing(*script, "ok")
    async with open_agent(tmp_path, lead, {"subagents": {"custom_agents": custom}}) as harness:
        await harness.say("go", subagent_enabled=True)
    some, none, every = (prompt[0].text for prompt in lead.prompts[1:6:2])
    assert [f"skill {name}" in some for name in ("alpha", "beta")] == [False, True]
    assert "skill_system" not in none
    assert [f"skill {name}" in every for name in ("alpha", "beta")] == [True, True]


async def test_a_subagents_tools_know_the_runs_user(tmp_path: Path) -> None:
    call = ToolCall(name="whose", args={}, id="w")
    script = (delegate("general-purpose"), ModelReply(calls=(call,)), "Theirs.", "ok")
    lead = ScriptedChatModel.playing(*script)
    caller = {"user_id": "slack:T:U", "memory_scope": "person:slack:T:U"}
    async with open_agent(tmp_path, lead, {"tools": [WHOSE]}) as harness:
        await harness.say("go", subagent_enabled=True, **caller)
    assert lead.prompts[2][-1].text == f"{THREAD} slack:T:U person:slack:T:U"


async def test_a_subagent_has_no_tools_that_its_agent_has_not(tmp_path: Path) -> None:
    folder = tmp_path / "agents" / "narrow"
    folder.mkdir(parents=True)
    (folder / "config.yaml").write_text("{name: narrow, tool_groups: []}")
    async with FakeModelServer() as server:
        config = {
            "models": [entry(server)],
            "tools": [WHOSE],
            "subagents": {"agents": {"general-purpose": {"model": "server"}}},
        }
        script = (delegate("general-purpose"), "ok") * 2
        async with open_agent(tmp_path, ScriptedChatModel.playing(*script), config) as harness:
            await harness.say("go", subagent_enabled=True)
            await harness.say("go", subagent_enabled=True, agent_name="narrow")
    assert ["whose" in request.tool_names for request in server.requests] == [True, False]
