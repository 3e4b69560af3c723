"""For every tool, the model finds a needle in the middle of 1 MB of output by reading on."""

import re
from pathlib import Path
from typing import Any

import pytest
from langchain_core.tools import tool

from agent.paths import OUTPUTS, WORKSPACE
from agent.saved_texts import RESULTS
from tests.agent.agent_harness import AgentHarness, open_agent
from tests.agent.test_acp import entry
from tests.agent.test_mcp import written
from tests.fakes.mcp_stdio import stdio_server
from tests.fakes.model import ModelReply, ToolCall
from tests.fakes.scripted import ScriptedChatModel
from tests.fakes.web import web_server

NEEDLE = "the-needle"
HALF = 500_000
LONG_PAGES = {"read_file_output_max_chars": 300_000}
HOST_BASH = {"sandbox": {"use": "local", "allow_host_bash": True, **LONG_PAGES}}
NO_BASH = {"sandbox": {"use": "local", **LONG_PAGES}}


def calls(name: str, **args: object) -> ModelReply:
    return ModelReply(calls=(ToolCall(name=name, args=args, id=f"c-{name}"),))


async def shown(home: AgentHarness, model: ScriptedChatModel, name: str, **args: object) -> str:
    """Let the model call a tool; return the result as the model reads it."""
    model._script.extend([calls(name, **args), ModelReply(text="ok")])
    await home.say("go")
    results = [message for message in model.prompts[-1] if message.type == "tool"]
    return results[-1].text


async def assert_found_by_reading_on(
    home: AgentHarness, model: ScriptedChatModel, first: str
) -> None:
    """Follow the notes of a long result, as a model would: read its file offset by offset, then search it."""
    path = re.search(rf"{RESULTS}/[\w-]+\.txt", first)
    assert path, first[-500:]
    assert NEEDLE not in first
    text, offset = "", 0
    for _ in range(40):
        page = await shown(home, model, "read_file", path=path[0], offset=offset)
        following = re.search(r"\n\.\.\. \[.*offset=(\d+)\]$", page)
        text += page[: following.start()] if following else page
        if following is None:
            break
        offset = int(following[1])
    assert NEEDLE in text
    assert len(text) > 1.9 * HALF
    assert NEEDLE in await shown(home, model, "grep", path=path[0], pattern=NEEDLE)


ONE_LINE = f"yes xxxxxxxxx | tr -d '\\n' | head -c {HALF}"
MANY_LINES = f"yes a line | head -n {HALF // 7}"


@pytest.mark.parametrize("half", [ONE_LINE, MANY_LINES], ids=["one line", "many lines"])
@pytest.mark.parametrize("redirect", ["", " 1>&2"], ids=["stdout", "stderr"])
async def test_bash(tmp_path: Path, half: str, redirect: str) -> None:
    model = ScriptedChatModel.playing()
    async with open_agent(tmp_path, model, HOST_BASH) as home:
        command = f"({half}; echo {NEEDLE}; {half}){redirect}"
        first = await shown(home, model, "bash", command=command)
        await assert_found_by_reading_on(home, model, first)


async def test_grep(tmp_path: Path) -> None:
    model = ScriptedChatModel.playing()
    lines = ["m" * 190] * 5_300
    lines[250] = "m" * 150 + NEEDLE + "m" * 800
    async with open_agent(tmp_path, model, NO_BASH) as home:
        home.folders().create()
        (home.folders().workspace / "long.txt").write_text("\n".join(lines))
        first = await shown(home, model, "grep", path=WORKSPACE, pattern="m", max_results=500)
        path = re.search(rf"{RESULTS}/[\w-]+\.txt", first)
        assert path
        assert NEEDLE not in first
        assert NEEDLE in await shown(home, model, "read_file", path=path[0])


async def test_grep_finds_text_in_large_files_and_long_lines(tmp_path: Path) -> None:
    model = ScriptedChatModel.playing()
    async with open_agent(tmp_path, model) as home:
        home.folders().create()
        text = "x" * HALF + f"first {NEEDLE}" + "y" * HALF + f"second {NEEDLE}" + "\n" * HALF
        (home.folders().workspace / "large.txt").write_text(text)
        (home.folders().workspace / "huge.txt").touch()
        with (home.folders().workspace / "huge.txt").open("r+b") as file:
            file.truncate(60_000_000)
        found = await shown(home, model, "grep", path=WORKSPACE, pattern=NEEDLE)
    assert f"first {NEEDLE}" in found
    assert f"second {NEEDLE}" in found
    assert "huge.txt:0: [not searched: the file is larger than 50 MB]" in found
    assert len(found) < 5_000


async def test_mcp(tmp_path: Path) -> None:
    model = ScriptedChatModel.playing()
    file = written(tmp_path, {"far": stdio_server("mcp_server", "stdio")})
    async with open_agent(tmp_path, model, NO_BASH, extensions=file) as home:
        first = await shown(home, model, "far_haystack", half=HALF, needle=NEEDLE)
        await assert_found_by_reading_on(home, model, first)


async def test_web(tmp_path: Path) -> None:
    model = ScriptedChatModel.playing()
    tool_entry: dict[str, Any] = {
        "name": "web_fetch",
        "group": "web",
        "use": "agent.tools.web:fetch_page",
    }
    tool_entry["allow_private_hosts"] = ["127.0.0.1"]
    async with (
        web_server() as here,
        open_agent(tmp_path, model, {"tools": [tool_entry], **NO_BASH}) as home,
    ):
        here.answer("/long", f"<p>{'word ' * (HALF // 5)}{NEEDLE} {'word ' * (HALF // 5)}</p>")
        first = await shown(home, model, "web_fetch", url=f"{here.url}/long")
        await assert_found_by_reading_on(home, model, first)


async def test_acp(tmp_path: Path) -> None:
    model = ScriptedChatModel.playing()
    agents = {"acp_agents": {"helper": entry("haystack")}}
    async with open_agent(tmp_path, model, {**agents, **NO_BASH}) as home:
        first = await shown(home, model, "invoke_acp_agent", agent="helper", prompt=NEEDLE)
        await assert_found_by_reading_on(home, model, first)


def saved_size(harness: AgentHarness, shown_result: str) -> int:
    name = re.search(rf"{RESULTS}/([\w-]+\.txt)", shown_result)
    assert name
    folder = harness.folders().outputs / RESULTS.removeprefix(f"{OUTPUTS}/")
    return (folder / name[1]).stat().st_size


async def test_output_that_is_too_long_to_be_kept_is_reported(tmp_path: Path) -> None:
    model = ScriptedChatModel.playing()
    much = "yes xxxxxxxxx | tr -d '\\n' | head -c 9000000"
    async with open_agent(tmp_path, model, HOST_BASH) as home:
        first = await shown(home, model, "bash", command=f"{much}; {much} 1>&2")
        assert "The command printed more than 4 MB; the middle was dropped." in first
        assert 8_000_000 < saved_size(home, first) < 8_001_000


@tool
def endless() -> str:
    """Return more than is saved."""
    return "x" * 13_000_000


async def test_results_that_are_too_long_to_save_are_reported(tmp_path: Path) -> None:
    model = ScriptedChatModel.playing()
    tool_entry = {"name": "endless", "group": "g", "use": f"{__name__}:endless"}
    async with open_agent(tmp_path, model, {"tools": [tool_entry], **NO_BASH}) as home:
        first = await shown(home, model, "endless")
        assert "the beginning and end of the result" in first
        assert 12_000_000 < saved_size(home, first) < 12_001_000
