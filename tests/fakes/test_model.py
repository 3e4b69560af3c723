"""The model server's switches: refusals, caching and scripted answers."""

from collections.abc import Mapping
from typing import Any

import httpx
import pytest
from langchain_core.messages import HumanMessage

from tests.fakes.anthropic import LOOKBACK_BLOCKS
from tests.fakes.model import FakeModelServer, ModelReply, ToolCall, tool_plan
from tests.fakes.model_switches import MIN_CACHED_TOKENS, ModelSwitches, prompt_tokens
from tests.fakes.scripted import ScriptedChatModel

LONG: dict[str, object] = {"role": "system", "content": "word " * 4 * MIN_CACHED_TOKENS}
HELLO: dict[str, object] = {"role": "user", "content": "hello"}
TOOL = {"type": "function", "function": {"name": "ls", "parameters": {}}}


TEXT: dict[str, object] = {"type": "text", "text": "hello"}
USE: dict[str, object] = {
    "role": "assistant",
    "content": [{"type": "tool_use", "id": "c1", "name": "ls", "input": {}}],
}
RESULT: dict[str, object] = {"type": "tool_result", "tool_use_id": "c1", "content": "nothing"}


async def ask_anthropic(
    server: FakeModelServer, *messages: Mapping[str, object], **keys: object
) -> httpx.Response:
    async with httpx.AsyncClient() as client:
        body = {"model": "m", "messages": messages, "stream": True, **keys}
        return await client.post(f"{server.base_url}/messages", json=body)


async def ask(
    server: FakeModelServer, *messages: Mapping[str, object], **keys: object
) -> httpx.Response:
    async with httpx.AsyncClient() as client:
        body = {"model": "m", "messages": messages, **keys}
        return await client.post(f"{server.base_url}/chat/completions", json=body)


@pytest.mark.parametrize(
    ("switches", "messages", "tools", "code", "text"),
    [
        (ModelSwitches(strict=True), [HELLO, HELLO], 0, "BadRequestError", "must alternate"),
        (ModelSwitches(max_tools=128), [HELLO], 129, "array_above_max_length", "length 129"),
        (ModelSwitches(max_tokens=100), [LONG, HELLO], 0, "context_length_exceeded", "is 100 tok"),
    ],
)
async def test_a_server_refuses_what_its_switches_say(
    switches: ModelSwitches, messages: list[dict[str, Any]], tools: int, code: str, text: str
) -> None:
    async with FakeModelServer(switches) as server:
        refused = await ask(server, *messages, tools=[TOOL] * tools)
        accepted = await ask(server, HELLO, tools=[TOOL] * max(tools - 1, 0))
    assert (refused.status_code, accepted.status_code) == (400, 200)
    assert refused.json()["error"]["code"] == code
    assert text in refused.json()["error"]["message"]
    assert server.refusals == [refused.json()["error"]["message"]]


async def test_a_prompt_that_goes_on_is_cached_as_far_as_it_was_sent() -> None:
    said: dict[str, object] = {"role": "assistant", "content": "hi"}
    async with FakeModelServer(ModelSwitches(caches_prefixes=True)) as server:
        cached = [
            (await ask(server, *messages)).json()["usage"]["prompt_tokens_details"]["cached_tokens"]
            for messages in (
                [LONG, HELLO],
                [LONG, HELLO, said, HELLO],
                [HELLO, LONG],  # Begins differently.
                [HELLO],
                [HELLO],  # Too short.
            )
        ]
    first, further, *others = cached
    assert (first, others) == (0, [0, 0, 0])
    assert MIN_CACHED_TOKENS < further <= server.requests[1].tokens
    assert server.prefix_hit_rate == further / sum(request.tokens for request in server.requests)


