"""The demo model streams, calls tools, and says that it is a demo, in the real graph."""

from pathlib import Path

import pytest
from langchain_core.messages import AIMessage, AIMessageChunk, HumanMessage, SystemMessage

from agent.models.demo import DemoChatModel, plan
from agent.models.scripted import ScriptedCall, ScriptedTurn, stream_chunks
from agent.paths import OUTPUTS
from agent.prompt import BOOTSTRAP_TAG
from tests.agent.plain_agent import CONFIG, open_plain_agent


def demo() -> DemoChatModel:
    return DemoChatModel(delay_s=0)


async def test_it_says_what_it_is_and_remembers(tmp_path: Path) -> None:
    async with open_plain_agent(tmp_path, demo()) as thread:
        first = (await thread.say("Good morning"))[-1].text
        second = (await thread.say("And you?"))[-1].text
    assert first.startswith("You said: Good morning")
    assert "demo" in first
    assert "models:" in first
    assert "message 2 from you" in second
    assert "Good morning" in second


@pytest.mark.parametrize(
    ("text", "name", "content"),
    [
        ("write a file notes.txt saying hello world", "notes.txt", "hello world\n"),
        ("Please make me report.md with # Title", "report.md", "# Title\n"),
        ("create a file", "hello.txt", "Hello from Parley's demo.\n"),
        ("present the file ../../evil.sh", "hello.txt", "Hello from Parley's demo.\n"),
    ],
)
async def test_it_hands_over_a_file(tmp_path: Path, text: str, name: str, content: str) -> None:
    async with open_plain_agent(tmp_path, demo()) as thread:
        messages = await thread.say(text)
        artifacts = (await thread.state())["artifacts"]
        written = (thread.folders.outputs / name).read_text()
    assert artifacts == [f"{OUTPUTS}/{name}"]
    assert written == content
    assert messages[-1].text == "Done: here is your file."


async def test_it_lists_files(tmp_path: Path) -> None:
    async with open_plain_agent(tmp_path, demo()) as thread:
        assert "nothing yet" in (await thread.say("list files"))[-1].text
        await thread.say("write a file a.txt")
        assert f"{OUTPUTS}/a.txt" in (await thread.say("show my files"))[-1].text


@pytest.mark.parametrize(
    ("said", "command"),
    [
        ("run `ls -la`", "ls -la"),
        ("Please run: `echo a | wc`.", "echo a | wc"),
        ("运行 `pwd`", "pwd"),
        ("execute ```bash\nls\npwd\n```", "ls\npwd"),
    ],
)
def test_the_demo_model_runs_commands_in_backticks_if_it_has_the_tool(
    said: str, command: str
) -> None:
    (call,) = plan([HumanMessage(said)], {"bash", "ls"}).calls
    assert call.args["command"] == command
    assert not plan([HumanMessage("run away")], {"bash"}).calls
    assert not plan([HumanMessage("run `x`")], {"ls"}).calls


async def test_it_asks_back(tmp_path: Path) -> None:
    async with open_plain_agent(tmp_path, demo()) as thread:
        messages = await thread.say("ask me something")
        assert messages[-1].name == "ask_clarification"
        assert "1. Red" in messages[-1].text
        assert "Green" in (await thread.say("Green"))[-1].text


async def test_its_words_arrive_one_by_one_with_usage_at_the_end(tmp_path: Path) -> None:
    async with open_plain_agent(tmp_path, demo()) as thread:
        question = {"messages": [HumanMessage("hi")]}
        chunks = [
            part[0]
            async for part in thread.graph.astream(question, CONFIG, stream_mode="messages")
            if isinstance(part, tuple) and isinstance(part[0], AIMessageChunk)
        ]
        final = (await thread.state())["messages"][-1]
    assert len(chunks) > 20
    assert "".join(chunk.text for chunk in chunks) == final.text
    assert {chunk.id for chunk in chunks} == {final.id}
    assert [bool(chunk.usage_metadata) for chunk in chunks] == [False] * (len(chunks) - 1) + [True]
    assert final.usage_metadata == chunks[-1].usage_metadata


async def test_it_works_without_streaming_and_without_tools() -> None:
    model = demo()
    said = model.invoke([HumanMessage("write a file")])
    assert said.text.startswith("You said: write a file")
    assert (await model.ainvoke([HumanMessage("hi")])).text.startswith("You said: hi")
    assert "".join(chunk.text for chunk in model.stream("hi")).startswith("You said: hi")


def test_bootstrap_and_uploads() -> None:
    system = SystemMessage(f"...\n{BOOTSTRAP_TAG}\n...")
    assert "Welcome" in plan([system, HumanMessage("Initialize workspace")], set()).text
    upload = HumanMessage("<uploaded_files>\n- a file x.txt\n</uploaded_files>\n\nThanks")
    assert plan([upload], {"write_file", "present_files"}).text.startswith("You said: Thanks")
    assert plan([], set()).text.startswith("You said:")


async def test_an_error_of_a_tool_is_reported(tmp_path: Path) -> None:
    async with open_plain_agent(tmp_path, demo()) as thread:
        thread.folders.create()
        (thread.folders.outputs / "a.txt").mkdir()
        answer = (await thread.say("write a file a.txt"))[-1].text
    assert answer.startswith("That did not work.")
    assert "this is a folder" in answer


def test_a_turn_is_played_in_pieces_that_add_up() -> None:
    args = {"path": "/mnt/ä", "content": "x" * 40}
    turn = ScriptedTurn(
        text="One  two\nthree", calls=(ScriptedCall(name="write_file", args=args, id="c"),)
    )
    pieces = list(stream_chunks(turn, [HumanMessage("question")]))
    whole = pieces[0]
    for piece in pieces[1:]:
        whole = whole + piece
    assert len(pieces) > 6
    assert whole.text == turn.text
    assert [(call["name"], call["args"], call["id"]) for call in whole.tool_calls] == [
        ("write_file", args, "c")
    ]
    assert whole.response_metadata["finish_reason"] == "tool_calls"
    assert isinstance(whole, AIMessage)
