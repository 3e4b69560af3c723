"""Whole turns of the agent against model servers, through the providers' own packages."""

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from langchain.agents.middleware import AgentMiddleware
from langchain_core.messages import AIMessageChunk, HumanMessage, ToolMessage
from langchain_core.runnables import RunnableConfig
from langchain_core.tools import BaseTool
from langchain_core.utils.function_calling import convert_to_openai_tool
from langgraph.checkpoint.memory import InMemorySaver
from typing_extensions import override

from agent.config import AgentConfig
from agent.factory import AgentFactory, open_agent_factory
from agent.services import AgentSetup
from tests.agent.plain_agent import THREAD
from tests.fakes.model import FakeModelServer, ModelReply, ToolCall

LOOK = ModelReply(
    text="Looking. ", calls=(ToolCall("ls", {"path": "/mnt/user-data/workspace"}, id="c1"),)
)


def openai_at(server: FakeModelServer, **keys: object) -> dict[str, object]:
    return {
        "name": str(keys.pop("name", "gpt")),
        "use": "langchain_openai:ChatOpenAI",
        "model": str(keys.pop("model", "fake")),
        "api_key": "k",
        "base_url": server.base_url,
        "max_retries": 0,
        **keys,
    }


@asynccontextmanager
async def agents_with(home: Path, *models: Mapping[str, object]) -> AsyncIterator[AgentFactory]:
    config = AgentConfig.model_validate({"models": list(models), "memory": {"enabled": False}})
    async with open_agent_factory(AgentSetup(config=config, home=home), InMemorySaver()) as agents:
        yield agents


async def turn(
    agents: AgentFactory, said: str | list[Any], **context: object
) -> tuple[str, list[Any]]:
    """Run one turn. Return the streamed text and the thread's messages."""
    given = {"thread_id": THREAD, **context}
    config: RunnableConfig = {"configurable": given, "recursion_limit": 100}
    graph = await agents.graph_for(config)
    spoken = ""
    async for part in graph.astream(
        {"messages": [HumanMessage(said)]}, config, context=given, stream_mode="messages"
    ):
        assert isinstance(part, tuple)
        if isinstance(part[0], AIMessageChunk):
            spoken += part[0].text
    state = await graph.aget_state(config)
    return spoken, state.values["messages"]


class SeesTools(AgentMiddleware[Any, Any]):
    """Middleware of an embedding program. It records the tools it sees, and offers only `ls` to the model."""

    def __init__(self) -> None:
        super().__init__()
        self.offered: list[object] = []

    @override
    async def awrap_model_call(self, request: Any, handler: Any) -> Any:
        self.offered += request.tools
        tools = [tool for tool in request.tools if tool.name == "ls"]
        return await handler(request.override(tools=tools))


async def test_a_program_s_middleware_sees_the_tools_and_the_server_their_schemas(
    tmp_path: Path,
) -> None:
    own = SeesTools()
    async with FakeModelServer() as server:
        server.reply("Hello.", "Hello again.")
        config = AgentConfig.model_validate(
            {"models": [openai_at(server)], "memory": {"enabled": False}}
        )
        setup = AgentSetup(config=config, home=tmp_path)
        async with open_agent_factory(setup, InMemorySaver(), middleware=[own]) as agents:
            for _ in range(2):
                await turn(agents, "hi")
        asked = [request.body["tools"] for request in server.requests]
    assert own.offered
    assert all(isinstance(tool, BaseTool) for tool in own.offered)
    (ls,) = [tool for tool in own.offered if isinstance(tool, BaseTool) and tool.name == "ls"][:1]
    assert asked == [[convert_to_openai_tool(ls)]] * 2


async def test_the_responses_api(tmp_path: Path) -> None:
    async with FakeModelServer() as server:
        server.reply(LOOK, "It is empty.", "Still.")
        entry = openai_at(server, use_responses_api=True)
        async with agents_with(tmp_path, entry) as agents:
            spoken, messages = await turn(agents, "look")
            assert spoken == "Looking. It is empty."
            assert [type(m).__name__ for m in messages] == [
                "HumanMessage", "AIMessage", "ToolMessage", "AIMessage",
            ]  # fmt: skip
            assert messages[-1].usage_metadata["total_tokens"] > 0
            again, _ = await turn(agents, "and now?")
            assert again == "Still."
    kinds = [item.get("type") or item.get("role") for item in server.requests[1].body["input"]]
    assert kinds[-2:] == ["function_call", "function_call_output"]
    assert "messages" not in server.requests[0].body


async def test_half_a_surrogate_pair_does_not_end_an_answer(tmp_path: Path) -> None:
    async with FakeModelServer() as server:
        server.reply("a\ud800b and c")
        async with agents_with(tmp_path, openai_at(server)) as agents:
            spoken, _ = await turn(agents, "hi")
    assert spoken == "a\ufffdb and c"


async def test_a_model_that_sees_gets_the_picture(tmp_path: Path) -> None:
    picture = {"type": "image_url", "image_url": {"url": "data:image/png;base64,iVBORw0KGgo="}}
    async with (
        FakeModelServer() as server,
        agents_with(tmp_path, openai_at(server, supports_vision=True)) as agents,
    ):
        await turn(agents, [{"type": "text", "text": "what is it?"}, picture])
    [said] = [m for m in server.requests[0].messages if m["role"] == "user"]
    assert [block["type"] for block in said["content"]] == ["text", "image_url"]


