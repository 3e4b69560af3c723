"""Odd server answers become ordinary LangChain messages. Uses the real `langchain_openai`."""

from collections.abc import AsyncIterator, Mapping
from random import Random
from typing import Any

import openai
import pytest
from hypothesis import given
from hypothesis import strategies as st
from langchain_core.messages import AIMessage, AIMessageChunk
from langchain_core.messages.ai import add_ai_message_chunks
from langchain_openai import ChatOpenAI

from agent.config import AgentConfig
from agent.models.answers import AnswerNormalizer, whole_answer
from agent.models.factory import create_chat_model
from agent.models.failures import classify_error
from agent.models.http_client import ModelHttpClient
from agent.models.thinking_tags import ThinkingSplitter, split_thinking, without_thinking
from tests.fakes.model import FakeModelServer, ModelReply, ModelRequest, event_stream, whole_body

Delta = Mapping[str, Any]


@pytest.fixture
async def server() -> AsyncIterator[FakeModelServer]:
    async with FakeModelServer() as running:
        yield running


@pytest.fixture
async def client() -> AsyncIterator[ModelHttpClient]:
    http_client = ModelHttpClient()
    yield http_client
    await http_client.aclose()


def model_at(server: FakeModelServer, client: ModelHttpClient, **keys: object) -> ChatOpenAI:
    entry = {
        "name": "m",
        "use": "langchain_openai:ChatOpenAI",
        "model": "fake",
        "api_key": "sk-test",
        "base_url": server.base_url,
        "max_retries": 0,
        **keys,
    }
    model = create_chat_model(AgentConfig.model_validate({"models": [entry]}), http_client=client)
    assert isinstance(model, ChatOpenAI)
    return model


async def streamed(model: ChatOpenAI) -> AIMessageChunk:
    return add_ai_message_chunks(*[chunk async for chunk in model.astream("hi")])


def call(
    arguments: object = "",
    *,
    name: str | None = None,
    call_id: str | None = None,
    index: int | None = None,
) -> dict[str, Any]:
    """Return a piece of a call, without the parts that are None."""
    function = {
        key: one for key, one in (("name", name), ("arguments", arguments)) if one is not None
    }
    keys = (("index", index), ("id", call_id))
    return {**{key: one for key, one in keys if one is not None}, "function": function}


