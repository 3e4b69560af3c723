"""The providers' own web search and citations: their real packages against servers that respond in their formats."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from bots.feishu.format import render as render_for_feishu
from bots.slack.format import render as render_for_slack
from bots.telegram.format import render as render_for_telegram
from tests.agent.agent_harness import AgentHarness, open_agent
from tests.fakes.model import FakeModelServer, ModelReply
from tests.fakes.scripted import ScriptedChatModel

SOURCES = (
    ("https://news.example.org/a_(b)?x=1&y=2", "The [big] *story*"),
    ("https://news.example.org/a_(b)?x=1&y=2", "The same again"),
    ("https://other.example.org/", ""),
)
ANSWER = (
    "It rained.\n\nSources:\n- [The big story](https://news.example.org/a_%28b%29?x=1&y=2)\n"
    "- [other.example.org](https://other.example.org/)"
)
SEARCH = {"name": "web_search", "group": "web", "use": "agent.tools.web:provider_search"}


def entries(server: FakeModelServer) -> list[dict[str, Any]]:
    openai = {"use": "langchain_openai:ChatOpenAI", "model": "gpt-fake", "api_key": "k"}
    claude = {"use": "langchain_anthropic:ChatAnthropic", "model": "claude-fake", "api_key": "k"}
    return [
        {**openai, "name": "openai", "base_url": server.base_url, "use_responses_api": True},
        {**openai, "name": "completions", "base_url": server.base_url},
        {**claude, "name": "anthropic", "base_url": server.anthropic_url},
    ]


@asynccontextmanager
async def searching(home: Path, server: FakeModelServer) -> AsyncIterator[AgentHarness]:
    config = {"models": entries(server), "tools": [SEARCH], "title": {"enabled": False}}
    async with open_agent(home, ScriptedChatModel.playing(), config) as harness:
        yield harness


OFFERED = {
    "openai": {"type": "web_search"},
    "anthropic": {"type": "web_search_20250305", "name": "web_search", "max_uses": 5},
}


def offered_search(body: dict[str, Any]) -> list[dict[str, Any]]:
    return [tool for tool in body["tools"] if "web_search" in str(tool)]


@pytest.mark.parametrize("provider", OFFERED)
async def test_the_provider_searches_and_the_answer_lists_its_sources(
    tmp_path: Path, provider: str
) -> None:
    async with FakeModelServer() as server, searching(tmp_path, server) as harness:
        server.reply(ModelReply(text="It rained.", sources=SOURCES), "Yesterday.")
        messages = await harness.say("What is new?", model_name=provider)
        assert messages[-1].text == ANSWER
        assert (await harness.say("When?", model_name=provider))[-1].text == "Yesterday."
    first, second = (request.body for request in server.requests)
    assert offered_search(first) == [OFFERED[provider]]
    if provider == "anthropic":  # encrypted results go back unchanged, as Anthropic requires
        use, result, text, _ = second["messages"][1]["content"]
        assert (use["type"], use["name"]) == ("server_tool_use", "web_search")
        assert use["input"] == {"query": "news"}
        assert result["tool_use_id"] == use["id"]
        assert result["content"][0]["encrypted_content"] == f"sealed {SOURCES[0][0]}"
        assert text["citations"][0]["encrypted_index"] == f"index of {SOURCES[0][0]}"
    else:
        (call,) = [item for item in second["input"] if item.get("type") == "web_search_call"]
        assert call["id"].startswith("ws_")


async def test_a_streamed_answer_ends_with_its_sources(tmp_path: Path) -> None:
    async with FakeModelServer() as server, searching(tmp_path, server) as harness:
        server.reply(ModelReply(text="It rained.", sources=SOURCES))
        parts = await harness.stream("What is new?", "values", model_name="anthropic")
    assert parts[-1][1]["messages"][-1].text == ANSWER


async def test_sources_that_the_text_links_are_not_listed_again(tmp_path: Path) -> None:
    url = "https://news.example.org/"
    async with FakeModelServer() as server, searching(tmp_path, server) as harness:
        said = f"It rained ([news]({url}))."
        server.reply(ModelReply(text=said, sources=((url, "News"),)))
        assert (await harness.say("What is new?", model_name="openai"))[-1].text == said


async def test_a_model_without_a_search_of_its_own_gets_the_tool(tmp_path: Path) -> None:
    async with FakeModelServer() as server, searching(tmp_path, server) as harness:
        server.reply("Hello.")
        await harness.say("Hello", model_name="completions")
    (tool,) = offered_search(server.requests[0].body)
    assert tool["function"]["parameters"]["required"] == ["query"]


@pytest.mark.parametrize("provider", OFFERED)
async def test_another_provider_continues_the_conversation(tmp_path: Path, provider: str) -> None:
    async with FakeModelServer() as server, searching(tmp_path, server) as harness:
        server.reply(ModelReply(text="It rained.", sources=SOURCES))
        await harness.say("What is new?", model_name=provider)
        for other in ("completions", "openai", "anthropic"):
            server.reply("Yesterday.")
            assert (await harness.say("When?", model_name=other))[-1].text == "Yesterday."
            sent = str(
                server.requests[-1].body.get("messages") or server.requests[-1].body["input"]
            )
            assert "It rained." in sent
            if other != provider:
                assert "encrypted_content" not in sent
                assert "web_search_call" not in sent


def test_sources_are_links_on_each_platform() -> None:
    link = "https://news.example.org/a_%28b%29?x=1&y=2"
    shown = render_for_telegram(ANSWER)
    assert link in [entity.url for entity in shown.entities]
    assert "The big story" in shown.text
    assert link in str(render_for_slack(ANSWER))
    assert f"[The big story]({link}" in render_for_feishu(ANSWER).replace("&amp;", "&")
