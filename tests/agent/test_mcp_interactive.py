"""MCP servers that send requests over stdio and streamable HTTP: questions, progress, sampling, changed tools."""

import asyncio
import subprocess
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import aclosing, asynccontextmanager, contextmanager
from html import escape
from pathlib import Path
from typing import Any

import httpx
import pytest
from langchain_core.messages import HumanMessage, ToolMessage

from tests.agent.agent_harness import AgentHarness, open_agent
from tests.agent.test_approvals import CONFIG, ApprovalThread, guarded, results
from tests.agent.test_mcp import call, named, tools_of, written
from tests.eventually import eventually
from tests.fakes.mcp_interactive import INSTRUCTIONS, REPORT
from tests.fakes.mcp_many import many_tools
from tests.fakes.mcp_stdio import stdio_server
from tests.fakes.model import ModelReply, ToolCall
from tests.fakes.scripted import ScriptedChatModel
from tests.fork_server import forked_program

TRANSPORTS = ["stdio", "http"]


@contextmanager
def entry(transport: str, log: Path) -> Iterator[dict[str, Any]]:
    """Yield the configuration of a server. A server over HTTP runs until the block ends."""
    if transport == "stdio":
        yield {**stdio_server("mcp_interactive", "stdio"), "env": {"LOG": str(log)}}
        return
    command = forked_program("tests.fakes.mcp_interactive", "http")
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, text=True, env={"LOG": str(log)}
    ) as process:
        assert process.stdout is not None
        try:
            yield {"type": "http", "url": f"http://127.0.0.1:{int(process.stdout.readline())}/mcp"}
        finally:
            process.kill()


@asynccontextmanager
async def agent_with_server(
    folder: Path,
    server: Mapping[str, Any],
    *script: ModelReply | str,
    config: Mapping[str, Any] | None = None,
) -> AsyncIterator[AgentHarness]:
    """Open an agent whose server is connected."""
    file = written(folder, {"hotel": server})
    model = ScriptedChatModel.playing(*script)
    async with open_agent(folder, model, config, extensions=file) as harness:
        await tools_of(harness.services.mcp)
        yield harness


def calling(name: str, **args: object) -> ModelReply:
    return ModelReply(calls=(call(f"hotel_{name}", **args),))


def lines(log: Path) -> list[str]:
    return log.read_text().splitlines() if log.exists() else []


# ---- questions to people -----------------------------------------------------------------------


@pytest.mark.parametrize("transport", TRANSPORTS)
async def test_a_person_fills_a_form_and_the_call_is_made_once(
    tmp_path: Path, transport: str
) -> None:
    log = tmp_path / "log"
    with entry(transport, log) as server:
        async with agent_with_server(tmp_path, server, calling("book", day="Monday"), "Done.") as h:
            thread = ApprovalThread(h)
            await thread.say("book")
            (asked,) = thread.interrupts
            assert "hotel" in asked.value["question"]
            assert "Which room on Monday?" in asked.value["question"]
            labels = [option["label"] for option in asked.value["options"]]
            assert labels == ["blue", "red", "Decline"]
            await thread.resume("green")
            assert "is not valid here" in thread.interrupts[0].value["question"]
            await thread.resume("Red")
            assert "How many guests?" in thread.interrupts[0].value["question"]
            await thread.resume("12")
            assert [one["label"] for one in thread.interrupts[0].value["options"]] == [
                "Yes",
                "No",
                "Skip",
                "Decline",
            ]
            messages = await thread.resume("true")
    assert list(results(messages).values()) == ["booked red for 12, catering True"]
    assert messages[-1].text == "Done."
    assert lines(log) == ["book Monday"]


async def test_after_a_restart_the_call_is_repeated_with_the_answers(tmp_path: Path) -> None:
    log = tmp_path / "log"
    with entry("stdio", log) as server:
        async with agent_with_server(tmp_path, server, calling("book", day="Monday")) as h:
            thread = ApprovalThread(h)
            await thread.say("book")
            await thread.resume("blue")
            left = thread.interrupts
        async with agent_with_server(tmp_path, server, "Done.") as h:
            thread = ApprovalThread(h)
            thread.interrupts = left
            await thread.resume("3")
            messages = await thread.resume("skip")
    assert list(results(messages).values()) == ["booked blue for 3, catering None"]
    assert lines(log) == ["book Monday", "book Monday"]


