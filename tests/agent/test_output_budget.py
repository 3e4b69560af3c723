"""Long tool results are saved to a file of the thread, and the model sees both ends."""

import re
import tracemalloc
from pathlib import Path
from typing import Any

import pytest
from langchain.agents import create_agent
from langchain_core.messages import HumanMessage, ToolMessage
from langchain_core.tools import BaseTool, tool
from langgraph.types import Command
from pydantic import ValidationError

from agent.config import AgentConfig, ToolOutputConfig
from agent.middleware.output_budget import ToolOutputBudgetMiddleware
from agent.paths import OUTPUTS
from agent.sandbox.local import LocalSandboxProvider
from agent.saved_texts import RESULTS, SavedTexts
from agent.state import ThreadState
from agent.thread_storage import ThreadStorage
from agent.tools.files import number_lines
from tests.agent.agent_harness import open_agent
from tests.agent.plain_agent import CONFIG, THREAD
from tests.fakes.model import ModelReply, ToolCall
from tests.fakes.scripted import ScriptedChatModel

HERE = __name__
LONG = "".join(f"line {n}\n" for n in range(3000))
"""This is 27,000 characters long."""


@tool
def long_words() -> str:
    """Say much."""
    return LONG


@tool
def short_words() -> str:
    """Say little."""
    return "x" * 12_000


def calling(name: str, **args: Any) -> ModelReply:  # noqa: ANN401 - a tool's arguments
    return ModelReply(calls=(ToolCall(name=name, args=args, id="c1"),))


def with_tools(*names: str) -> dict[str, Any]:
    return {"tools": [{"name": n, "group": "g", "use": f"{HERE}:{n}"} for n in names]}


def result(messages: list[Any], nth: int = 0) -> ToolMessage:
    found = [message for message in messages if isinstance(message, ToolMessage)]
    return found[nth]


async def test_a_long_result_is_in_a_file_that_can_be_read_but_is_not_listed(
    tmp_path: Path,
) -> None:
    model = ScriptedChatModel.playing(
        calling("long_words"), calling("ls", path=OUTPUTS), "Much was said."
    )
    async with open_agent(tmp_path, model, with_tools("long_words")) as harness:
        messages = await harness.say("go")
        text = result(messages).text
        path = re.search(rf"{RESULTS}/long_words-\w+\.txt", text)
        assert path
        host = harness.folders().outputs / path[0].removeprefix(f"{OUTPUTS}/")
        assert host.read_text() == LONG
        assert text.startswith(LONG[:8000])
        assert text.endswith(LONG[-3000:].rstrip())
        assert "characters omitted" in text
        assert len(text) < 11_400
        assert str(tmp_path) not in text
        assert result(messages, 1).text == "(empty)"
        model._script.extend(
            [calling("read_file", path=path[0], start_line=2001), ModelReply(text="Read.")]
        )
        again = await harness.say("read it")
        assert result(again, 2).text.startswith("2001\tline 2000\n2002\tline 2001")


async def test_the_oldest_files_are_deleted(tmp_path: Path) -> None:
    """Saved results may use a tenth of the disk quota: 104,857 bytes, which is three results."""
    model = ScriptedChatModel.playing(*[calling("long_words")] * 4, "Much was said.")
    config = {**with_tools("long_words"), "sandbox": {"use": "local", "disk_quota_mb": 1}}
    async with open_agent(tmp_path, model, config) as harness:
        harness.folders().create()
        folder = harness.folders().outputs / Path(RESULTS).name
        folder.mkdir()
        (folder / "of-a-person.txt").write_text(LONG)
        messages = await harness.say("go")
        kept = {file.name for file in folder.iterdir()}
    names = [re.findall(r"long_words-\w+\.txt", result(messages, nth).text)[0] for nth in range(4)]
    assert kept == {"of-a-person.txt", *names[1:]}