async def test_anthropics_route_caches_up_to_marks_and_finds_only_what_is_near_one() -> None:
    mark = {"cache_control": {"type": "ephemeral"}}
    system = [{"type": "text", "text": str(LONG["content"]), **mark}]
    marked = {"role": "user", "content": [{"type": "text", "text": "hello", **mark}]}
    many = {"role": "assistant", "content": [{"type": "text", "text": "hi"}] * LOOKBACK_BLOCKS}
    async with FakeModelServer(ModelSwitches(caches_prefixes=True)) as server:
        for system_prompt, messages in (
            (LONG["content"], [HELLO]),  # Without a mark nothing is cached.
            (LONG["content"], [HELLO]),
            (LONG["content"], [HELLO, many, marked]),
            (LONG["content"], [HELLO, many, HELLO, many, marked]),
            (system, [HELLO]),
            (system, [marked]),
        ):
            await ask_anthropic(server, *messages, system=system_prompt)
    assert [request.cached_tokens > 0 for request in server.requests] == [*[False] * 5, True]


@pytest.mark.parametrize(
    ("messages", "problem"),
    [
        ([HELLO, HELLO], "must alternate"),
        ([{"role": "assistant", "content": "hi"}], "must alternate"),
        ([{"role": "user", "content": " "}], "non-whitespace"),
        ([HELLO, USE], "end with a user message"),
        ([HELLO, USE, HELLO], "without `tool_result` blocks immediately after"),
        ([HELLO, USE, {"role": "user", "content": [RESULT, RESULT]}], "unexpected `tool_use_id`"),
        ([{"role": "user", "content": [RESULT]}], "unexpected `tool_use_id`"),
        ([HELLO, USE, {"role": "user", "content": [TEXT, RESULT]}], "must come first"),
        ([{"role": "user", "content": [{**TEXT, "cache_control": {}}] * 5}], "maximum of 4"),
    ],
)
async def test_anthropics_route_refuses_what_its_api_refuses(
    messages: list[dict[str, Any]], problem: str
) -> None:
    async with FakeModelServer(ModelSwitches(strict=True)) as server:
        refused = await ask_anthropic(server, *messages)
        right: list[dict[str, Any]] = [HELLO, USE, {"role": "user", "content": [RESULT, TEXT]}]
        accepted = await ask_anthropic(server, *right)
    assert (refused.status_code, accepted.status_code) == (400, 200)
    assert refused.json()["error"]["type"] == "invalid_request_error"
    assert problem in refused.json()["error"]["message"]


def test_an_image_counts_as_one_whatever_its_size() -> None:
    sizes = [
        prompt_tokens({"messages": [{"url": f"data:image/png;base64,{'A' * count}"}]})
        for count in (10, 1_000_000)
    ]
    assert sizes[0] == sizes[1] > 1_000


async def test_a_plan_is_played_for_each_message_of_a_user() -> None:
    plan = tool_plan(ToolCall("ls", {}), ModelReply(calls=(ToolCall("cat", {}),)), "Read.")
    call: dict[str, object] = {"role": "assistant", "tool_calls": []}
    result: dict[str, object] = {"role": "tool", "content": ""}
    step = [HELLO, call, result]
    async with FakeModelServer(answer=plan) as server:
        answers = [
            (await ask(server, *said)).json()["choices"][0]["message"]
            for said in (step[:1], step, [*step, call, result], [*step, HELLO])
        ]
    called = [[one["function"]["name"] for one in said.get("tool_calls", ())] for said in answers]
    assert called == [["ls"], ["cat"], [], ["ls"]]
    assert answers[2]["content"] == "Read."


async def test_a_model_without_a_server_plays_the_same_replies() -> None:
    reply = ModelReply(text="Look. ", calls=(ToolCall("ls", {"path": "/"}),))
    said = await ScriptedChatModel.playing(reply).ainvoke([HumanMessage("hello")])
    assert said.text == "Look. "
    assert [(call["name"], call["args"]) for call in said.tool_calls] == [("ls", {"path": "/"})]