async def test_an_approval_comes_before_the_question(tmp_path: Path) -> None:
    with entry("stdio", tmp_path / "log") as server:
        script = calling("book", day="Monday"), "Done."
        config = guarded("hotel_*")
        async with agent_with_server(tmp_path, server, *script, config=config) as h:
            thread = ApprovalThread(h)
            await thread.say("book")
            await thread.resume({"decisions": [{"type": "approve"}]})
            messages = await thread.resume("Decline")
    assert list(results(messages).values()) == ["not booked: decline"]


async def test_a_client_answers_the_whole_form(tmp_path: Path) -> None:
    with entry("stdio", tmp_path / "log") as server:
        async with agent_with_server(tmp_path, server, calling("book", day="Monday"), "Done.") as h:
            thread = ApprovalThread(h)
            await thread.say("book")
            content = {"room": "blue", "guests": 2}
            messages = await thread.resume({"action": "accept", "content": content})
    assert list(results(messages).values()) == ["booked blue for 2, catering None"]


async def test_a_subagent_declines(tmp_path: Path) -> None:
    task = {"description": "d", "prompt": "p", "subagent_type": "general-purpose"}
    delegate = ModelReply(calls=(call("task", **task),))
    script = delegate, calling("book", day="Monday"), "It declined.", "Done."
    log = tmp_path / "log"
    with entry("stdio", log) as server:
        async with agent_with_server(tmp_path, server, *script) as h:
            messages = await h.say("delegate", subagent_enabled=True)
    assert "It declined." in next(iter(results(messages).values()))
    assert lines(log) == ["book Monday"]


# ---- progress and cancellation -----------------------------------------------------------------


@pytest.mark.parametrize("transport", TRANSPORTS)
async def test_progress_reaches_the_stream_and_a_stop_reaches_the_server(
    tmp_path: Path, transport: str
) -> None:
    log = tmp_path / "log"
    seen: list[Any] = []
    with entry(transport, log) as server:
        script = calling("copy", until=str(tmp_path / "never"))
        async with agent_with_server(tmp_path, server, script) as h:
            graph = await h.factory.graph_for(CONFIG)

            async def watch() -> None:
                stream: Any = graph.astream(
                    {"messages": [HumanMessage("copy")]}, CONFIG, stream_mode=["custom"]
                )
                async with aclosing(stream) as parts:
                    async for _, data in parts:
                        seen.append(data)

            # Cancel as the runtime does: anyio would also cancel LangGraph's own cleanup.
            task = asyncio.create_task(watch())
            await eventually(lambda: len(seen), lambda count: count >= 1, within_s=60)
            task.cancel()
            await asyncio.wait([task])
            assert seen[0]["type"] == "tool_progress"
            assert seen[0]["text"] == "Copying (1/100)"
            told = ["copying", "cancelled"]
            await eventually(lambda: lines(log), lambda found: found == told, within_s=60)


# ---- tools that change, instructions -----------------------------------------------------------


async def test_a_tool_that_a_call_adds_is_there_in_the_next_run(tmp_path: Path) -> None:
    script = calling("unlock"), "Unlocked.", calling("added", text="x"), "Added."
    with entry("stdio", tmp_path / "log") as server:
        async with agent_with_server(tmp_path, server, *script) as h:
            await h.say("unlock")
            await eventually(
                lambda: tools_of(h.services.mcp),
                lambda tools: "hotel_added" in named(tools),
                within_s=60,
            )
            messages = await h.say("add")
    assert [m.text for m in messages if isinstance(m, ToolMessage)] == ["unlocked", "added x"]


async def test_a_tool_that_appears_without_a_call_is_there_in_the_next_run(tmp_path: Path) -> None:
    with entry("http", tmp_path / "log") as server:
        async with agent_with_server(tmp_path, server) as h, httpx.AsyncClient() as client:
            assert "hotel_added" not in named(await tools_of(h.services.mcp))
            told = await client.post(server["url"].replace("/mcp", "/unlock"))
            assert told.json() >= 1
            await eventually(
                lambda: tools_of(h.services.mcp),
                lambda tools: "hotel_added" in named(tools),
                within_s=60,
            )


