"""Hundreds of tools: requests stay small, and the model can call each tool after one search."""

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from langchain_core.messages import ToolMessage
from langchain_core.tools import BaseTool, StructuredTool

from agent.state import MAX_PROMOTED, PromotedTools, merge_promoted
from agent.tools.tool_search import MAX_LISTED, NAME, ToolCatalog
from tests.agent.agent_harness import AgentHarness, open_agent
from tests.agent.test_mcp import tools_of, written
from tests.eventually import eventually
from tests.fakes.mcp_many import many_tools
from tests.fakes.model import FakeModelServer, ModelReply, ModelRequest, ToolCall
from tests.fakes.model_switches import ModelSwitches
from tests.fakes.scripted import ScriptedChatModel

FIRST_REQUEST_TOKENS = 8_000
MAX_TOOLS = 128


def custom(number: int) -> BaseTool:
    """Return a tool of the configuration."""

    async def work(amount: int) -> str:
        return f"{number} {amount}"

    return StructuredTool.from_function(
        coroutine=work, name=f"custom_{number}", description=f"Do the custom work {number}."
    )


@asynccontextmanager
async def agent_with_many_tools(
    folder: Path, server: FakeModelServer, servers: int, tools: int, config: Mapping[str, Any] = {}
) -> AsyncIterator[AgentHarness]:
    """Open an agent that calls a model server and has `servers` MCP servers with `tools` tools each."""
    entry = {"name": "server", "use": "langchain_openai:ChatOpenAI", "model": "fake"}
    entry |= {"api_key": "k", "base_url": server.base_url}
    file = written(folder, {f"office{n}": many_tools(tools) for n in range(servers)})
    sections = {"models": [entry], "memory": {"enabled": False}, **config}
    async with open_agent(
        folder, ScriptedChatModel.playing(), sections, extensions=file
    ) as harness:
        await eventually(
            lambda: tools_of(harness.services.mcp),
            lambda found: len(found) == servers * tools,
            within_s=60,
        )
        yield harness


def plan(*calls: tuple[str, dict[str, Any]]) -> Any:  # noqa: ANN401 - an answer
    """Return an answer function that makes one of these calls for each message."""

    def answer(request: ModelRequest) -> ModelReply:
        turn = sum(message["role"] == "user" for message in request.messages) - 1
        since = [message["role"] for message in reversed(request.messages)].index("user")
        steps = list(calls[turn : turn + 1]) if since == 0 else []
        if since and calls[turn][0] == NAME and since == 2:
            name = calls[turn][1]["query"]
            steps = [(name, {"customer": "c", "amount": turn})]
        return (
            ModelReply(calls=tuple(ToolCall(n, a) for n, a in steps))
            if steps
            else ModelReply("Done.")
        )

    return answer


async def test_any_of_500_tools_is_callable_after_one_search(tmp_path: Path) -> None:
    names = [f"office{n % 5}_update_invoice_{n * 19 % 100}" for n in range(6)]
    switches = ModelSwitches(max_tools=MAX_TOOLS, caches_prefixes=True)
    answer = plan(*((NAME, {"query": name}) for name in names))
    async with (
        FakeModelServer(switches, answer=answer) as server,
        agent_with_many_tools(tmp_path, server, servers=5, tools=100) as harness,
    ):
        messages = [await harness.say("work", model_name="server") for _ in names][-1]
        state = await harness.state(model_name="server")
    assert server.refusals == []
    assert server.requests[0].tokens <= FIRST_REQUEST_TOKENS
    results = [m for m in messages if isinstance(m, ToolMessage) and m.name != NAME]
    assert [result.text for result in results] == [f"updated {n} for c" for n in range(6)]
    assert state["promoted"]["names"] == names
    # Each request's tools start with those of the previous request.
    for earlier, later in pairwise(request.tool_names for request in server.requests):
        assert later[: len(earlier)] == earlier


async def test_words_find_tools_and_unknown_words_say_so(tmp_path: Path) -> None:
    answer = plan((NAME, {"query": "please update the invoice 42"}), (NAME, {"query": "xyzzy"}))
    async with (
        FakeModelServer(answer=answer) as server,
        agent_with_many_tools(tmp_path, server, servers=1, tools=60) as harness,
    ):
        (loaded,) = [m for m in await harness.say("one", model_name="server") if m.type == "tool"][
            :1
        ]
        state = await harness.state(model_name="server")
        messages = await harness.say("two", model_name="server")
    assert "office0_update_invoice_42" in loaded.text
    assert state["promoted"]["names"][0] == "office0_update_invoice_42"
    assert "No tool matches 'xyzzy'" in [m for m in messages if m.name == NAME][-1].text


async def test_a_subagent_searches_too(tmp_path: Path) -> None:
    task = {"description": "d", "prompt": "work alone", "subagent_type": "general-purpose"}
    name = "office0_update_invoice_7"

    def answer(request: ModelRequest) -> ModelReply:
        is_subagent = "work alone" in request.user_texts[0]
        results = sum(message["role"] == "tool" for message in request.messages)
        steps: list[tuple[str, dict[str, Any]]] = [
            (NAME, {"query": name}),
            (name, {"customer": "c", "amount": 3}),
        ]
        calls = steps[results : results + 1] if is_subagent else [("task", task)][results:]
        return (
            ModelReply(calls=tuple(ToolCall(n, a) for n, a in calls))
            if calls
            else ModelReply("End.")
        )

    async with (
        FakeModelServer(ModelSwitches(max_tools=MAX_TOOLS), answer=answer) as server,
        agent_with_many_tools(tmp_path, server, servers=1, tools=200) as harness,
    ):
        await harness.say("delegate", model_name="server", subagent_enabled=True)
    alone = [request for request in server.requests if "work alone" in request.user_texts[0]]
    assert server.refusals == []
    assert [name in request.tool_names for request in alone] == [False, True, True]
    assert alone[-1].messages[-1]["content"] == "updated 3 for c"
    assert all(request.tokens <= FIRST_REQUEST_TOKENS for request in alone)


