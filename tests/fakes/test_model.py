"""The model server's switches: what it refuses, caches and plays."""

from collections.abc import Mapping
from typing import Any

import httpx
import pytest
from langchain_core.messages import HumanMessage

from tests.fakes.model import FakeModelServer, ModelReply, ToolCall, tool_plan
from tests.fakes.model_switches import MIN_CACHED_TOKENS, ModelSwitches, prompt_tokens
from tests.fakes.scripted import ScriptedChatModel

LONG: dict[str, object] = {"role": "system", "content": "word " * 4 * MIN_CACHED_TOKENS}
HELLO: dict[str, object] = {"role": "user", "content": "hello"}
TOOL = {"type": "function", "function": {"name": "ls", "parameters": {}}}


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
                [HELLO, LONG],  # Begins otherwise.
                [HELLO],
                [HELLO],  # Too short.
            )
        ]
    first, further, *others = cached
    assert (first, others) == (0, [0, 0, 0])
    assert MIN_CACHED_TOKENS < further <= server.requests[1].tokens
    assert server.prefix_hit_rate == further / sum(request.tokens for request in server.requests)


async def test_a_prompt_with_cache_marks_is_cached_up_to_the_last_mark() -> None:
    marked = {**LONG, "cache_control": {"type": "ephemeral"}}
    more = {"role": "user", "content": LONG["content"]}
    async with FakeModelServer(ModelSwitches(caches_prefixes=True)) as server:
        for messages in ([marked, more], [marked, more]):
            await ask(server, *messages)
    assert server.requests[1].cached_tokens == pytest.approx(
        prompt_tokens({"messages": [LONG]}), 130
    )


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
