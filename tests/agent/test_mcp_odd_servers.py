"""Servers whose messages the SDK rejects: the call gets a result, and so does the next one."""

import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import pytest

from agent.mcp.message_repair import MAX_DEPTH
from tests.agent.agent_harness import open_agent
from tests.agent.test_mcp import tools_of, written
from tests.eventually import eventually
from tests.fakes import mcp_odd
from tests.fakes.model import ModelReply, ToolCall
from tests.fakes.scripted import ScriptedChatModel
from tests.ports import free_port

PROGRAM = str(Path(mcp_odd.__file__))

TOLD = {
    "surrogate": "a\ufffd\U0001f600b",
    "no_utf8": "a\ufffdb",
    "unknown": '{"type": "chart", "points": [1, 2]}',
    "nothing": "(no output)",
    "fails": "Error: no \ufffd: token=***",
    "deeper": "Error: MCP server 'odd' failed: it reported: its answer cannot be read",
}


@asynccontextmanager
async def server(transport: str) -> AsyncIterator[dict[str, Any]]:
    """Yield the configuration of a server. An HTTP server runs until the block ends."""
    if transport == "stdio":
        yield {"command": sys.executable, "args": [PROGRAM, "stdio"]}
        return
    port = free_port()
    async with await anyio.open_process([sys.executable, PROGRAM, "http", str(port)]) as process:
        try:
            await eventually(lambda: _connects(port))
            yield {"type": "http", "url": f"http://127.0.0.1:{port}/mcp"}
        finally:
            process.kill()


async def _connects(port: int) -> bool:
    try:
        await (await anyio.connect_tcp("127.0.0.1", port)).aclose()
    except OSError:
        return False
    return True


@pytest.mark.parametrize("transport", ["stdio", "http"])
async def test_every_answer_reaches_the_model_and_the_thread_goes_on(
    tmp_path: Path, transport: str
) -> None:
    calls = [ToolCall(name=f"odd_{name}", args={}, id=name) for name in mcp_odd.ANSWERS]
    script = [turn for call in calls for turn in (ModelReply(calls=(call,)), "seen")]
    async with (
        server(transport) as entry,
        open_agent(
            tmp_path,
            ScriptedChatModel.playing(*script, "still here"),
            extensions=written(tmp_path, {"odd": entry}),
        ) as agent,
    ):
        assert len(await tools_of(agent.services.mcp)) == len(mcp_odd.ANSWERS)
        with anyio.fail_after(60):  # less than the timeout of one call
            for call in calls:
                messages = await agent.say("go")
                assert messages[-1].text == "seen"
                said = messages[-2].text
                assert said.encode()
                assert call.id is not None
                assert said == TOLD.get(call.id, said)
                if call.id == "deep":
                    assert said.count("[") > 200 > MAX_DEPTH
            assert (await agent.say("and now?"))[-1].text == "still here"