@pytest.mark.parametrize("target", ["/", "..", "../workspace"])
async def test_files_behind_a_link_are_not_deleted(tmp_path: Path, target: str) -> None:
    model = ScriptedChatModel.playing(calling("long_words"), "Much was said.")
    config = {**with_tools("long_words"), "sandbox": {"use": "local", "disk_quota_mb": 1}}
    async with open_agent(tmp_path, model, config) as harness:
        harness.folders().create()
        other = harness.folders().workspace / "long_words-0123456789ab.txt"
        other.write_text(LONG * 4)
        (harness.folders().outputs / Path(RESULTS).name).symlink_to(target)
        messages = await harness.say("go")
        assert other.exists()
    assert RESULTS not in result(messages).text


async def test_small_and_exempt_results_stay_unchanged(tmp_path: Path) -> None:
    model = ScriptedChatModel.playing(
        calling("short_words"), calling("read_file", path=f"{OUTPUTS}/a.txt"), "Fine."
    )
    async with open_agent(tmp_path, model, with_tools("short_words")) as harness:
        harness.folders().create()
        (harness.folders().outputs / "a.txt").write_text(LONG)
        messages = await harness.say("go")
    assert result(messages).text == "x" * 12_000
    assert result(messages, 1).text == number_lines(LONG, 1)


async def test_it_can_be_switched_off(tmp_path: Path) -> None:
    config = {**with_tools("long_words"), "tool_output": {"enabled": False}}
    async with open_agent(
        tmp_path, ScriptedChatModel.playing(calling("long_words")), config
    ) as harness:
        assert result(await harness.say("go")).text == LONG


async def test_results_inside_commands_and_with_pictures_are_shortened_too(tmp_path: Path) -> None:
    @tool
    def framed() -> Command[Any]:
        """Answer by a command."""
        blocks: Any = [{"type": "text", "text": LONG}, {"type": "image", "url": "u"}]
        message = ToolMessage(blocks, tool_call_id="c1", name="framed")
        return Command(update={"messages": [message], "title": "kept"})

    state = await _run(tmp_path, framed)
    text, picture = list(result(state["messages"]).content)
    assert RESULTS in str(text)
    assert picture == {"type": "image", "url": "u"}
    assert state["title"] == "kept"


async def test_without_a_file_the_result_is_cut(tmp_path: Path) -> None:
    @tool
    def much() -> str:
        """Say much."""
        return "a" * 20_000 + "b" * 20_000

    @tool
    def less() -> str:
        """Say less."""
        return "c" * 20_000

    (tmp_path / "threads" / THREAD / "user-data" / "outputs").mkdir(parents=True)
    (tmp_path / "threads" / THREAD / "user-data" / "outputs" / ".tool-results").write_text("")
    text = result((await _run(tmp_path, much))["messages"]).text
    assert text.startswith("a" * 8000)
    assert text.endswith("b" * 3000)
    assert "29000 characters omitted" in text
    assert result((await _run(tmp_path, less))["messages"]).text == "c" * 20_000


async def test_a_result_of_fifty_megabytes_is_not_copied(tmp_path: Path) -> None:
    """Each copy blocks the event loop for 15 ms. Only the part that is kept is copied."""
    large = "a line\n" * 7_000_000

    @tool
    def everything() -> str:
        """Say all."""
        return large

    tracemalloc.start()
    try:
        messages = (await _run(tmp_path, everything))["messages"]
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert "beginning and end of the result (12000" in result(messages).text
    assert peak < len(large)


def test_sizes_that_contradict_each_other_are_refused() -> None:
    with pytest.raises(ValidationError, match="preview"):
        ToolOutputConfig.model_validate({"max_chars": 2000})


def _graph(home: Path, *tools: BaseTool) -> Any:  # noqa: ANN401 - a graph
    link = ToolOutputBudgetMiddleware(
        AgentConfig(), SavedTexts(LocalSandboxProvider(ThreadStorage(home)), 1024)
    )
    model = ScriptedChatModel.playing(calling(tools[0].name), "Done.")
    return create_agent(model, list(tools), middleware=[link], state_schema=ThreadState)


async def _run(home: Path, *tools: BaseTool) -> dict[str, Any]:
    question: Any = {"messages": [HumanMessage("go")]}
    state: dict[str, Any] = await _graph(home, *tools).ainvoke(question, CONFIG)
    return state