async def test_the_instructions_are_in_the_prompt(tmp_path: Path) -> None:
    model = ScriptedChatModel.playing("Hello.")
    with entry("stdio", tmp_path / "log") as server:
        file = written(tmp_path, {"hotel": server})
        async with open_agent(tmp_path, model, extensions=file) as h:
            await tools_of(h.services.mcp)
            await h.say("hello")
    shown = escape(INSTRUCTIONS, quote=False)
    assert f'<server name="hotel">{shown}</server>' in model.prompts[0][0].text


# ---- sampling ----------------------------------------------------------------------------------


@pytest.mark.parametrize("transport", TRANSPORTS)
async def test_a_server_uses_the_model_only_if_it_may(tmp_path: Path, transport: str) -> None:
    refused = calling("ask_model", text="Why?"), "Refused."
    allowed = calling("ask_model", text="Why?"), "Because.", "Answered."
    with entry(transport, tmp_path / "log") as server:
        async with agent_with_server(tmp_path, server, *refused) as h:
            messages = await h.say("ask")
        assert "refused: Sampling not supported" in next(iter(results(messages).values()))
        config = {"mcp": {"sampling": ["hot*"]}}
        async with agent_with_server(tmp_path, server, *allowed, config=config) as h:
            messages = await h.say("ask", thread="other")
        assert list(results(messages).values()) == ["the model says: Because."]


# ---- resources and prompts ---------------------------------------------------------------------


@pytest.mark.parametrize("transport", TRANSPORTS)
async def test_resources_are_listed_and_read(tmp_path: Path, transport: str) -> None:
    read = [
        ModelReply(calls=(call("read_mcp_resource", server="hotel", uri=uri),))
        for uri in ("report://rooms", "image://plan", "report://none")
    ]
    listing = ModelReply(calls=(call("list_mcp_resources"),))
    script: list[ModelReply | str] = [calling("link"), listing, *read, "Done."]
    with entry(transport, tmp_path / "log") as server:
        async with agent_with_server(tmp_path, server, *script) as h:
            messages = await h.say("read")
            images = list(h.folders().outputs.glob("mcp-*.png"))
    link, listed, text, image, absent = [m.text for m in messages if isinstance(m, ToolMessage)]
    assert link == "See\n[resource rooms: report://rooms]"
    assert "- report://rooms rooms The report on rooms." in listed
    assert "- room://{name} room Describe a room. (fill in the braces)" in listed
    assert text == REPORT
    assert image.startswith("[image saved as ")
    assert len(images) == 1
    assert absent.startswith("Error: MCP server failed: it reported: Unknown resource")


async def test_a_prompt_is_listed_and_loaded(tmp_path: Path) -> None:
    given = {"server": "hotel", "name": "invite", "arguments": {"guest": "Ann"}}
    invite = ToolCall("get_mcp_prompt", given, "c1")
    unknown = ToolCall("get_mcp_prompt", {"server": "motel", "name": "invite"}, "c2")
    script = ModelReply(calls=(invite,)), ModelReply(calls=(unknown,)), "Done."
    with entry("stdio", tmp_path / "log") as server:
        async with agent_with_server(tmp_path, server, *script) as h:
            messages = await h.say("/mcp__hotel__invite Ann")
            tools = (await h.services.mcp.current_tools()).tools
    (tool,) = [tool for tool in tools if tool.name == "get_mcp_prompt"]
    assert "- /mcp__hotel__invite <guest> [tone]: Write an invitation." in tool.description
    loaded, failed = [m.text for m in messages if isinstance(m, ToolMessage)]
    assert loaded == "Write a warm invitation for Ann."
    assert "there is no server 'motel'" in failed


async def test_a_server_without_resources_and_prompts_adds_no_tools(tmp_path: Path) -> None:
    file = written(tmp_path, {"office": many_tools(1)})
    async with open_agent(tmp_path, ScriptedChatModel.playing(), extensions=file) as h:
        assert named(await tools_of(h.services.mcp)) == {"office_update_invoice_0"}