@pytest.mark.parametrize("supported", [True, False])
async def test_reasoning_effort_goes_to_models_that_know_it(
    tmp_path: Path, *, supported: bool
) -> None:
    async with FakeModelServer() as server:
        entry = openai_at(server, supports_reasoning_effort=supported)
        async with agents_with(tmp_path, entry) as agents:
            await turn(agents, "hi", reasoning_effort="high")
    assert server.requests[0].body.get("reasoning_effort") == ("high" if supported else None)


@pytest.mark.parametrize("thinks", [True, False])
async def test_thinking_is_switched_in_the_providers_own_words(
    tmp_path: Path, *, thinks: bool
) -> None:
    on = {"extra_body": {"chat_template_kwargs": {"enable_thinking": True}}}
    async with FakeModelServer() as server:
        entry = openai_at(server, supports_thinking=True, when_thinking_enabled=on)
        async with agents_with(tmp_path, entry) as agents:
            await turn(agents, "hi", thinking_enabled=thinks)
    assert server.requests[0].body["chat_template_kwargs"] == {"enable_thinking": thinks}


async def test_a_conversation_asks_the_model_that_was_chosen_for_it(tmp_path: Path) -> None:
    async with FakeModelServer() as first, FakeModelServer() as second:
        models = openai_at(first, name="a"), openai_at(second, name="b")
        async with agents_with(tmp_path, *models) as agents:
            await turn(agents, "one")
            await turn(agents, "two", model_name="b")
            await turn(agents, "three", model_name="nothing")
    assert [len(server.requests) for server in (first, second)] == [2, 1]
    assert [m["content"] for m in second.requests[0].messages if m["role"] == "user"] == [
        "one",
        "two",
    ]


async def test_when_a_model_fails_the_next_one_answers(tmp_path: Path) -> None:
    async with FakeModelServer() as first, FakeModelServer() as second:
        first.answer = lambda _: ModelReply(status=401)
        second.reply(LOOK, "Nothing there.")
        models = openai_at(first, name="a"), openai_at(second, name="b")
        async with agents_with(tmp_path, *models) as agents:
            spoken, messages = await turn(agents, "look")
    assert spoken == "Looking. Nothing there."
    assert any(isinstance(message, ToolMessage) for message in messages)


# ---- Anthropic ---------------------------------------------------------------------------------

THINKING = {"type": "enabled", "budget_tokens": 1024}


def claude_at(server: FakeModelServer, **keys: object) -> dict[str, object]:
    return {
        "name": "claude",
        "use": "langchain_anthropic:ChatAnthropic",
        "model": "claude-fake",
        "api_key": "sk-ant",
        "base_url": server.anthropic_url,
        "max_retries": 0,
        "max_tokens": 2048,
        **keys,
    }


async def test_anthropics_package_with_thinking_and_a_tool(tmp_path: Path) -> None:
    async with FakeModelServer() as server:
        server.reply(
            replace(LOOK, reasoning="I must look."),
            ModelReply(reasoning="Nothing.", text="It is empty."),
        )
        entry = claude_at(server, supports_thinking=True, thinking=THINKING)
        async with agents_with(tmp_path, entry) as agents:
            spoken, messages = await turn(agents, "look", thinking_enabled=True)
    assert spoken == "Looking. It is empty."
    assert messages[-1].text == "It is empty."
    assert all("sk-ant" in str(request.headers) for request in server.requests)
    first, second = (request.body for request in server.requests)
    assert first["thinking"] == THINKING
    assert isinstance(first["system"], str | list)
    # The thinking is sent back with its signature. Otherwise the provider refuses the tool result.
    sent = second["messages"][1]["content"]
    assert [block["type"] for block in sent] == ["thinking", "text", "tool_use"]
    assert (sent[0]["thinking"], sent[0]["signature"]) == ("I must look.", "sig-1")
    assert second["messages"][2]["content"][0]["type"] == "tool_result"


async def test_anthropics_package_without_thinking(tmp_path: Path) -> None:
    async with FakeModelServer() as server:
        server.reply("Hello.")
        entry = claude_at(server, supports_thinking=True, thinking=THINKING)
        async with agents_with(tmp_path, entry) as agents:
            spoken, _ = await turn(agents, "hi", thinking_enabled=False)
    assert spoken == "Hello."
    assert server.requests[0].body["thinking"] == {"type": "disabled"}


async def test_another_provider_takes_over_a_conversation_with_thinking(tmp_path: Path) -> None:
    async with FakeModelServer() as claude, FakeModelServer() as gpt:
        claude.reply(ModelReply(reasoning="Hm.", text="One."), ModelReply(status=529))
        claude_entry = claude_at(claude, supports_thinking=True, thinking=THINKING)
        models = claude_entry, openai_at(gpt)
        async with agents_with(tmp_path, *models) as agents:
            await turn(agents, "first")
            await turn(agents, "second", model_name="gpt")
    said = [(m["role"], m["content"]) for m in gpt.requests[0].messages if m["role"] != "system"]
    assert [role for role, _ in said] == ["user", "assistant", "user"]
    assert "One." in str(said[1][1])
    assert "sig-1" not in str(said)
