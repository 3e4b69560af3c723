"""The sandbox id in the thread state, and its release after the answer."""

from pathlib import Path

import pytest
from langchain.agents import create_agent
from langchain_core.messages import HumanMessage
from langchain_core.tools import BaseTool, tool
from typing_extensions import override

from agent.errors import ThreadIdInvalid
from agent.middleware.final_answer import FinalAnswerMiddleware
from agent.middleware.sandbox import SandboxMiddleware
from agent.sandbox.local import LocalSandboxProvider
from agent.state import ThreadState
from agent.thread_storage import ThreadStorage
from agent.tools.registry import built_in_tools
from agent.tools.results import ToolLimits
from tests.agent.plain_agent import CONFIG, THREAD, memory_not_open
from tests.fakes.model import ModelReply, ToolCall
from tests.fakes.scripted import ScriptedChatModel


class RecordingSandboxProvider(LocalSandboxProvider):
    """Records the requests that it gets."""

    def __init__(self, home: Path) -> None:
        super().__init__(ThreadStorage(home))
        self.home = home
        self.released: list[str] = []

    @override
    async def release(self, sandbox_id: str) -> None:
        self.released.append(sandbox_id)


async def turn(
    sandboxes: RecordingSandboxProvider, *script: ModelReply, tools: tuple[BaseTool, ...] = ()
) -> ThreadState:
    graph = create_agent(
        ScriptedChatModel.playing(*script),
        [*built_in_tools(sandboxes, ToolLimits()), *tools],
        middleware=[
            SandboxMiddleware(sandboxes),
            FinalAnswerMiddleware(memory_not_open(sandboxes.home), sandboxes),
        ],
        state_schema=ThreadState,
    )
    state: ThreadState = await graph.ainvoke({"messages": [HumanMessage("go")]}, CONFIG)  # type: ignore[assignment]
    return state


def calling(name: str, **args: str) -> ModelReply:
    return ModelReply(calls=(ToolCall(name=name, args=args, id="c1"),))


async def test_the_sandbox_is_in_the_state_and_released_after_the_answer(
    tmp_path: Path,
) -> None:
    sandboxes = RecordingSandboxProvider(tmp_path)
    state = await turn(
        sandboxes, calling("ls", path="."), calling("ls", path="."), ModelReply(text="Hi.")
    )
    assert state["sandbox"] == {"sandbox_id": f"local:{THREAD}"}
    assert sandboxes.released == [f"local:{THREAD}"]


async def test_bash_calls_without_a_shell_are_answered(tmp_path: Path) -> None:
    state = await turn(
        RecordingSandboxProvider(tmp_path), calling("bash", command="ls"), ModelReply(text="Hi.")
    )
    assert state["messages"][2].text.startswith("Error: Commands are disabled: set sandbox.use")


async def test_a_configured_bash_tool_is_kept(tmp_path: Path) -> None:
    @tool
    def bash(command: str) -> str:
        """Run a command elsewhere."""
        return f"elsewhere: {command}"

    script = (calling("bash", command="ls"), ModelReply(text="Hi."))
    state = await turn(RecordingSandboxProvider(tmp_path), *script, tools=(bash,))
    assert state["messages"][2].text == "elsewhere: ls"


def test_ids_are_computed_without_disk_access(tmp_path: Path) -> None:
    sandboxes = RecordingSandboxProvider(tmp_path / "home")
    assert sandboxes.sandbox_id("t-1") == "local:t-1"
    assert not (tmp_path / "home").exists()
    with pytest.raises(ThreadIdInvalid):
        sandboxes.sandbox_id("../t")
