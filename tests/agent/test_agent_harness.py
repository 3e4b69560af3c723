"""The whole agent, opened as the service opens it."""

from pathlib import Path

from langchain_core.messages import AIMessage

from agent.paths import OUTPUTS
from tests.agent.agent_harness import open_agent
from tests.fakes.model import ModelReply, ToolCall
from tests.fakes.scripted import ScriptedChatModel


async def test_a_turn_through_everything(tmp_path: Path) -> None:
    write = ToolCall(name="write_file", args={"path": f"{OUTPUTS}/a.txt", "content": "hi"}, id="c1")
    model = ScriptedChatModel.playing(ModelReply(calls=(write,)), "Written.")
    async with open_agent(tmp_path, model) as harness:
        messages = await harness.say("write a file")
        assert isinstance(messages[-1], AIMessage)
        assert messages[-1].text == "Written."
        assert (harness.folders().outputs / "a.txt").read_text() == "hi"
        assert (await harness.state())["title"] == "write a file"
    assert len(model.prompts) == 2
