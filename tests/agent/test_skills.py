"""Skills in the whole agent: the prompt, reading them, and changes."""

import json
from pathlib import Path
from uuid import uuid4

import pytest
from langchain_core.runnables import RunnableConfig

from agent.paths import SKILLS
from agent.skills.loader import SkillSnapshot
from tests.agent.agent_harness import AgentHarness, open_agent
from tests.fakes.scripted import ScriptedCall, ScriptedChatModel, ScriptedTurn

LOCATION = f"{SKILLS}/custom/poems/SKILL.md"


def put(folder: Path, name: str, *lines: str, description: str = "Does it.") -> Path:
    """Write a skill into a folder."""
    folder.mkdir(parents=True, exist_ok=True)
    head = (f"name: {name}", f"description: {description}", *lines)
    file = folder / "SKILL.md"
    file.write_text("---\n" + "\n".join(head) + "\n---\n\nFirst, breathe.\n")
    return file


def call(name: str, args: dict[str, object]) -> ScriptedCall:
    return ScriptedCall(name=name, args=args, id=f"call-{uuid4()}")


def custom(home: Path) -> Path:
    return home / "skills" / "custom"


def prompt_of(model: ScriptedChatModel) -> str:
    """Return the agent's newest system prompt; models are asked for other things too, like memory."""
    systems = (prompt[0].text for prompt in reversed(model.prompts) if prompt[0].type == "system")
    return next(text for text in systems if text.startswith("You are Parley"))


async def shelf_of(harness: AgentHarness) -> SkillSnapshot:
    return await harness.services.skills.load()


async def test_the_prompt_lists_skills_and_the_agent_reads_them(tmp_path: Path) -> None:
    put(custom(tmp_path) / "poems", "poems", description="Writes poems & songs")
    read = ScriptedTurn(calls=(call("read_file", {"path": LOCATION}),))
    listing = ScriptedTurn(calls=(call("ls", {"path": SKILLS}),))
    model = ScriptedChatModel.playing(read, listing, "A poem.")
    async with open_agent(tmp_path, model) as agent:
        messages = await agent.say("write me a poem")
    prompt = prompt_of(model)
    assert prompt.count("<skill_system>") == 1
    assert (
        "<skill><name>poems</name><description>Writes poems &amp; songs</description>"
        f"<location>{LOCATION}</location></skill>"
    ) in prompt
    assert "First, breathe." in messages[2].text
    assert f"{SKILLS}/custom/poems/" in messages[4].text
    assert "First, breathe." not in prompt


async def test_a_disabled_skill_is_invisible_and_unreadable(tmp_path: Path) -> None:
    put(custom(tmp_path) / "poems", "poems")
    put(custom(tmp_path) / "prose", "prose")
    (tmp_path / "e.json").write_text(json.dumps({"skills": {"poems": {"enabled": False}}}))
    calls = (
        call("read_file", {"path": LOCATION}),
        call("ls", {"path": SKILLS}),
        call("grep", {"path": f"{SKILLS}/custom/prose", "pattern": "name"}),
        call("glob", {"path": SKILLS, "pattern": "**/SKILL.md"}),
    )
    model = ScriptedChatModel.playing(ScriptedTurn(calls=calls), "No.")
    async with open_agent(tmp_path, model, extensions=tmp_path / "e.json") as agent:
        messages = await agent.say("look around")
    assert "poems" not in prompt_of(model)
    seen = [message.text for message in messages[2:6]]
    assert seen[0].startswith("Error: ")
    assert "breathe" not in "".join(seen)
    assert all("custom/poems" not in text for text in seen[1:])
    assert "name: prose" in seen[2]
    assert str(tmp_path) not in "".join(seen)


async def test_the_next_run_sees_changes(tmp_path: Path) -> None:
    file = put(custom(tmp_path) / "poems", "poems")
    model = ScriptedChatModel.playing(*"12345")
    async with open_agent(tmp_path, model) as agent:
        config: RunnableConfig = {"configurable": {"thread_id": "t"}}
        first = await agent.factory.graph_for(config)
        assert await agent.factory.graph_for(config) is first
        await agent.services.skills.set_enabled("poems", on=False)
        await agent.say("one")
        assert "poems" not in prompt_of(model)
        await agent.services.skills.set_enabled("poems", on=True)
        put(file.parent, "poems", description="Writes odes.")
        await agent.say("two")
        assert "Writes odes." in prompt_of(model)
        put(custom(tmp_path) / "prose", "prose")
        await agent.say("three")
        assert "<name>prose</name>" in prompt_of(model)
        file.unlink()
        await agent.say("four")
        assert "poems" not in prompt_of(model)
    assert json.loads((tmp_path / "extensions_config.json").read_text()) == {
        "skills": {"poems": {"enabled": True}}
    }


async def test_loading_is_cheap_while_nothing_changes(tmp_path: Path) -> None:
    put(custom(tmp_path) / "poems", "poems")
    async with open_agent(tmp_path, ScriptedChatModel.playing()) as agent:
        assert await shelf_of(agent) is await shelf_of(agent)


@pytest.mark.parametrize(
    ("declared", "left"),
    [
        ([None, None], {"write_file", "str_replace", "ls", "read_file"}),
        (['["write_file"]', None], {"write_file", "ls", "read_file"}),
        (['["write_file"]', '["str_replace"]'], {"write_file", "str_replace", "ls", "read_file"}),
        (["[]", None], {"ls", "read_file"}),
    ],
    ids=["none", "one", "union", "empty"],
)
async def test_only_declared_tools_are_kept(
    tmp_path: Path, declared: list[str | None], left: set[str]
) -> None:
    for number, tools in enumerate(declared):
        lines = () if tools is None else (f"allowed-tools: {tools}",)
        put(custom(tmp_path) / f"s{number}", f"s{number}", *lines)
    model = ScriptedChatModel.playing()
    async with open_agent(tmp_path, model, {"skills": {"path": str(tmp_path / "none")}}) as agent:
        graph = await agent.factory.graph_for({"configurable": {"thread_id": "t"}})
        names = set(graph.nodes["tools"].bound.tools_by_name)  # type: ignore[attr-defined]
    asked = {"write_file", "str_replace", "ls", "read_file"}
    assert names & asked == left
    assert {"present_files", "ask_clarification"} <= names