def calls(*pieces: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return deltas with one piece each."""
    return [{"tool_calls": [piece]} for piece in pieces]


# ---- tool calls --------------------------------------------------------------------------------

A, B = '{"path": "a"}', '{"path": "b {1}"}'
TWO = [("ls", {"path": "a"}), ("ls", {"path": "b {1}"})]


def pieces_of(arguments: str) -> tuple[str, str, str]:
    return arguments[:4], arguments[4:9], arguments[9:]


def two_calls(**habits: bool) -> list[dict[str, Any]]:
    """Return two calls in pieces, as a server with these habits sends them."""
    found: list[dict[str, Any]] = []
    for at, arguments in enumerate((A, B)):
        for number, piece in enumerate(("", *pieces_of(arguments))):
            first = not number
            found.append(
                call(
                    piece,
                    name="ls" if first or habits.get("name") else None,
                    call_id=None
                    if habits.get("no_id")
                    else f"id{0 if habits.get('one_id') else at}"
                    if first or habits.get("id")
                    else None,
                    index=None if habits.get("no_index") else 0 if habits.get("zero") else at,
                )
            )
    return calls(*found)


CALLS: dict[str, list[dict[str, Any]]] = {
    "as OpenAI": two_calls(),
    **{
        " ".join(habits): two_calls(**dict.fromkeys(habits, True))
        for habits in (
            ("no_index",),
            ("zero",),
            ("name",),
            ("id",),
            ("name", "id"),
            ("no_id",),
            ("one_id",),
            ("no_index", "name"),
            ("no_index", "id"),
            ("no_index", "name", "id"),
            ("no_index", "no_id"),
            ("zero", "name"),
            ("zero", "id"),
            ("zero", "name", "id"),
            ("zero", "no_id"),
            ("no_id", "name"),
            ("zero", "no_id", "name"),
            ("no_index", "no_id", "name"),
            ("one_id", "name"),
            ("one_id", "id"),
            ("one_id", "name", "id"),
            ("zero", "one_id"),
            ("no_index", "one_id"),
            ("zero", "one_id", "name", "id"),
        )
    },
    "whole, one index": calls(
        call(A, name="ls", call_id="x", index=0), call(B, name="ls", call_id="y", index=0)
    ),
    "whole, one index and id": calls(
        call(A, name="ls", call_id="x", index=0), call(B, name="ls", call_id="x", index=0)
    ),
    "whole, without anything": calls(call(A, name="ls"), call(B, name="ls")),
    "objects": calls(
        call({"path": "a"}, name="ls", call_id="x", index=0),
        call({"path": "b {1}"}, name="ls", call_id="y", index=1),
    ),
    "side by side": [
        {"tool_calls": [call(a, name=name), call(b, name=name)]}
        for name, a, b in zip(("ls", None, None), pieces_of(A), pieces_of(B), strict=True)
    ],
    "one index, in turns, with ids": [
        {
            "tool_calls": [
                call(a, name=name, call_id="x", index=0),
                call(b, name=name, call_id="y", index=0),
            ]
        }
        for name, a, b in zip(("ls", None, None), pieces_of(A), pieces_of(B), strict=True)
    ],
    "everything again": calls(
        call(A[:5], name="ls", call_id="x", index=0),
        call(A, name="ls", call_id="x", index=0),
        call(A, name="ls", call_id="x", index=0),
        call(B, name="ls", call_id="y", index=1),
    ),
    "the id comes later": calls(
        call("", name="ls", index=0),
        call(A, call_id="x", index=0),
        call("", name="ls", index=1),
        call(B, call_id="y", index=1),
    ),
    "another id in each piece": calls(
        call(A[:5], name="ls", call_id="1", index=0),
        call(A[5:], call_id="2", index=0),
        call(B, name="ls", call_id="3", index=1),
    ),
    "no arguments, then arguments": calls(
        call({}, name="ls", call_id="x", index=0),
        call(A[:5], index=0),
        call(A[5:], index=0),
        call("{}", name="ls", call_id="y", index=1),
        call(B, index=1),
    ),
    "the whole calls at the end again": [
        *two_calls(),
        {"tool_calls": [call(A, name="ls", call_id="id0"), call(B, name="ls", call_id="id1")]},
    ],
    "nulls": [
        {"content": None, "tool_calls": None},
        {"tool_calls": [{"index": 0, "id": "x", "function": {"name": "ls", "arguments": None}}]},
        {"tool_calls": [{"index": 0, "id": None, "function": {"name": None, "arguments": A}}]},
        {"tool_calls": [{"index": 1, "id": "y", "function": {"name": "ls", "arguments": B}}]},
        {"tool_calls": []},
    ],
}


def made_calls(message: AIMessage) -> list[tuple[str, Any]]:
    assert not message.invalid_tool_calls
    ids = [one["id"] for one in message.tool_calls]
    assert all(ids)
    assert len(set(ids)) == len(ids)
    return [(one["name"], one["args"]) for one in message.tool_calls]


@pytest.mark.parametrize("habit", CALLS)
async def test_the_calls_of_every_server(
    server: FakeModelServer, client: ModelHttpClient, habit: str
) -> None:
    server.reply(ModelReply(body=event_stream({"content": "Look. "}, *CALLS[habit])))
    answer = await streamed(model_at(server, client))
    assert (answer.text, made_calls(answer)) == ("Look. ", TWO)


@pytest.mark.parametrize("habit", CALLS)
def test_calls_are_the_same_however_they_arrive(habit: str) -> None:
    for at_once in (True, False):
        normalizer = AnswerNormalizer()
        chunks = []
        for delta in CALLS[habit]:
            normalizer.add({"id": "c", "choices": [{"index": 0, "delta": delta}]})
            if not at_once and (chunk := normalizer.take()) is not None:
                chunks.append(chunk)
        chunks.append(normalizer.finish())
        whole = whole_answer(chunks)["choices"][0]["message"]["tool_calls"]
        assert [one["function"]["arguments"] for one in whole] == [A, B]
        assert [one["function"]["name"] for one in whole] == ["ls", "ls"]


@pytest.mark.parametrize("is_streamed", [True, False])
async def test_the_older_form_of_a_call(
    server: FakeModelServer, client: ModelHttpClient, *, is_streamed: bool
) -> None:
    model = model_at(server, client)
    if is_streamed:
        deltas = [
            {"function_call": {"name": "ls", "arguments": A[:5]}},
            {"function_call": {"arguments": A[5:]}},
        ]
        server.reply(ModelReply(body=event_stream(*deltas, finish="function_call")))
        answer: AIMessage = await streamed(model)
    else:
        message = {"content": None, "function_call": {"name": "ls", "arguments": A}}
        server.reply(ModelReply(body=whole_body(message, finish="function_call")))
        answer = await model.ainvoke("hi")
    assert made_calls(answer) == TWO[:1]
    assert answer.response_metadata["finish_reason"] == "tool_calls"


@pytest.mark.parametrize(
    ("arguments", "args", "bad"),
    [
        ({"path": "a"}, {"path": "a"}, None), (None, {}, None), ("", {}, None), ([1], None, "[1]"),
        ("[1]", None, "[1]"), (7, None, "7"), ("{", None, "{"),
    ],
)  # fmt: skip
async def test_arguments_of_whole_answers(
    server: FakeModelServer,
    client: ModelHttpClient,
    arguments: object,
    args: object,
    bad: str | None,
) -> None:
    message = {"tool_calls": [{"function": {"name": "ls", "arguments": arguments}}]}
    server.reply(ModelReply(body=whole_body(message, finish="tool_calls")))
    answer = await model_at(server, client).ainvoke("hi")
    assert [one["args"] for one in answer.tool_calls] == ([] if args is None else [args])
    assert [one["args"] for one in answer.invalid_tool_calls] == ([] if bad is None else [bad])


# ---- usage -------------------------------------------------------------------------------------

COUNTED = {"prompt_tokens": 3000, "completion_tokens": 7, "total_tokens": 3007}
CACHED: list[dict[str, Any]] = [
    {**COUNTED, "prompt_tokens_details": {"cached_tokens": 2000}},
    {**COUNTED, "prompt_cache_hit_tokens": 2000, "prompt_cache_miss_tokens": 1000},
    {**COUNTED, "cached_tokens": 2000},
    {**COUNTED, "cache_read_input_tokens": 2000, "prompt_tokens_details": None},
    {"input_tokens": 3000, "output_tokens": 7, "input_tokens_details": {"cached_tokens": 2000}},
]


def last_chunk(**more: object) -> dict[str, Any]:
    return {"id": "c", "choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}], **more}


USAGES: dict[str, list[dict[str, Any]]] = {
    "in each chunk": [
        {"choices": [{"index": 0, "delta": {"content": "w "}}], "usage": {**COUNTED, "completion_tokens": n}}
        for n in range(8)
    ],
    "without choices": [{"choices": [], "usage": COUNTED}],
    "in the choice": [{"choices": [{"index": 0, "delta": {}, "usage": COUNTED}]}],
    "of Groq": [last_chunk(x_groq={"usage": COUNTED})],
    "twice": [last_chunk(usage=COUNTED), {"choices": [], "usage": COUNTED}],
    "null after it": [last_chunk(usage=COUNTED), {"choices": [], "usage": None}],
    "nulls in it": [last_chunk(usage={**COUNTED, "prompt_tokens_details": None, "cost": 0.1})],
    "zeros before it": [{"choices": [], "usage": dict.fromkeys(COUNTED, 0)}, last_chunk(usage=COUNTED)],
}  # fmt: skip


@pytest.mark.parametrize("form", USAGES)
async def test_tokens_are_counted_once(
    server: FakeModelServer, client: ModelHttpClient, form: str
) -> None:
    server.reply(ModelReply(body=event_stream({"content": "Hi"}, *USAGES[form])))
    answer = await streamed(model_at(server, client))
    assert answer.usage_metadata is not None
    assert answer.usage_metadata["input_tokens"] == 3000
    assert answer.usage_metadata["output_tokens"] == 7
    assert answer.response_metadata["finish_reason"] == "stop"


@pytest.mark.parametrize("usage", CACHED)
@pytest.mark.parametrize("is_streamed", [True, False])
async def test_cached_tokens_in_every_providers_words(
    server: FakeModelServer, client: ModelHttpClient, usage: dict[str, Any], *, is_streamed: bool
) -> None:
    body = event_stream({"content": "Hi"}, {"choices": [], "usage": usage})
    server.reply(
        ModelReply(body=body if is_streamed else whole_body({"content": "Hi"}, usage=usage))
    )
    model = model_at(server, client)
    answer: AIMessage = await streamed(model) if is_streamed else await model.ainvoke("hi")
    assert answer.usage_metadata is not None
    assert answer.usage_metadata["input_token_details"]["cache_read"] == 2000
    assert answer.usage_metadata["total_tokens"] == 3007


@pytest.mark.parametrize("usage", [None, {}, "7", {"prompt_tokens": None}, {"prompt_tokens": "x"}])
async def test_an_empty_usage_is_ignored(
    server: FakeModelServer, client: ModelHttpClient, usage: object
) -> None:
    server.reply(ModelReply(body=event_stream({"content": "Hi"}, {"choices": [], "usage": usage})))
    assert (await streamed(model_at(server, client))).usage_metadata is None


# ---- thinking ----------------------------------------------------------------------------------

THINKING = {
    "<think>Hm.</think>Yes.": ("Yes.", "Hm."),
    " \n<think>\nHm.\n</think>\n\nYes.": ("Yes.", "\nHm.\n"),
    "<thinking>Hm.</thinking>Yes.": ("Yes.", "Hm."),
    "<reasoning>Hm.</reasoning>Yes.": ("Yes.", "Hm."),
    "<THINK>Hm.</Think>Yes.": ("Yes.", "Hm."),
    "<think>a</think> <think>b</think>Yes.": ("Yes.", "ab"),
    "<think>a <think>b</think> c</think>Yes.": ("Yes.", "a <think>b c"),
    "<think>if a < b: </thin": ("", "if a < b: </thin"),
    "<think>never ends": ("", "never ends"),
    "<think></think>Yes.": ("Yes.", ""),
    "Look.\n\n<think>Hm.</think>\n\nYes.": ("Look.\n\n\n\nYes.", "Hm."),
    "Look.\n  <think>\nHm.</think>\nYes.\n<think>b</think>": ("Look.\n  \nYes.\n", "\nHm.b"),
    "<think>a</think>Look.\n<thinking>b</thinking>Yes.": ("Look.\nYes.", "ab"),
    "One:\n<think>\nhas no end": ("One:\n<think>\nhas no end", ""),
    "Look.\n<thi": ("Look.\n<thi", ""),
    "a\n<b>bold</b>\n<think": ("a\n<b>bold</b>\n<think", ""),
    "<think>What is <think>?</think>`<think>` opens, `</think>` ends.": (
        "`<think>` opens, `</think>` ends.",
        "What is <think>?",
    ),
    "`<think>` opens it.": ("`<think>` opens it.", ""),
    "```xml\n<think>\n</think>\n```": ("```xml\n<think>\n</think>\n```", ""),
    "Between <think> and </think>.": ("Between <think> and </think>.", ""),
    "Use `</think>`.": ("Use `</think>`.", ""),
    "<thinker> is no tag": ("<thinker> is no tag", ""),
    "<th": ("<th", ""),
    "<b>bold</b>": ("<b>bold</b>", ""),
}
ALONE = {
    "Hm.</think>Yes.": ("Yes.", "Hm."),
    "Hm `x`.\n</think>\n\nYes, `</think>`.": ("Yes, `</think>`.", "Hm `x`.\n"),
    "About <think>.\n</think>\nYes.": ("Yes.", "About <think>.\n"),
}


@pytest.mark.parametrize("text", [*THINKING, *ALONE])
def test_thinking_in_a_whole_text(text: str) -> None:
    assert split_thinking(text) == (THINKING | ALONE)[text]


@pytest.mark.parametrize("text", THINKING)
def test_thinking_is_split_alike_however_the_text_is_cut(text: str) -> None:
    for size in range(1, len(text) + 1):
        for alone in (False, True):
            splitter = ThinkingSplitter(ends_alone=alone)
            parts = [splitter.feed(text[at : at + size]) for at in range(0, len(text), size)]
            answer, thinking = ("".join(one) for one in zip(*parts, splitter.end(), strict=True))
            assert (answer, thinking) == THINKING[text], (size, alone)


@given(
    st.lists(
        st.sampled_from(
            ["<think>", "\n<think>", "</think>", "`", "```\n", "\n", "a", " ", "<", "think>"]
        )
    ),
    st.randoms(),
)
def test_every_text_is_split_alike_however_it_is_cut(words: list[str], random: Random) -> None:
    text, pieces = "".join(words), []
    whole = ThinkingSplitter()
    expected = [*zip(whole.feed(text), whole.end(), strict=True)]
    splitter, at = ThinkingSplitter(), 0
    while at < len(text):
        size = random.randint(1, 5)
        pieces.append(splitter.feed(text[at : at + size]))
        at += size
    pieces.append(splitter.end())
    assert ["".join(one) for one in zip(*pieces, strict=True)] == ["".join(one) for one in expected]


@pytest.mark.parametrize("text", THINKING)
async def test_thinking_is_never_streamed(
    server: FakeModelServer, client: ModelHttpClient, text: str
) -> None:
    answer, thinking = THINKING[text]
    server.reply(ModelReply(body=event_stream(*({"content": char} for char in text))))
    message = await streamed(model_at(server, client))
    assert message.text == answer
    assert message.additional_kwargs.get("thinking", "") == thinking


@pytest.mark.parametrize("text", [*THINKING, *ALONE])
async def test_thinking_in_whole_answers(
    server: FakeModelServer, client: ModelHttpClient, text: str
) -> None:
    server.reply(ModelReply(body=whole_body({"content": text})))
    assert (
        without_thinking((await model_at(server, client).ainvoke("hi")).text)
        == (THINKING | ALONE)[text][0]
    )


async def test_thinking_between_calls(server: FakeModelServer, client: ModelHttpClient) -> None:
    deltas = [
        {"content": "<think>a</think>Look. "},
        *calls(call(A, name="ls", call_id="x", index=0)),
        {"content": "<thi"},
        {"content": "nk>b</think>"},
        *calls(call(B, name="ls", call_id="y", index=1)),
    ]
    server.reply(ModelReply(body=event_stream(*deltas)))
    answer = await streamed(model_at(server, client))
    assert (answer.text, answer.additional_kwargs["thinking"]) == ("Look. ", "ab")
    assert made_calls(answer) == TWO


async def test_a_model_that_ends_its_thinking_alone_is_known_by_its_second_answer(
    server: FakeModelServer, client: ModelHttpClient
) -> None:
    def reply(*words: str) -> ModelReply:
        return ModelReply(body=event_stream(*({"content": word} for word in words)))

    server.reply(
        reply("Hm.", "</think>", "One."),
        reply("Hm", ".</th", "ink>Two."),
        reply("Three."),
        reply("Four."),
    )
    model = model_at(server, client)
    assert without_thinking((await streamed(model)).text) == "One."
    second = await streamed(model)
    assert (second.text, second.additional_kwargs["thinking"]) == ("Two.", "Hm.")
    assert (await streamed(model)).text == "Three."
    assert (await streamed(model)).text == "Four."


async def test_thinking_in_parts_of_the_content(
    server: FakeModelServer, client: ModelHttpClient
) -> None:
    thinking = {"type": "thinking", "thinking": [{"type": "text", "text": "Hm."}]}
    deltas: list[Delta] = [{"content": [thinking]}, {"content": [{"type": "text", "text": "Yes."}]}]
    server.reply(ModelReply(body=event_stream(*deltas)))
    answer = await streamed(model_at(server, client))
    assert (answer.text, answer.additional_kwargs["thinking"]) == ("Yes.", "Hm.")


# ---- refusals, errors and ends ------------------------------------------------------------------


async def test_a_refusal_is_an_answer(server: FakeModelServer, client: ModelHttpClient) -> None:
    model = model_at(server, client)
    deltas: list[Delta] = [
        {"role": "assistant", "content": "", "refusal": None},
        {"refusal": "I can"},
        {"refusal": "not."},
    ]
    server.reply(ModelReply(body=event_stream(*deltas)))
    assert (await streamed(model)).text == "I cannot."
    server.reply(ModelReply(body=whole_body({"content": None, "refusal": "I cannot."})))
    assert (await model.ainvoke("hi")).text == "I cannot."


async def test_a_whole_answer_to_a_request_for_a_stream_and_the_other_way_round(
    server: FakeModelServer, client: ModelHttpClient
) -> None:
    model = model_at(server, client)
    body = whole_body({"content": "<think>Hm.</think>Yes."}, usage=COUNTED)
    for whole in (body, body + b"\n", body.replace(b", ", b",\n  "), b"\xef\xbb\xbf" + body):
        server.reply(ModelReply(body=whole, content_type="application/json"))
        answer: AIMessage = await streamed(model)
        assert answer.text == "Yes."
        assert answer.usage_metadata is not None
    server.reply(ModelReply(body=event_stream({"content": "Yes"}, {"content": "."})))
    answer = await model.ainvoke("hi")
    assert (answer.text, answer.response_metadata["finish_reason"]) == ("Yes.", "stop")


PART = event_stream({"content": "Half an "}, done=False, finish=None)


def data(text: str) -> bytes:
    return b"data: " + text.encode() + b"\n\n"


ERRORS: dict[str, tuple[bytes, str]] = {
    "field": (data('{"error": {"message": "no room", "code": "server_error"}}'), "server"),
    "text": (data('{"error": "no room"}'), "server"),
    "bare line": (b'{"error": {"message": "no room"}}\n', "server"),
    "bare lines": (b'{\n "error": {\n  "message": "no room"\n }\n}\n', "server"),
    "event without a key": (b"event: error\n" + data('{"message": "no room"}'), "server"),
    "event with any key": (b"event: error\n" + data('{"reason": "no room"}'), "server"),
    "event with text": (b"event: error\n" + data("no room"), "server"),
    "event in a choice": (b"event: error\n" + data('{"choices": [], "oops": 1}'), "server"),
    "object": (data('{"object": "error", "message": "no room", "code": 500}'), "server"),
    "type": (data('{"type": "error", "message": "no room"}'), "server"),
    "choice": (data('{"choices": [{"index": 0, "error": {"message": "no room", "code": 502}}]}'), "server"),
    "finish": (data('{"choices": [{"index": 0, "delta": {}, "finish_reason": "error"}]}'), "server"),
    "list": (data('[{"error": {"message": "no room"}}]'), "server"),
    "detail": (data('{"detail": "no room"}'), "server"),
    "MiniMax": (data('{"base_resp": {"status_code": 1008, "status_msg": "insufficient balance"}}'), "quota"),
    "quota": (data('{"error": {"message": "You exceeded your current quota", "code": "insufficient_quota"}}'), "quota"),
    "quota by type": (data('{"error": {"message": "no", "type": "insufficient_quota"}}'), "quota"),
    "quota of Moonshot": (data('{"error": {"message": "no", "type": "exceeded_current_quota_error"}}'), "quota"),
    "quota of a proxy": (data('{"error": {"message": "no", "code": "insufficient_user_quota"}}'), "quota"),
    "quota of Alibaba": (data('{"code": "Arrearage", "message": "Access denied"}'), "quota"),
    "quota of Baidu": (data('{"error_code": 17, "error_msg": "Open api daily request limit reached"}'), "quota"),
    "quota of Zhipu": (data('{"error": {"code": "1113", "message": "账户已欠费"}}'), "quota"),
    "quota by number": (data('{"error": {"message": "pay", "code": 402}}'), "quota"),
    "billing": (data('{"error": {"message": "Billing hard limit has been reached"}}'), "quota"),
    "rate": (data('{"error": {"message": "slow down", "code": "rate_limit_exceeded"}}'), "rate_limit"),
    "rate by number": (data('{"object": "error", "message": "slow down", "code": "429"}'), "rate_limit"),
    "context": (data('{"error": {"message": "no", "code": "context_length_exceeded"}}'), "context"),
    "context in words": (data('{"error": "This model\'s maximum context length is 8192 tokens"}'), "context"),
    "key": (data('{"error": {"message": "no", "code": "invalid_api_key"}}'), "auth"),
    "request": (data('{"object": "error", "message": "no", "type": "BadRequestError", "code": 400}'), "request"),
    "request by type": (data('{"error": {"message": "no", "type": "invalid_request_error"}}'), "request"),
    "no JSON": (data("<oops>"), "connection"),
    "HTML": (b"<!DOCTYPE html>\n<html><body>Log in</body></html>\n", "connection"),
    "nothing": (b"", "connection"),
    "keep-alive": (b": ping\n\n", "connection"),
}  # fmt: skip


@pytest.mark.parametrize("form", ERRORS)
@pytest.mark.parametrize("before", [b"", PART], ids=["at once", "amid the answer"])
async def test_an_error_with_status_200_is_what_it_is(
    server: FakeModelServer, client: ModelHttpClient, form: str, before: bytes
) -> None:
    body, reason = ERRORS[form]
    server.reply(ModelReply(body=before + body))
    with pytest.raises(openai.APIError) as caught:
        await streamed(model_at(server, client))
    failure = classify_error(caught.value)
    assert failure is not None
    assert failure.reason == reason


@pytest.mark.parametrize("form", ERRORS)
async def test_an_error_instead_of_a_whole_answer_is_what_it_is(
    server: FakeModelServer, client: ModelHttpClient, form: str
) -> None:
    body, reason = ERRORS[form]
    body = body.removeprefix(b"event: error\n").removeprefix(b"data: ").rstrip()
    if form.startswith("event"):
        return  # only streams have events
    server.reply(ModelReply(body=body, content_type="application/json"))
    with pytest.raises(openai.APIError) as caught:
        await model_at(server, client).ainvoke("hi")
    failure = classify_error(caught.value)
    assert failure is not None
    assert failure.reason == reason


@pytest.mark.parametrize(
    ("body", "is_whole"),
    [
        (event_stream({"content": "a"}, done=True, finish=None), True),
        (event_stream({"content": "a"}, done=False, finish="stop"), True),
        (event_stream({"content": "a"}, done=False, finish="stop").rstrip(), True),
        (event_stream({"content": "a"}).replace(b"\n\n", b"\n"), True),
        (event_stream({"content": "a"}).replace(b"\n", b"\r\n"), True),
        (event_stream({"content": "a"}) + b"bye\n", True),
        (event_stream({"content": "a"}, done=False, finish=None), False),
        (event_stream({"content": "a"}, done=False, finish=None)[:-9], False),
        (event_stream(*CALLS["as OpenAI"], done=False, finish=None), False),
    ],
)
async def test_only_an_answer_with_an_end_is_whole(
    server: FakeModelServer, client: ModelHttpClient, body: bytes, *, is_whole: bool
) -> None:
    server.reply(ModelReply(body=body))
    if is_whole:
        assert (await streamed(model_at(server, client))).text == "a"
    else:
        with pytest.raises(openai.APIConnectionError):
            await streamed(model_at(server, client))


async def test_an_answer_whose_connection_breaks_after_its_end_is_whole(
    server: FakeModelServer, client: ModelHttpClient
) -> None:
    body = event_stream({"content": "a"}, done=False)
    server.reply(ModelReply(body=body, breaks_after_body=True))
    assert (await streamed(model_at(server, client))).text == "a"
    body = event_stream({"content": "a"}, done=False, finish=None)
    server.reply(ModelReply(body=body, breaks_after_body=True))
    with pytest.raises(openai.APIConnectionError):
        await streamed(model_at(server, client))


async def test_finish_reasons_are_not_joined(
    server: FakeModelServer, client: ModelHttpClient
) -> None:
    server.reply(ModelReply(body=event_stream({"content": "a"}, last_chunk(), last_chunk())))
    assert (await streamed(model_at(server, client))).response_metadata["finish_reason"] == "stop"


# ---- requests ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("keys", "sent"),
    [
        ({"max_tokens": 9}, {"max_tokens": 9}),
        ({"max_completion_tokens": 9}, {"max_completion_tokens": 9}),
        ({}, {}),
    ],
)
async def test_the_limit_of_tokens_is_named_as_the_server_takes_it(
    server: FakeModelServer, client: ModelHttpClient, keys: dict[str, int], sent: dict[str, int]
) -> None:
    model = model_at(server, client, **keys)
    await streamed(model)
    await model.ainvoke("hi")
    for request in server.requests:
        limits = {name: one for name, one in request.body.items() if name.startswith("max_")}
        assert limits == sent


@pytest.mark.parametrize("known", ["max_tokens", "max_completion_tokens"])
async def test_a_server_that_refuses_a_name_of_the_limit_is_sent_the_other(
    server: FakeModelServer, client: ModelHttpClient, known: str
) -> None:
    (refused,) = {"max_tokens", "max_completion_tokens"} - {known}

    def answer(request: ModelRequest) -> ModelReply:
        if refused in request.body:
            text = f"Unsupported parameter: '{refused}' is not supported with this model."
            return ModelReply(status=400, error_code="unsupported_parameter", error_text=text)
        return ModelReply(text="Yes.")

    server.answer = answer
    model = model_at(server, client, **{refused: 9})
    assert [(await streamed(model)).text for _ in range(2)] == ["Yes.", "Yes."]
    assert [request.body.get(known) for request in server.requests] == [None, 9, 9]


async def test_a_token_limit_that_the_server_refuses_raises_its_error(
    server: FakeModelServer, client: ModelHttpClient
) -> None:
    def refuse(_: ModelRequest) -> ModelReply:
        return ModelReply(status=400, error_text="max_tokens is too large: 9")

    server.answer = refuse
    with pytest.raises(openai.BadRequestError, match="too large"):
        await streamed(model_at(server, client, max_tokens=9))


@pytest.mark.parametrize(
    ("url", "name"),
    [
        (None, "max_completion_tokens"),
        ("https://eu.api.openai.com/v1", "max_completion_tokens"),
        ("https://mine.openai.azure.com/openai/v1/", "max_completion_tokens"),
        ("https://api.openai.com.example.org/v1", "max_tokens"),
        ("https://openrouter.ai/api/v1", "max_tokens"),
    ],
)
def test_only_openai_s_servers_get_the_newer_name(
    client: ModelHttpClient, url: str | None, name: str
) -> None:
    entry = {
        "name": "m",
        "use": "langchain_openai:ChatOpenAI",
        "model": "m",
        "api_key": "k",
        "max_tokens": 9,
    }
    config = AgentConfig.model_validate(
        {"models": [{**entry, **({"base_url": url} if url else {})}]}
    )
    model = create_chat_model(config, http_client=client)
    assert isinstance(model, ChatOpenAI)
    assert model.async_client.names_token_limit == name
