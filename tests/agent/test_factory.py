"""The lead agent as a whole: the real model class against a model server, cached graphs, options, folders."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import openai
import pytest
from blockbuster import blockbuster_ctx
from langchain_core.messages import AIMessageChunk, HumanMessage, ToolMessage
from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.sqlite.aio import AsyncSqliteSaver
from langgraph.types import StreamMode

from agent.config import AgentConfig
from agent.errors import ModelUnusable, ObjectNotImportable, ThreadIdInvalid, ThreadIdMissing
from agent.factory import MAX_CACHED_GRAPHS, AgentGraph, open_agent_factory
from agent.options import RunOptions, thread_id_for_run
from agent.paths import OUTPUTS
from agent.prompt import system_prompt
from agent.sandbox.bubblewrap import probe_bubblewrap
from agent.services import AgentSetup
from agent.thread_storage import ThreadStorage
from tests.agent.agent_harness import open_agent
from tests.agent.plain_agent import CONFIG, THREAD
from tests.fakes.model import FakeModelServer, ModelReply, ToolCall
from tests.fakes.scripted import ScriptedChatModel


def configured(server: FakeModelServer, *, attempts: int = 3, **keys: object) -> AgentConfig:
    model = {
        "name": "fake",
        "use": "langchain_openai:ChatOpenAI",
        "model": "fake",
        "api_key": "test",
        "base_url": server.base_url,
        "max_retries": 0,
        **keys,
    }
    # Memory is off: it would call the same server when the agent closes.
    sections = {"memory": {"enabled": False}, "llm_retry": {"max_attempts": attempts}}
    return AgentConfig.model_validate({"models": [model], **sections})


@asynccontextmanager
async def lead(home: Path, config: AgentConfig) -> AsyncIterator[AgentGraph]:
    async with AsyncSqliteSaver.from_conn_string(str(home / "checkpoints.db")) as checkpointer:
        site = AgentSetup(config=config, home=home)
        async with open_agent_factory(site, checkpointer) as agents:
            yield await agents.graph_for({})


def question(text: str) -> dict[str, list[HumanMessage]]:
    return {"messages": [HumanMessage(text)]}


async def test_a_turn_with_tools_through_a_real_model_class(tmp_path: Path) -> None:
    path = f"{OUTPUTS}/a.txt"
    async with FakeModelServer() as server, lead(tmp_path, configured(server)) as graph:
        server.reply(
            ModelReply(
                text="Writing. ", calls=(ToolCall("write_file", {"path": path, "content": "hi"}),)
            ),
            ModelReply(calls=(ToolCall("present_files", {"filepaths": [path]}),)),
            "Here it is.",
        )
        chunks = [
            part[0]
            async for part in graph.astream(question("a file"), CONFIG, stream_mode="messages")
            if isinstance(part, tuple)
        ]
        state = (await graph.aget_state(CONFIG)).values
    spoken = "".join(chunk.text for chunk in chunks if isinstance(chunk, AIMessageChunk))
    assert spoken == "Writing. Here it is."
    assert state["artifacts"] == [path]
    assert state["title"] == "a file"
    assert (ThreadStorage(tmp_path).folders(THREAD).outputs / "a.txt").read_text() == "hi"
    first, _, last = server.requests
    assert [message["role"] for message in last.messages] == [
        *("system", "user", "assistant", "tool", "assistant", "tool")
    ]
    assert [name for name in first.tool_names if "bash" not in name] == [
        *("ls", "read_file", "write_file", "str_replace", "glob", "grep"),
        *("present_files", "ask_clarification"),
    ]
    assert state["messages"][-1].usage_metadata["output_tokens"] > 0
    assert all(request.finished for request in server.requests)


@pytest.mark.parametrize("streaming", [False, True], ids=["invoked", "streamed"])
async def test_a_cancelled_turn_closes_the_model_s_request_and_the_thread_works(
    tmp_path: Path, *, streaming: bool
) -> None:
    async with FakeModelServer() as server, lead(tmp_path, configured(server)) as graph:
        server.reply(ModelReply(text="This never ends", hang_after=1))

        mode: StreamMode = "messages" if streaming else "values"
        tasks: list[asyncio.Task[object] | None] = []

        async def turn() -> None:
            tasks.append(asyncio.current_task())
            async for _ in graph.astream(question("on and on"), CONFIG, stream_mode=mode):
                pass

        async with anyio.create_task_group() as group:
            group.start_soon(turn)
            await server.until(lambda s: len(s.requests) == 1)
            # Cancel once, like a stopped run. An anyio scope would also cancel the closing of the connection.
            assert tasks[0] is not None
            tasks[0].cancel()
        await server.until(lambda s: s.requests[0].closed_by_client)
        state = await graph.ainvoke(question("and now?"), CONFIG)
    assert state["messages"][-1].text == "You said: and now?"


@pytest.mark.parametrize(
    ("reply", "reason"),
    [
        (ModelReply(status=500), "server"),
        (ModelReply(status=429, headers={"retry-after": "3600"}), "rate_limit"),
        (ModelReply(text="one two three", drop_after=1), "connection"),
    ],
    ids=["500", "429", "dropped"],
)
async def test_a_failing_model_is_reported_and_the_next_turn_works(
    tmp_path: Path, reply: ModelReply, reason: str
) -> None:
    async with (
        FakeModelServer() as server,
        lead(tmp_path, configured(server, attempts=1)) as graph,
    ):
        server.reply(reply)
        state = await graph.ainvoke(question("one"), CONFIG)
        assert state["messages"][-1].additional_kwargs["error_reason"] == reason
        state = await graph.ainvoke(question("two"), CONFIG)
    assert state["messages"][-1].text == "You said: two"
    assert not server.requests[0].closed_by_client


async def test_the_server_answers_without_streaming_too() -> None:
    async with FakeModelServer() as server:
        server.reply(
            ModelReply(text="Hello", reasoning="hm", calls=(ToolCall("ls", {"path": "x"}),))
        )
        client = openai.AsyncOpenAI(base_url=server.base_url, api_key="test", max_retries=0)
        async with client:
            said = await client.chat.completions.create(
                model="fake", messages=[{"role": "user", "content": "hi"}]
            )
            models = await client.models.list()
    message = said.choices[0].message
    assert (message.content, said.choices[0].finish_reason) == ("Hello", "tool_calls")
    assert (message.model_extra or {})["reasoning"] == "hm"
    assert said.usage is not None
    assert [model.id for model in models.data] == ["fake"]


async def test_nothing_blocks_the_loop(tmp_path: Path) -> None:
    demo = {"name": "d", "use": "agent.models.demo:DemoChatModel", "model": "d", "delay_s": 0}
    async with lead(tmp_path, AgentConfig.model_validate({"models": [demo]})) as graph:
        with blockbuster_ctx(scanned_modules=["agent"]):
            await graph.ainvoke(question("write a file a.txt"), CONFIG)
            state = await graph.ainvoke(question("list files"), CONFIG)
    results = [message for message in state["messages"] if isinstance(message, ToolMessage)]
    assert [message.status for message in results] == ["success"] * 5


# ---- graphs and options ------------------------------------------------------------------------

TWO = AgentConfig.model_validate(
    {
        "models": [
            {"name": "plain", "use": "agent.models.demo:DemoChatModel", "model": "plain"},
            {
                "name": "deep",
                "use": "agent.models.demo:DemoChatModel",
                "model": "deep",
                "supports_thinking": True,
                "supports_reasoning_effort": True,
            },
        ]
    }
)


def asked(**options: object) -> RunnableConfig:
    return {"configurable": {"thread_id": "t", **options}}


async def test_equal_options_share_a_graph(tmp_path: Path) -> None:
    async with open_agent_factory(AgentSetup(config=TWO, home=tmp_path)) as agents:
        plain = await agents.graph_for(asked())
        assert await agents.graph_for(asked(model_name="plain", thread_id="other")) is plain
        assert (
            await agents.graph_for(asked(thinking_enabled=False)) is plain
        )  # this model cannot think
        assert await agents.graph_for(asked(reasoning_effort="high")) is plain
        deep = await agents.graph_for(asked(model_name="deep"))
        assert deep is not plain
        assert await agents.graph_for(asked(model_name="deep", thinking_enabled=False)) is not deep
        assert await agents.graph_for(asked(model_name="deep", reasoning_effort="high")) is not deep
        assert await agents.graph_for(asked(is_bootstrap=True)) is not plain
        assert await agents.graph_for(asked()) is plain


async def test_the_number_of_graphs_is_bounded(tmp_path: Path) -> None:
    async with open_agent_factory(AgentSetup(config=TWO, home=tmp_path)) as agents:
        first = await agents.graph_for(asked(model_name="deep", reasoning_effort="0"))
        for n in range(1, MAX_CACHED_GRAPHS + 1):
            await agents.graph_for(asked(model_name="deep", reasoning_effort=str(n)))
        assert len(agents._graphs) == MAX_CACHED_GRAPHS
        assert await agents.graph_for(asked(model_name="deep", reasoning_effort="0")) is not first


async def test_an_unknown_model_falls_back_with_a_warning(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with open_agent_factory(AgentSetup(config=TWO, home=tmp_path)) as agents:
        assert await agents.graph_for(asked(model_name="none")) is await agents.graph_for(asked())
    assert "Unknown model 'none'" in caplog.text


async def test_runs_that_ask_at_once_share_a_graph(tmp_path: Path) -> None:
    found: list[AgentGraph] = []
    async with open_agent_factory(AgentSetup(config=TWO, home=tmp_path)) as agents:

        async def ask() -> None:
            found.append(await agents.graph_for({}))

        await agents.warm_up()
        async with anyio.create_task_group() as tasks:
            for _ in range(5):
                tasks.start_soon(ask)
        assert len(agents._graphs) == 1
    assert len(set(map(id, found))) == 1


async def test_another_configuration_holds_for_later_runs(tmp_path: Path) -> None:
    async with open_agent_factory(AgentSetup(config=TWO, home=tmp_path)) as agents:
        before = await agents.graph_for({})
        bad = AgentConfig.model_validate({"tools": [{"name": "x", "group": "g", "use": "no_x:x"}]})
        with pytest.raises(ObjectNotImportable):
            await agents.replace_config(bad)
        assert await agents.graph_for({}) is before
        await agents.replace_config(AgentConfig())
        assert await agents.graph_for({}) is not before
        assert agents.services.config.get() == AgentConfig()


async def test_mistakes_in_the_configuration_show_when_they_can_be_mended(tmp_path: Path) -> None:
    tools = {"tools": [{"name": "x", "group": "g", "use": "no_such_module:x"}]}
    sandbox = {"sandbox": {"use": "no_such_module:X"}}
    for data in (tools, sandbox):
        with pytest.raises(ObjectNotImportable):
            async with open_agent_factory(
                AgentSetup(config=AgentConfig.model_validate(data), home=tmp_path)
            ):
                raise AssertionError("it opened")
    model = {"models": [{"name": "m", "use": "no_such_module:X", "model": "m"}]}
    async with open_agent_factory(
        AgentSetup(config=AgentConfig.model_validate(model), home=tmp_path)
    ) as agents:
        with pytest.raises(ModelUnusable):
            await agents.graph_for({})


def test_options_are_read_from_configurable_and_context() -> None:
    config: RunnableConfig = {"configurable": {"model_name": "a", "is_plan_mode": True}}
    assert RunOptions.from_config(config) == RunOptions(model_name="a", is_plan_mode=True)
    assert RunOptions.from_config({}) == RunOptions()
    wrong = {"model_name": 3, "thinking_enabled": "yes", "max_concurrent_subagents": True}
    assert RunOptions.from_config({"configurable": wrong}) == RunOptions()


class _Context:
    thread_id = "by-attribute"


@pytest.mark.parametrize(
    ("context", "config", "found"),
    [
        ({"thread_id": "c"}, {"configurable": {"thread_id": "k"}}, "c"),
        (None, {"configurable": {"thread_id": "k"}}, "k"),
        ({}, {"configurable": {"thread_id": "k"}}, "k"),
        ({"thread_id": None}, {"configurable": {"thread_id": "k"}}, "k"),
        (_Context(), None, "by-attribute"),
    ],
)
def test_the_thread_id_has_two_sources(
    context: object, config: dict[str, object] | None, found: str
) -> None:
    assert thread_id_for_run(context, config) == found


@pytest.mark.parametrize("config", [None, {}, {"configurable": None}, {"configurable": {}}])
def test_no_thread_id_is_an_error(config: dict[str, object] | None) -> None:
    with pytest.raises(ThreadIdMissing, match="Thread ID is required"):
        thread_id_for_run(None, config)


def test_the_prompt_is_stable_and_knows_bootstrap() -> None:
    assert system_prompt(RunOptions()) == system_prompt(RunOptions(model_name="other"))
    assert "<bootstrap>" in system_prompt(RunOptions(is_bootstrap=True))
    assert "<bootstrap>" not in system_prompt(RunOptions())


REACHES, REACHES_NOT = "Commands can reach the network.", "Commands have no network access"


def docker_on(network: str) -> dict[str, Any]:
    return {"use": "docker", "docker": {"command": "sh", "network": network}}


@pytest.mark.parametrize(
    ("sandbox", "told"),
    [
        ({"use": "local", "allow_host_bash": True}, REACHES),
        (docker_on("none"), REACHES_NOT),
        (docker_on("internal"), REACHES_NOT),
        (docker_on("bridge"), REACHES),
        (docker_on("host"), REACHES),
        (docker_on("our-own"), None),
        ({"use": "bubblewrap"}, REACHES_NOT),
    ],
)
async def test_bash_says_whether_commands_reach_the_network(
    tmp_path: Path, sandbox: dict[str, Any], told: str | None
) -> None:
    if sandbox["use"] == "bubblewrap" and (fault := probe_bubblewrap()):
        pytest.skip(f"bubblewrap does not work here: {fault}")
    async with FakeModelServer() as server:
        entry = {"name": "server", "use": "langchain_openai:ChatOpenAI", "model": "fake"}
        config = {
            "models": [{**entry, "api_key": "k", "base_url": server.base_url}],
            "sandbox": sandbox,
            "title": {"enabled": False},
        }
        async with open_agent(tmp_path, ScriptedChatModel.playing(), config) as agent:
            await agent.say("hello", model_name="server")
    (request,) = server.requests
    (bash,) = [t["function"] for t in request.body["tools"] if t["function"]["name"] == "bash"]
    assert (told or "bash command") in bash["description"]
    assert bash["description"].count("network") == bool(told)
    assert "network" not in str(request.body["messages"][0])


# ---- folders -----------------------------------------------------------------------------------


def test_folders_are_made_and_deleted(tmp_path: Path) -> None:
    folders = ThreadStorage(tmp_path)
    thread = folders.folders(THREAD)
    assert not folders.delete(THREAD)
    thread.create()
    thread.create()
    (thread.outputs / "a").write_text("x")
    assert thread.outputs == tmp_path.resolve() / "threads" / THREAD / "user-data" / "outputs"
    assert thread.outputs.stat().st_mode & 0o777 == 0o700
    assert folders.delete(THREAD)
    assert not thread.root.exists()


@pytest.mark.parametrize("thread_id", ["", ".", "..", "a/b", "a\\b", "a b", "ä", "x" * 65, "a\n"])
def test_a_bad_thread_id_names_no_folder(tmp_path: Path, thread_id: str) -> None:
    with pytest.raises(ThreadIdInvalid):
        ThreadStorage(tmp_path).folders(thread_id)


def test_deleting_does_not_follow_a_link(tmp_path: Path) -> None:
    (tmp_path / "threads").mkdir()
    (tmp_path / "precious").mkdir()
    (tmp_path / "threads" / "t").symlink_to(tmp_path / "precious")
    assert not ThreadStorage(tmp_path).delete("t")
    assert (tmp_path / "precious").exists()
