"""Providers cache requests by prefix: the share of cache hits, and the marks that Anthropic and OpenAI read."""

import json
from pathlib import Path
from typing import Any

import pytest

from agent.middleware.prompt_cache import CACHE_CONTROL
from tests.agent.cached_conversation import (
    ModelEntry,
    anthropic_entry,
    converse,
    openai_entry,
)
from tests.agent.plain_agent import THREAD
from tests.agent.test_model_servers import LOOK, agents_with, claude_at, openai_at, turn
from tests.agent.test_uploads_middleware import PNG, put
from tests.fakes.model import FakeModelServer, ModelReply, ToolCall
from tests.fakes.model_switches import ModelSwitches

TURNS = 24
MIN_HIT_RATE = 0.94
"""Minimum share of cache hits. The first of few requests hits nothing: `make bench BENCH=agent` has 97% in 50 turns."""


@pytest.mark.parametrize("entry", [openai_entry, anthropic_entry])
async def test_a_conversation_is_cached(tmp_path: Path, entry: ModelEntry) -> None:
    """The conversation has files, tools, delegation, and memory extraction in every third turn."""
    server = await converse(tmp_path, entry, TURNS)
    assert server.refusals == []
    assert server.prefix_hit_rate >= MIN_HIT_RATE


# ---- Anthropic ---------------------------------------------------------------------------------


def marked_texts(body: dict[str, Any]) -> list[str]:
    """Return the last characters of the marked blocks, in order."""
    contents = [body["system"], *(message["content"] for message in body["messages"])]
    blocks = [block for content in contents if isinstance(content, list) for block in content]
    marked = [block for block in [*body.get("tools", []), *blocks] if "cache_control" in block]
    assert all(block["cache_control"] == CACHE_CONTROL for block in marked)
    return [str(block.get("text") or block.get("content"))[-40:] for block in marked]


async def test_anthropic_is_told_where_the_stable_prompt_and_the_conversation_end(
    tmp_path: Path,
) -> None:
    calls = tuple(ToolCall("ls", {"path": "/mnt/user-data/workspace"}, f"c{n}") for n in range(12))
    async with FakeModelServer(ModelSwitches(strict=True, caches_prefixes=True)) as server:
        server.reply(ModelReply(text="Looking. ", calls=calls), "Nothing there.", "Again.")
        async with agents_with(tmp_path, claude_at(server)) as agents:
            await turn(agents, "look around")
            await turn(agents, "and now?")
    assert server.refusals == []
    first, second, third = (request.body for request in server.requests)
    stable, changing = first["system"]
    assert changing["text"].strip().startswith("<current_date>")
    assert "<current_date>" not in stable["text"]
    end = stable["text"][-40:]
    assert [marked_texts(body)[0] for body in (first, second, third)] == [end] * 3
    assert [len(marked_texts(body)) for body in (first, second, third)] == [2, 2, 2]
    assert marked_texts(first)[1] == "look around"
    assert second["messages"][-1]["content"][-1]["cache_control"] == CACHE_CONTROL
    assert marked_texts(third)[1] == "and now?"
    # The mark before twelve calls and results is too far back, but the system prompt's mark still works.
    assert all(request.cached_tokens > 1_000 for request in server.requests[1:])


async def test_a_conversation_with_images_is_cached_by_anthropic(tmp_path: Path) -> None:
    """The mark goes to the last text, never to an image."""
    look = ToolCall("view_image", {"image_path": "/mnt/user-data/uploads/a.png"})
    async with FakeModelServer(ModelSwitches(strict=True, caches_prefixes=True)) as server:
        server.reply(ModelReply(calls=(look,)), "A cat.", "Still a cat.", "Yes.")
        async with agents_with(tmp_path, claude_at(server, supports_vision=True)) as agents:
            put(agents.services.folders.folders(THREAD), a__png=PNG)
            for said in ("look", "sure?", "really?"):
                await turn(agents, said)
    assert server.refusals == []
    bodies = [request.body for request in server.requests]
    assert [len(marked_texts(body)) for body in bodies] == [2] * 4
    shown = [json.dumps(body).count('"media_type": "image/png"') for body in bodies]
    assert shown == [0, 1, 1, 1]
    # The image is a small part of the request's text but a large part of its tokens.
    hits = [request.cached_tokens / request.tokens for request in server.requests[2:]]
    assert min(hits) > 0.9


async def test_a_fallback_to_anthropic_is_marked_and_one_to_another_server_is_not(
    tmp_path: Path,
) -> None:
    async with FakeModelServer() as gpt, FakeModelServer(ModelSwitches(strict=True)) as claude:
        gpt.reply(ModelReply(status=400, error_text="no"))
        async with agents_with(tmp_path, openai_at(gpt), claude_at(claude)) as agents:
            await turn(agents, "hello")
        async with agents_with(tmp_path, claude_at(claude), openai_at(gpt)) as agents:
            claude.reply(ModelReply(status=400, error_text="no"))
            await turn(agents, "hello again")
    assert [len(marked_texts(request.body)) for request in claude.requests] == [2, 2]
    sent = json.dumps([request.body for request in gpt.requests])
    assert "cache_control" not in sent
    assert "prompt_cache_key" not in sent


# ---- OpenAI ------------------------------------------------------------------------------------


@pytest.mark.parametrize("responses", [False, True])
async def test_openai_gets_a_key_for_each_thread(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, responses: bool
) -> None:
    """The fake server acts as an HTTP proxy, so the package reaches it at OpenAI's address."""
    async with FakeModelServer() as server:
        monkeypatch.setenv("http_proxy", server.anthropic_url)
        server.reply(LOOK, "Nothing.", "Hello.")
        entry = openai_at(server, use_responses_api=responses)
        entry["base_url"] = "http://api.openai.com/v1"
        async with agents_with(tmp_path, entry) as agents:
            await turn(agents, "look")
            await turn(agents, "hello", thread_id="2" * 64)
    keys = [request.body["prompt_cache_key"] for request in server.requests]
    assert keys == [THREAD, THREAD, "2" * 64]
