"""Skills in the whole agent: the prompt, reading them, and changes."""

import json
from pathlib import Path
from uuid import uuid4

import pytest
from langchain_core.messages import AnyMessage
from langchain_core.runnables import RunnableConfig

from agent.paths import SKILLS
from agent.sandbox.bubblewrap import probe_bubblewrap
from agent.skills.loader import SkillSnapshot
from tests.agent.agent_harness import AgentHarness, open_agent
from tests.fakes.model import ModelReply, ToolCall
from tests.fakes.scripted import ScriptedChatModel

FAULT = probe_bubblewrap()
needs_bubblewrap = pytest.mark.skipif(FAULT is not None, reason=f"bubblewrap: {FAULT}")

LOCATION = f"{SKILLS}/custom/poems/SKILL.md"


def put(folder: Path, name: str, *lines: str, description: str = "Does it.") -> Path:
    """Write a skill into a folder."""
    folder.mkdir(parents=True, exist_ok=True)
    head = (f"name: {name}", f"description: {description}", *lines)
    file = folder / "SKILL.md"
    file.write_text("---\n" + "\n".join(head) + "\n---\n\nFirst, breathe.\n")
    return file


def call(name: str, args: dict[str, object]) -> ToolCall:
    return ToolCall(name=name, args=args, id=f"call-{uuid4()}")


def custom(home: Path) -> Path:
    return home / "skills" / "custom"


def prompt_of(model: ScriptedChatModel) -> str:
    """Return the agent's newest system prompt. Models are also called for other tasks, such as memory."""
    systems = (prompt[0].text for prompt in reversed(model.prompts) if prompt[0].type == "system")
    return next(text for text in systems if text.startswith("You are Parley"))


async def shelf_of(harness: AgentHarness) -> SkillSnapshot:
    return await harness.services.skills.load()


async def test_the_prompt_lists_skills_and_the_agent_reads_them(tmp_path: Path) -> None:
    put(custom(tmp_path) / "poems", "poems", description="Writes poems & songs")
    read = ModelReply(calls=(call("read_file", {"path": LOCATION}),))
    listing = ModelReply(calls=(call("ls", {"path": SKILLS}),))
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
    model = ScriptedChatModel.playing(ModelReply(calls=calls), "No.")
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


def writing(path: str) -> ToolCall:
    return call("write_file", {"path": path, "content": "x"})


async def tool_results(home: Path, *turns: ModelReply | str) -> list[str]:
    """Return the results of scripted tool calls. Each text ends a run."""
    model = ScriptedChatModel.playing(*turns)
    messages: list[AnyMessage] = []
    async with open_agent(home, model, {"skills": {"path": str(home / "none")}}) as agent:
        for turn in turns:
            if isinstance(turn, str):
                messages = await agent.say("go on")
    return [message.text for message in messages if message.type == "tool"]


async def test_an_enabled_skill_restricts_nothing_until_it_is_read(tmp_path: Path) -> None:
    put(custom(tmp_path) / "poems", "poems", "metadata: {parley-only-tools: str_replace}")
    assert await tool_results(tmp_path, ModelReply(calls=(writing("a"),)), "Done.") == ["OK"]


@pytest.mark.parametrize(
    ("declared", "is_allowed"),
    [
        ([None], True),
        (["str_replace"], False),
        ([""], False),
        (["str_replace", "write_file"], True),
        (["str_replace", None], False),
        (["str_replace Write(x:*)"], True),
        (["str_replace Bash(git:*)"], False),
    ],
)
async def test_only_tools_of_the_skills_in_use_are_allowed(
    tmp_path: Path, declared: list[str | None], *, is_allowed: bool
) -> None:
    reads = []
    for number, tools in enumerate(declared):
        lines = () if tools is None else (f'metadata: {{parley-only-tools: "{tools}"}}',)
        put(custom(tmp_path) / f"s{number}", f"s{number}", *lines)
        reads.append(call("read_file", {"path": f"{SKILLS}/custom/s{number}/./SKILL.md"}))
    *_, written, listed = await tool_results(
        tmp_path,
        ModelReply(calls=tuple(reads)),
        ModelReply(calls=(writing("a"), call("ls", {"path": "/mnt/user-data/workspace"}))),
        "Done.",
    )
    if is_allowed:
        assert written == "OK"
    else:
        assert written.startswith(
            "Error: The skill in use (s0) does not allow the tool 'write_file'"
        )
    assert not listed.startswith("Error")


async def test_a_skill_with_bash_has_the_tools_for_its_processes(tmp_path: Path) -> None:
    put(custom(tmp_path) / "poems", "poems", 'metadata: {parley-only-tools: "Bash"}')
    results = await tool_results(
        tmp_path,
        ModelReply(calls=(call("read_file", {"path": LOCATION}),)),
        ModelReply(calls=(call("kill_bash", {"process_id": "b1"}),)),
        "Done.",
    )
    assert "does not allow" not in results[-1]


async def test_a_skill_is_in_use_until_the_next_message(tmp_path: Path) -> None:
    put(custom(tmp_path) / "poems", "poems", 'metadata: {parley-only-tools: ""}')
    read = call("read_file", {"path": LOCATION})
    results = await tool_results(
        tmp_path,
        ModelReply(calls=(read, writing("a"))),  # both calls were made before the skill was read
        ModelReply(calls=(writing("b"),)),
        "Done.",
        ModelReply(calls=(writing("c"),)),
        "Done.",
    )
    assert [text[:6] for text in results[1:]] == ["OK", "Error:", "OK"]


async def test_allowed_tools_restrict_nothing(tmp_path: Path) -> None:
    put(custom(tmp_path) / "poems", "poems", "allowed-tools: Bash(git:*) Read")
    read = call("read_file", {"path": LOCATION})
    results = await tool_results(
        tmp_path, ModelReply(calls=(read,)), ModelReply(calls=(writing("a"),)), "Done."
    )
    assert results[1] == "OK"


@needs_bubblewrap
async def test_the_folders_of_the_standard_are_there_for_the_agent(tmp_path: Path) -> None:
    """These are scripts/, references/ and assets/, with paths relative to the skill's folder."""
    file = put(custom(tmp_path) / "poems", "poems")
    for name, content in (
        ("scripts/verse.sh", 'cat "$(dirname "$0")/../assets/verse.txt"'),
        ("references/RHYME.md", "Rhyme with care."),
        ("assets/verse.txt", "Roses are red"),
    ):
        (file.parent / name).parent.mkdir()
        (file.parent / name).write_text(content)
    folder = LOCATION.removesuffix("/SKILL.md")
    calls = (
        call("read_file", {"path": f"{folder}/references/RHYME.md"}),
        call("bash", {"command": f"bash {folder}/scripts/verse.sh"}),
    )
    model = ScriptedChatModel.playing(ModelReply(calls=calls), "Done.")
    async with open_agent(tmp_path, model, {"sandbox": {"use": "bubblewrap"}}) as agent:
        messages = await agent.say("go")
    texts = [message.text for message in messages if message.type == "tool"]
    assert "Rhyme with care." in texts[0]
    assert texts[1] == "Roses are red"