async def test_a_few_tools_are_in_every_request(tmp_path: Path) -> None:
    async with (
        FakeModelServer() as server,
        agent_with_many_tools(tmp_path, server, servers=1, tools=20) as harness,
    ):
        await harness.say("hello", model_name="server")
    assert NAME not in server.requests[0].tool_names
    assert "office0_update_invoice_0" in server.requests[0].tool_names


def test_many_or_large_schemas_are_deferred() -> None:
    few, many = [[custom(n) for n in range(count)] for count in (MAX_LISTED, MAX_LISTED + 1)]
    assert ToolCatalog.of(few) is None
    catalog = ToolCatalog.of(many)
    assert catalog is not None
    assert list(catalog.tools) == [tool.name for tool in many]
    large = many[0].model_copy(update={"description": "word " * 5_000})
    assert ToolCatalog.of([large]) is not None


def test_names_that_do_not_fit_are_counted() -> None:
    tools = [custom(0).model_copy(update={"name": f"{'n' * 60}{n}"}) for n in range(500)]
    catalog = ToolCatalog.of(tools)
    assert catalog is not None
    text = catalog.names_text()
    assert text.endswith("more: search by words")
    assert len(text) < 15_000


@pytest.mark.parametrize(
    ("existing", "new", "names"),
    [
        (None, ["a"], ["a"]),
        (["a", "b"], ["c", "a"], ["a", "b", "c"]),
        (
            [f"t{n}" for n in range(MAX_PROMOTED)],
            ["new"],
            [*(f"t{n}" for n in range(1, MAX_PROMOTED)), "new"],
        ),
        (
            [f"t{n}" for n in range(MAX_PROMOTED)],
            ["t0", "new"],
            ["t0", *(f"t{n}" for n in range(2, MAX_PROMOTED)), "new"],
        ),
    ],
)
def test_promoted_tools_are_bounded(
    existing: list[str] | None, new: list[str], names: list[str]
) -> None:
    before = PromotedTools(catalog_hash="h", names=existing) if existing is not None else None
    merged = merge_promoted(before, PromotedTools(catalog_hash="h", names=new))
    assert merged == {"catalog_hash": "h", "names": names}
    assert merge_promoted(before, PromotedTools(catalog_hash="other", names=["z"])) == {
        "catalog_hash": "other",
        "names": ["z"],
    }
    assert merge_promoted(before, None) == before


def numbered(number: int) -> BaseTool:
    """Build a tool of the configuration."""
    return custom(number)


async def test_a_custom_agent_finds_only_the_tools_of_its_groups(tmp_path: Path) -> None:
    """This holds even after another agent loaded other tools in the same thread."""
    count = 2 * (MAX_LISTED + 1)
    tools = [
        {
            "name": f"custom_{n}",
            "group": "even" if n % 2 == 0 else "odd",
            "use": f"{__name__}:numbered",
            "number": n,
        }
        for n in range(count)
    ]
    groups = [{"name": "even"}, {"name": "odd"}]
    folder = tmp_path / "agents" / "evens"
    folder.mkdir(parents=True)
    (folder / "config.yaml").write_text("tool_groups: [even]")
    calls = (
        (NAME, {"query": "custom_1"}),
        (NAME, {"query": "custom_1"}),
        (NAME, {"query": "custom_2"}),
    )
    search = [ModelReply(calls=(ToolCall(*call, f"c{n}"),)) for n, call in enumerate(calls)]
    async with FakeModelServer() as server:
        server.reply(search[0], "One.", search[1], "Two.", search[2], "Three.")
        config = {"tools": tools, "tool_groups": groups}
        async with agent_with_many_tools(tmp_path, server, 0, 0, config) as harness:
            await harness.say("one", model_name="server")
            await harness.say("two", model_name="server", agent_name="evens")
            messages = await harness.say("three", model_name="server", agent_name="evens")
    told = [message.text for message in messages if isinstance(message, ToolMessage)]
    assert "custom_1:" in told[0]
    assert "custom_1:" not in told[1]
    assert "custom_2:" in told[2]
    offered = [set(request.tool_names) for request in server.requests]
    assert "custom_1" in offered[1]
    assert all("custom_1" not in names for names in offered[2:])
    assert "custom_2" in offered[5]


def test_a_word_that_is_a_tool_s_name_hides_no_other_tool() -> None:
    catalog = ToolCatalog.of([*map(custom, range(MAX_LISTED + 1)), named("work"), named("paint")])
    assert catalog is not None
    found = [tool.name for tool in catalog.find("paint custom_7 pictures of work")]
    assert found[:3] == ["paint", "custom_7", "work"]
    assert len(found) > 3
    assert [tool.name for tool in catalog.find("work, paint")] == ["work", "paint"]


def named(name: str) -> BaseTool:
    return StructuredTool.from_function(lambda: "", name=name, description=name)
