"""MCP tools in the real agent, with servers of the real SDK: processes, SSE, streamable HTTP, and broken servers."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from itertools import count
from pathlib import Path
from typing import Any

import anyio
import httpx
import pytest
from blockbuster import blockbuster_ctx
from langchain.agents import create_agent
from langchain_core.messages import HumanMessage, ToolMessage
from langchain_core.runnables import RunnableConfig
from langchain_core.tools import BaseTool

from agent.config import McpConfig
from agent.extensions import ExtensionsFile
from agent.mcp.registry import McpToolRegistry, open_mcp
from agent.paths import OUTPUTS
from agent.thread_storage import ThreadStorage
from tests.agent.agent_harness import open_agent
from tests.agent.plain_agent import THREAD
from tests.eventually import eventually
from tests.fakes.mcp_server import PIXEL
from tests.fakes.mcp_stdio import stdio_server
from tests.fakes.model import ModelReply, ToolCall
from tests.fakes.scripted import ScriptedChatModel

HERE = __name__
SERVER = str(Path(__file__).parents[1] / "fakes" / "mcp_server.py")
STARTED = {"command": sys.executable, "args": ["-P", SERVER, "stdio"]}
"""A server that runs directly in the process that the agent starts, so stopping that process ends it at once."""
FEW_VARIABLES = {"HOME", "LOGNAME", "PATH", "SHELL", "TERM", "USER", "LC_CTYPE", "pid"}


@contextmanager
def web_server(port: int = 0) -> Iterator[tuple[int, subprocess.Popen[str]]]:
    """Run a server; yield its port and process."""
    command = [sys.executable, "-P", SERVER, "http", str(port)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            yield int(process.stdout.readline()), process
        finally:
            process.kill()


@pytest.fixture(scope="module")
def web() -> Iterator[str]:
    """Yield the address of a server process that all tests share."""
    with web_server() as (port, _):
        yield f"http://127.0.0.1:{port}"


def written(folder: Path, servers: Mapping[str, object], **more: object) -> Path:
    """Write the extensions file."""
    file = folder / "extensions_config.json"
    file.write_text(json.dumps({"mcpServers": servers, **more}))
    return file


@asynccontextmanager
async def mcp(
    folder: Path,
    servers: Mapping[str, object],
    limits: Mapping[str, object] | None = None,
    *,
    interceptors: object = (),
) -> AsyncIterator[McpToolRegistry]:
    """Open the tools of some servers. The test may change `limits`, the `mcp` section, while they are open."""
    file = written(folder, servers, mcpInterceptors=interceptors)

    def section() -> McpConfig:
        return McpConfig.model_validate({"retry_seconds": 0.1, **(limits or {})})

    async with open_mcp(
        ExtensionsFile(file), {"WORD": "filled in"}, section, ThreadStorage(folder)
    ) as tools:
        yield tools


async def tools_of(servers: McpToolRegistry) -> tuple[BaseTool, ...]:
    """Return the tools after every server was tried, however long that takes. A run waits only for a limited time."""
    await eventually(
        servers.statuses,
        lambda found: all(one.state != "connecting" for one in found),
        within_s=60,
    )
    return (await servers.current_tools()).tools


def named(tools: tuple[BaseTool, ...]) -> set[str]:
    return {tool.name for tool in tools}


def call(name: str, **args: object) -> ToolCall:
    return ToolCall(name=name, args=args, id=f"c-{name}-{len(args)}")


async def asked(
    tools: tuple[BaseTool, ...], *calls: ToolCall, thread: str = THREAD
) -> list[ToolMessage]:
    """Run a graph whose model makes these calls, and return the results."""
    model = ScriptedChatModel.playing(ModelReply(calls=calls), "done")
    config: RunnableConfig = {"configurable": {"thread_id": thread}}
    graph = create_agent(model, list(tools))
    state = await graph.ainvoke({"messages": [HumanMessage("go")]}, config)
    return [message for message in state["messages"] if isinstance(message, ToolMessage)]


async def answer(tools: tuple[BaseTool, ...], name: str, **args: object) -> str:
    (found,) = await asked(tools, call(name, **args))
    return found.text


def is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


# ---- processes ---------------------------------------------------------------------------------


async def test_each_thread_has_its_own_isolated_process(tmp_path: Path) -> None:
    env = {"GIVEN": "$TOKEN", "EMPTY": "$UNSET"}
    file = written(tmp_path, {"fake": {**stdio_server("mcp_server", "stdio"), "env": env}})
    script = ScriptedChatModel.playing(
        ModelReply(calls=(call("fake_remember", text="a"), call("fake_environment"))),
        "one",
        ModelReply(calls=(call("fake_remember", text="b"), call("fake_raise_error"))),
        "two",
        ModelReply(calls=(call("fake_crash"),)),
        ModelReply(calls=(call("fake_remember", text="c"),)),
        "three",
    )
    async with open_agent(
        tmp_path, script, extensions=file, environment={"TOKEN": "t", "SECRET": "hush-hush"}
    ) as harness:
        await tools_of(harness.services.mcp)
        first = told(await harness.say("one"))
        variables = json.loads(first[1])
        assert first[0] == "a"
        assert set(variables) <= FEW_VARIABLES | {"GIVEN", "EMPTY"}
        assert (variables["GIVEN"], variables["EMPTY"]) == ("t", "")
        second = told(await harness.say("two"))[2:]
        assert second == ["a,b", "Error: Error executing tool raise error: no such issue"]
        third = told(await harness.say("three"))[4:]
        assert third == [
            "Error: MCP server 'fake' failed: it ended before it responded",
            "c",
        ]
    await eventually(lambda: not is_alive(variables["pid"]))


def told(messages: list[Any]) -> list[str]:
    return [message.text for message in messages if isinstance(message, ToolMessage)]


async def test_cancelled_calls_and_timeouts(tmp_path: Path) -> None:
    marker = tmp_path / "marker"
    limits: dict[str, object] = {}
    async with mcp(tmp_path, {"fake": STARTED}, limits) as servers:
        tools = await tools_of(servers)
        async with anyio.create_task_group() as run:
            run.start_soon(answer_of_wait, tools, marker)
            await eventually(lambda: marker.exists() and marker.read_text() == "started")
            run.cancel_scope.cancel()
        # The server receives the cancellation and keeps running for the thread.
        await eventually(lambda: marker.read_text() == "cancelled")
        pid = json.loads(await answer(tools, "fake_environment"))["pid"]
        await eventually(lambda: len(servers.sessions) == 1)
        os.kill(pid, signal.SIGKILL)
        await eventually(lambda: not is_alive(pid))
        with anyio.fail_after(30):
            # A call made at that moment may still fail. The next one gets a new process.
            while "ended before" in (said := await answer(tools, "fake_environment")):
                pass
        pid = json.loads(said)["pid"]
        limits["call_timeout_seconds"] = 0.2
        said = await answer(tools, "fake_wait", marker=str(marker))
        assert "it did not respond within 0.2 seconds" in said
        # The process may hang forever, so it is killed. The next call gets a new one.
        await eventually(lambda: len(servers.sessions) == 0)
        assert not is_alive(pid)


async def answer_of_wait(tools: tuple[BaseTool, ...], marker: Path) -> None:
    await answer(tools, "fake_wait", marker=str(marker))


async def test_stderr_is_logged_without_secrets(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    script = 'echo "the token $$TOKEN is not good" >&2; exit 1'
    entry = {"command": "sh", "args": ["-c", script], "env": {"TOKEN": "hush-hush"}}
    async with mcp(tmp_path, {"fake": entry}) as servers:
        assert await tools_of(servers) == ()
        await eventually(lambda: "the token *** is not good" in caplog.text)
        (status,) = await servers.statuses()
        assert status.error == "it ended before it responded"
    assert "hush-hush" not in caplog.text


async def test_idle_processes_end(tmp_path: Path) -> None:
    limits: dict[str, object] = {"max_sessions": 1, "idle_seconds": 0.5}
    async with mcp(tmp_path, {"fake": stdio_server("mcp_server", "stdio")}, limits) as servers:
        tools = await tools_of(servers)
        for thread in ("t1", "t2"):
            (found,) = await asked(tools, call("fake_remember", text=thread), thread=thread)
            assert found.text == thread
        await eventually(lambda: len(servers.sessions) == 0)


# ---- HTTP --------------------------------------------------------------------------------------


def broken_ones(web: str) -> dict[str, object]:
    return {
        "missing": {"command": "/nowhere/hush-hush"},
        "mute": {"command": "sleep", "args": ["60"]},
        "dies": {"command": "false"},
        "lost": {"type": "http", "url": f"{web}/nothing-here?key=hush-hush"},
        "closed": {"type": "http", "url": f"{web}/guarded/mcp"},
        "refused": {"type": "sse", "url": "http://127.0.0.1:1/sse"},
        "nonsense": {"type": "sse"},
        "off": {"command": "true", "enabled": False},
    }


async def test_broken_servers_do_not_affect_others(tmp_path: Path, web: str) -> None:
    good = {
        "streamed": {"type": "streamable_http", "url": f"{web}/mcp"},
        "events": {"transport": "sse", "url": f"{web}/sse"},
    }
    limits: dict[str, object] = {"connect_timeout_seconds": 2}
    async with mcp(tmp_path, {**broken_ones(web), **good}, limits) as servers:
        await servers.current_tools()
        states: dict[str, Any] = {}

        async def settled() -> bool:
            states.update({status.name: status for status in await servers.statuses()})
            states_of = {name: status.state for name, status in states.items()}
            return all(states_of[name] == "connected" for name in good) and all(
                states_of[name] == "failed" for name in broken_ones(web) if name != "off"
            )

        await eventually(settled)
        tools = await tools_of(servers)
        assert {name.partition("_")[0] for name in named(tools)} == set(good)
        assert await answer(tools, "streamed_echo", text="hi") == "hi"
        assert await answer(tools, "events_echo", text="hi") == "hi"
        assert states["missing"].error == "its command is not installed"
        assert states["mute"].error == "it did not respond in time"
        assert states["dies"].error == "it ended before it responded"
        assert states["lost"].error == "there is no MCP server at its address (404)"
        assert states["closed"].error == "it responded with HTTP 401"
        assert states["refused"].error == "it cannot be reached"
        assert states["nonsense"].error == "a server of type sse needs `url`"
        assert states["off"].state == "disabled"
        assert "streamed_echo" in states["streamed"].tools
        assert "hush-hush" not in str(states)
        failing = {"missing", "mute", "dies", "lost", "closed", "refused"}
        await eventually(
            servers.statuses,
            lambda found: all(one.attempts > 1 for one in found if one.name in failing),
        )


@pytest.mark.parametrize("path", ["/mcp", "/sse"])
async def test_a_thread_keeps_its_session_with_a_web_server(
    tmp_path: Path, web: str, path: str
) -> None:
    entry = {"url": web + path, "type": path[1:].replace("mcp", "http")}
    async with mcp(tmp_path, {"web": entry}, {"idle_seconds": 1}) as servers:
        tools = await tools_of(servers)
        (first,) = await asked(tools, call("web_session"))
        (again,) = await asked(tools, call("web_session"))
        (other,) = await asked(tools, call("web_session"), thread="other")
        assert first.text == again.text != other.text
        await eventually(lambda: len(servers.sessions) == 0)
        assert (await answer(tools, "web_echo", text="a")) == "a"


@pytest.mark.parametrize("path", ["/mcp", "/sse"])
async def test_a_restarted_web_server_gets_a_new_session(tmp_path: Path, path: str) -> None:
    with web_server() as (port, process):
        entry = {"url": f"http://127.0.0.1:{port}{path}", "type": path[1:].replace("mcp", "http")}
        async with mcp(tmp_path, {"web": entry}) as servers:
            tools = await tools_of(servers)
            assert await answer(tools, "web_remember", text="a") == "a"
            process.kill()
            process.wait()
            with web_server(port):
                assert await answer(tools, "web_remember", text="b") == "b"
                assert await answer(tools, "web_remember", text="c") == "b,c"


async def test_a_call_that_a_web_server_refuses_is_made_again_in_a_new_session(
    tmp_path: Path, web: str
) -> None:
    """Some servers respond with 400 to a session that they have forgotten, without processing the call."""
    async with mcp(tmp_path, {"web": {"url": f"{web}/mcp"}}) as servers:
        tools = await tools_of(servers)
        (before,) = await asked(tools, call("web_session"))
        async with httpx.AsyncClient() as client:
            (await client.post(f"{web}/refuse")).raise_for_status()
        (after,) = await asked(tools, call("web_session"))
        assert (before.status, after.status) == ("success", "success")
        assert before.text != after.text


async def test_images_are_saved_and_shown_to_models_with_vision(tmp_path: Path, web: str) -> None:
    file = written(tmp_path, {"web": {"url": f"{web}/mcp"}})
    for has_vision in (True, False):
        model = ScriptedChatModel.playing(
            ModelReply(calls=(call("web_picture"), call("web_echo", text="a"))), "I see."
        )
        entry = {"supports_vision": has_vision}
        async with open_agent(tmp_path, model, extensions=file, entry=entry) as harness:
            await tools_of(harness.services.mcp)
            messages = await harness.say("look")
            (path,) = harness.folders().outputs.iterdir()
        assert path.read_bytes() == PIXEL
        assert told(messages)[-2:] == [f"a picture:\n[image saved as {OUTPUTS}/{path.name}]", "a"]
        assert ("data:image/png;base64," in str(model.prompts[-1])) is has_vision


async def test_many_runs_at_once(tmp_path: Path, web: str) -> None:
    async with mcp(tmp_path, {"web": {"url": f"{web}/mcp"}}) as servers:
        tools = await tools_of(servers)
        answers: dict[int, str] = {}

        async def run(number: int) -> None:
            answers[number] = await answer(tools, "web_echo", text=str(number))

        with blockbuster_ctx(scanned_modules=["agent"]):
            async with anyio.create_task_group() as runs:
                for number in range(8):
                    runs.start_soon(run, number)
        assert answers == {number: str(number) for number in range(8)}
        assert len(servers.sessions) == 1


async def test_tokens_are_cached_and_refreshed(tmp_path: Path, web: str) -> None:
    oauth = {"token_url": f"{web}/token", "client_id": "me", "client_secret": "$WORD"}
    entry = {"url": f"{web}/guarded/mcp", "oauth": oauth}
    async with httpx.AsyncClient() as client, mcp(tmp_path, {"safe": entry}) as servers:
        tools = await tools_of(servers)
        for _ in range(2):
            assert await answer(tools, "safe_echo", text="hi") == "hi"
        forms = (await client.get(f"{web}/asked")).json()
        assert [form["client_secret"] for form in forms] == ["filled in"]
        await client.delete(f"{web}/asked")  # invalidates the token
        assert await answer(tools, "safe_echo", text="again") == "again"
        assert len((await client.get(f"{web}/asked")).json()) == 2


# ---- change ------------------------------------------------------------------------------------


async def test_file_changes_apply_to_later_runs(tmp_path: Path, web: str) -> None:
    entry = {"url": f"{web}/mcp"}
    async with mcp(tmp_path, {"a": entry}) as servers:
        await tools_of(servers)
        first = await servers.current_tools()
        assert await servers.current_tools() == first
        written(tmp_path, {"a": entry}, skills={"x": {"enabled": False}})
        assert (await servers.current_tools()).version == first.version
        written(tmp_path, {"a": entry, "b": entry})
        await tools_of(servers)
        second = await servers.current_tools()
        assert second != first
        assert {"a_echo", "b_echo"} <= named(second.tools)
        assert next(t for t in second.tools if t.name == "a_echo") in first.tools
        written(tmp_path, {"a": {**entry, "enabled": False}})
        assert await tools_of(servers) == ()
        assert await answer(first.tools, "a_echo", text="still") == "still"
        (tmp_path / "extensions_config.json").write_text("{")
        assert await tools_of(servers) == ()


async def test_colliding_names_become_unique(tmp_path: Path, web: str) -> None:
    entry = {"url": f"{web}/mcp"}
    async with mcp(tmp_path, {"a b": entry, "a.b": entry}) as servers:
        tools = await tools_of(servers)
        echoes = [tool for tool in tools if tool.name.startswith("a_b_echo")]
        assert len(named(tools)) == len(tools)
        assert len(echoes) == 2
        for tool in echoes:
            assert await answer(tools, tool.name, text="x") == "x"


async def test_a_new_run_sees_a_new_server_and_graphs_are_shared(tmp_path: Path, web: str) -> None:
    file = written(tmp_path, {})
    turn = ModelReply(calls=(call("web_echo", text="hi"),))
    async with open_agent(tmp_path, ScriptedChatModel.playing(turn, "no", turn, "yes")) as harness:
        assert "web_echo is not a valid tool" in told(await harness.say("go"))[0]
        written(tmp_path, {"web": {"url": f"{web}/mcp"}})
        await tools_of(harness.services.mcp)
        assert told(await harness.say("go"))[1] == "hi"
        config: RunnableConfig = {"configurable": {"thread_id": THREAD}}
        assert await harness.factory.graph_for(config) is await harness.factory.graph_for(config)
    assert file.exists()


async def test_a_passport_covers_mcp_tools(tmp_path: Path, web: str) -> None:
    file = written(tmp_path, {"web": {"url": f"{web}/mcp"}})
    passport = {"spec_version": "oap/1.0", "capabilities": [{"id": "mcp.tool.execute"}]}
    guard = {"enabled": True, "provider": {"use": "oap", "config": {"passport": passport}}}
    turn = ModelReply(calls=(call("web_echo", text="hi"), call("ls", path="/mnt")))
    model = ScriptedChatModel.playing(turn, "done")
    async with open_agent(tmp_path, model, {"guardrails": guard}, extensions=file) as harness:
        await tools_of(harness.services.mcp)
        said = told(await harness.say("go"))
        assert said[0] == "hi"
        assert "(oap.tool_not_allowed)" in said[1]


# ---- interceptors ------------------------------------------------------------------------------


def shouting() -> Any:  # noqa: ANN401 - an interceptor
    async def shout(request: Any, handler: Any) -> Any:  # noqa: ANN401 - the adapter's types
        return await handler(request.override(args={"text": request.args["text"].upper()}))

    return shout


def raising() -> Any:  # noqa: ANN401 - an interceptor
    async def refuse(request: Any, handler: Any) -> Any:  # noqa: ANN401 - the adapter's types
        raise RuntimeError("hush-hush")

    return refuse


def numbering() -> Any:  # noqa: ANN401 - an interceptor
    numbers = count()

    async def number(request: Any, handler: Any) -> Any:  # noqa: ANN401 - the adapter's types
        return await handler(request.override(headers={"X-Number": str(next(numbers))}))

    return number


async def test_calls_with_headers_of_their_own_leave_no_sessions(tmp_path: Path, web: str) -> None:
    entry = {"web": {"url": f"{web}/mcp"}}
    async with mcp(tmp_path, entry, interceptors=[f"{HERE}:numbering"]) as servers:
        tools = await tools_of(servers)
        for text in "abc":
            assert await answer(tools, "web_echo", text=text) == text
        await eventually(lambda: len(servers.sessions) == 0)


async def test_interceptors_wrap_calls(tmp_path: Path, web: str) -> None:
    entry = {"web": {"url": f"{web}/mcp"}}
    async with mcp(tmp_path, entry, interceptors=[f"{HERE}:shouting"]) as servers:
        assert await answer(await tools_of(servers), "web_echo", text="hi") == "HI"
    async with mcp(tmp_path, entry, interceptors=[f"{HERE}:raising"]) as servers:
        said = await answer(await tools_of(servers), "web_echo", text="hi")
        assert said == "Error: MCP server 'web' failed: unexpected error (RuntimeError)"


@pytest.mark.parametrize(
    "use", ["nowhere:thing", f"{HERE}:HERE", f"{HERE}:call", "json:JSONDecoder"]
)
async def test_a_broken_interceptor_disables_mcp(tmp_path: Path, web: str, use: str) -> None:
    async with mcp(tmp_path, {"web": {"url": f"{web}/mcp"}}, interceptors=[use]) as servers:
        assert await tools_of(servers) == ()
        (status,) = await servers.statuses()
        assert (status.name, status.state) == ("mcpInterceptors", "failed")


# ---- cost --------------------------------------------------------------------------------------


def test_without_servers_the_sdk_is_not_imported(tmp_path: Path) -> None:
    written(tmp_path, {"off": {"command": "x", "enabled": False}})
    script = f"""
import sys, anyio
from pathlib import Path
from agent.config import McpConfig
from agent.extensions import ExtensionsFile
from agent.mcp.registry import open_mcp
from agent.thread_storage import ThreadStorage
async def main():
    home = Path({str(tmp_path)!r})
    file = ExtensionsFile(home / "extensions_config.json")
    async with open_mcp(file, {{}}, McpConfig, ThreadStorage(home)) as servers:
        assert (await servers.current_tools()).tools == ()
        assert [s.state for s in await servers.statuses()] == ["disabled"]
anyio.run(main)
assert "mcp" not in sys.modules and "langchain_mcp_adapters" not in sys.modules
"""
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
