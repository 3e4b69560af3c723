"""Whole turns with servers that imitate OpenAI's. People do not notice the servers' quirks."""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from langchain_core.messages import AIMessage, HumanMessage
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.types import StreamMode

from agent.config import AgentConfig
from agent.factory import open_agent_factory
from agent.locales.en import ENGLISH
from agent.middleware.incomplete_answer import CONTINUE_REMINDER, EMPTY_ANSWER_REMINDER
from agent.models.failures import classify_error
from agent.services import AgentSetup
from agent.streaming import TextEvent, TurnReader
from agent.suggestions import ConversationMessage, suggest_follow_ups
from tests.agent.memory_model import noted
from tests.agent.plain_agent import CONFIG
from tests.agent.test_model_servers import (
    LOOK,
    THINKING,
    agents_with,
    claude_at,
    openai_at,
    turn,
)
from tests.fakes.model import FakeModelServer, ModelReply, ModelRequest, event_stream, whole_body
from tests.fakes.model_switches import ModelSwitches

PICTURE = "data:image/png;base64,iVBORw0KGgo="


def bytes_of(*deltas: dict[str, Any], finish: str | None = "stop", done: bool = True) -> ModelReply:
    return ModelReply(body=event_stream(*deltas, finish=finish, done=done))


async def answer_to(
    home: Path, server: FakeModelServer, said: str | list[Any] = "hi", **keys: object
) -> tuple[str, AIMessage]:
    async with agents_with(home, openai_at(server, **keys)) as agents:
        spoken, messages = await turn(agents, said)
    last = messages[-1]
    assert isinstance(last, AIMessage)
    return spoken, last


# ---- thinking ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "cut", [("<think>Hm.</think>Yes.",), ("<th", "ink>Hm.</th", "ink>", "Ye", "s.")]
)
async def test_thinking_is_not_shown(tmp_path: Path, cut: tuple[str, ...]) -> None:
    async with FakeModelServer() as server:
        server.reply(bytes_of(*({"content": piece} for piece in cut)))
        spoken, message = await answer_to(tmp_path, server)
    assert (spoken, message.text) == ("Yes.", "Yes.")


async def test_the_end_of_thinking_alone_is_no_part_of_the_answer(tmp_path: Path) -> None:
    async with FakeModelServer() as server:
        for said in ("One.", "Two."):
            server.reply(
                bytes_of({"content": "Hm, "}, {"content": "yes.</thi"}, {"content": f"nk>{said}"})
            )
        async with agents_with(tmp_path, openai_at(server)) as agents:
            _, messages = await turn(agents, "one")
            assert messages[-1].text == "One."
            spoken, messages = await turn(agents, "two")
    assert (spoken, messages[-1].text) == ("Two.", "Two.")
    assert "Hm" not in str(
        [m["content"] for m in server.requests[1].messages if m["role"] == "assistant"]
    )


async def test_an_answer_of_thinking_alone_says_so(tmp_path: Path) -> None:
    for at, deltas in enumerate(
        ([{"content": "<think>Hm, "}], [{"reasoning_content": "Hm, "}, {"content": ""}])
    ):
        async with FakeModelServer() as server:
            server.reply(bytes_of(*deltas, finish="length"))
            _, message = await answer_to(tmp_path / str(at), server)
            assert len(server.requests) == 1
        assert message.text == ENGLISH.only_thought


async def test_hidden_thinking_alone_is_known_by_its_tokens(tmp_path: Path) -> None:
    usage = {
        "prompt_tokens": 9,
        "completion_tokens": 50,
        "completion_tokens_details": {"reasoning_tokens": 50},
    }
    async with FakeModelServer() as server:
        server.reply(bytes_of({"content": ""}, {"choices": [], "usage": usage}, finish="length"))
        _, message = await answer_to(tmp_path, server)
    assert message.text == ENGLISH.only_thought


FORMS: dict[str, Callable[[str], dict[str, Any]]] = {
    "tags": lambda text: {"content": f"<think>SECRET</think>{text}"},
    "the end alone": lambda text: {"content": f"SECRET</think>{text}"},
    "amid the answer": lambda text: {"content": f"Now:\n<think>SECRET</think>\n{text}"},
    "beside it": lambda text: {"reasoning_content": "SECRET", "content": text},
    "parts": lambda text: {
        "content": [{"type": "thinking", "thinking": "SECRET"}, {"type": "text", "text": text}]
    },
}


def files_in(folder: Path) -> str:
    return "".join(path.read_text() for path in folder.rglob("*.json"))


def words_for(request: ModelRequest) -> str:
    """Return the model's answer to one of the agent's own prompts."""
    said = request.last_user_text
    if said.startswith("Write a title"):
        return "A title"
    if "<conversation>" in said:
        return noted(said)
    return "They talked." if said.startswith("Below is the beginning") else "Seen."


@pytest.mark.parametrize("is_streamed", [True, False])
@pytest.mark.parametrize("form", FORMS)
async def test_thinking_is_in_nothing_that_is_made_of_answers(
    tmp_path: Path, form: str, *, is_streamed: bool
) -> None:
    """It is not in titles, summaries, memory, suggestions or subagents' reports."""
    brief = {"description": "d", "prompt": "mark1", "subagent_type": "general-purpose"}
    calling = {"index": 0, "id": "c", "function": {"name": "task", "arguments": brief}}

    def answer(request: ModelRequest) -> ModelReply:
        message = FORMS[form](words_for(request))
        is_lead = "task" in request.tool_names and request.messages[-1]["role"] == "user"
        if is_lead and request.last_user_text.endswith("delegate"):
            message["tool_calls"] = [calling]
        if not is_streamed:
            return ModelReply(body=whole_body(message))
        content = message.pop("content")
        pieces = content if isinstance(content, str) else [[one] for one in content]
        return bytes_of(*({"content": piece} for piece in pieces), message)

    async with FakeModelServer(answer=answer) as server:
        sections = {
            "models": [openai_at(server, disable_streaming=not is_streamed)],
            "title": {"model_name": "gpt"},
            "memory": {"debounce_seconds": 300},
            "summarization": {
                "enabled": True,
                "trigger": [{"type": "messages", "value": 4}],
                "keep": {"type": "messages", "value": 2},
            },
        }
        setup = AgentSetup(config=AgentConfig.model_validate(sections), home=tmp_path)
        async with open_agent_factory(setup, InMemorySaver()) as agents:
            context = {"subagent_enabled": True, "memory_scope": "person:slack:T1:U1"}
            said = ("mark2 delegate", "and now?", "and then?", "and at last?")
            *_, (_, messages) = [await turn(agents, one, **context) for one in said]
            shown = [ConversationMessage(role=one.type, text=one.text) for one in messages]
            await suggest_follow_ups(agents.services.auxiliary_models.get, shown, count=2)
    asked = [request.last_user_text for request in server.requests]
    for purpose in ("Write a title", "Below is the beginning", "<conversation>", "mark1"):
        assert any(purpose in text for text in asked), purpose
    contents = [one["content"] for request in server.requests for one in request.messages]
    assert "SECRET" not in json.dumps(contents)
    assert all("SECRET" not in one.text for one in messages)
    assert "mark2" in (learned := files_in(tmp_path / "memory"))
    assert "SECRET" not in learned


# ---- empty answers, refusals and ends -----------------------------------------------------------


@pytest.mark.parametrize(
    "empty", [[{"content": ""}], [{"content": "\n"}], [{"reasoning": "Hm."}], []]
)
async def test_an_empty_first_answer_is_asked_for_once_more(
    tmp_path: Path, empty: list[dict[str, Any]]
) -> None:
    async with FakeModelServer(ModelSwitches(strict=True)) as server:
        server.reply(bytes_of(*empty), "Hello.")
        _, message = await answer_to(tmp_path, server)
    assert message.text == "Hello."
    assert [request.last_user_text for request in server.requests] == [
        "hi",
        EMPTY_ANSWER_REMINDER,
    ]
    assert server.refusals == []


async def test_a_stream_of_nothing_but_its_end_is_an_empty_answer(tmp_path: Path) -> None:
    async with FakeModelServer() as server:
        server.reply(ModelReply(body=b"data: [DONE]\n\n"), "Hello.")
        _, message = await answer_to(tmp_path, server)
    assert message.text == "Hello."


async def test_a_refusal_is_shown(tmp_path: Path) -> None:
    async with FakeModelServer() as server:
        server.reply(bytes_of({"refusal": "I cannot "}, {"refusal": "help with that."}))
        spoken, message = await answer_to(tmp_path, server)
    assert spoken == message.text == "I cannot help with that."


@pytest.mark.parametrize(
    ("finish", "line"),
    [
        ("insufficient_system_resource", ENGLISH.answer_stopped),
        ("content_filter", ENGLISH.answer_filtered),
        ("solar_flare", ENGLISH.answer_ended_oddly.format(reason="solar_flare")),
    ],
)
@pytest.mark.parametrize("is_streamed", [True, False])
async def test_unusual_finish_reasons_are_noted_below_the_answer(
    tmp_path: Path, finish: str, line: str, *, is_streamed: bool
) -> None:
    async with FakeModelServer() as server:
        body = event_stream({"content": "Half"}, finish=finish)
        server.reply(
            ModelReply(body=body if is_streamed else whole_body({"content": "Half"}, finish=finish))
        )
        _, message = await answer_to(tmp_path, server, disable_streaming=not is_streamed)
    assert message.text == f"Half\n\n{line}"


def cut(text: str) -> ModelReply:
    return ModelReply(text=text, finish_reason="length")


@pytest.mark.parametrize("streams", [True, False])
async def test_a_text_cut_by_its_length_is_continued_once(tmp_path: Path, *, streams: bool) -> None:
    async with FakeModelServer(ModelSwitches(strict=True)) as server:
        server.reply(cut("One, two, thr"), "ee, four.", "Five.")
        async with agents_with(
            tmp_path, openai_at(server, disable_streaming=not streams)
        ) as agents:
            spoken, messages = await turn(agents, "Count.")
            _, later = await turn(agents, "And then?")
    assert server.refusals == []
    assert [message.text for message in messages] == ["Count.", "One, two, three, four."]
    assert spoken == ("One, two, three, four." if streams else "")
    assert messages[-1].response_metadata["finish_reason"] == "stop"
    assert messages[-1].usage_metadata["input_tokens"] == sum(r.tokens for r in server.requests[:2])
    first, second, third = (request.messages for request in server.requests)
    assert second[: len(first)] == first
    assert [m["content"] for m in second[len(first) :]] == ["One, two, thr", CONTINUE_REMINDER]
    assert [m["content"] for m in third[1:]] == ["Count.", "One, two, three, four.", "And then?"]
    assert later[-1].text == "Five."


async def test_both_parts_are_streamed_as_one_message(tmp_path: Path) -> None:
    async with FakeModelServer() as server:
        server.reply(cut("One, two, thr"), "ee, four.")
        async with agents_with(tmp_path, openai_at(server)) as agents:
            graph = await agents.graph_for(CONFIG)
            said = {"messages": [HumanMessage("Count.")]}
            modes: list[StreamMode] = ["messages", "values"]
            parts: list[Any] = [p async for p in graph.astream(said, CONFIG, stream_mode=modes)]
    tokens = [data[0] for mode, data in parts if mode == "messages"]
    answer = parts[-1][1]["messages"][-1]
    assert {token.id for token in tokens} == {answer.id}
    assert "".join(token.text for token in tokens) == answer.text == "One, two, three, four."
    reader = TurnReader(None)
    events = [event for mode, data in parts for event in reader.read(mode, data)]
    assert "".join(event.text for event in events if isinstance(event, TextEvent)) == answer.text


@pytest.mark.parametrize(
    ("rest", "text"),
    [
        (cut("ee, fo"), "One, two, three, fo"),
        (ModelReply(text=""), "One, two, thr"),
        (ModelReply(status=400), "One, two, thr"),
    ],
)
async def test_people_are_told_if_the_text_is_still_cut(
    tmp_path: Path, rest: ModelReply, text: str
) -> None:
    async with FakeModelServer() as server:
        server.reply(cut("One, two, thr"), rest, "Never asked for.")
        _, message = await answer_to(tmp_path, server)
    assert message.text == f"{text}\n\n{ENGLISH.answer_cut_off}"
    assert server.replies_left == 1


async def test_a_continued_answer_may_go_on_with_a_call(tmp_path: Path) -> None:
    async with FakeModelServer() as server:
        server.reply(cut("I will lo"), replace(LOOK, text="ok."), "Nothing there.")
        async with agents_with(tmp_path, openai_at(server)) as agents:
            _, messages = await turn(agents, "look")
    assert [m.text for m in messages if m.type == "ai"] == ["I will look.", "Nothing there."]
    assert messages[-2].type == "tool"


async def test_a_continued_answer_keeps_thinking_and_calls_in_order(tmp_path: Path) -> None:
    async with FakeModelServer(ModelSwitches(strict=True)) as server:
        first = ModelReply(reasoning="Hm.", text="I will lo", finish_reason="max_tokens")
        server.reply(first, replace(LOOK, reasoning="Go.", text="ok."), "Nothing there.")
        entry = claude_at(server, supports_thinking=True, thinking=THINKING)
        async with agents_with(tmp_path, entry) as agents:
            spoken, messages = await turn(agents, "look", thinking_enabled=True)
    assert server.refusals == []
    assert spoken == "I will look.Nothing there."
    assert [b["type"] for b in messages[1].content] == ["thinking", "text", "tool_use"]
    assert messages[1].text == "I will look."


# ---- errors ------------------------------------------------------------------------------------


async def test_a_stream_without_an_end_is_repeated(tmp_path: Path) -> None:
    async with FakeModelServer() as server:
        server.reply(bytes_of({"content": "Half an "}, finish=None, done=False), "Whole.")
        _, message = await answer_to(tmp_path, server)
    assert message.text == "Whole."
    assert len(server.requests) == 2


@pytest.mark.parametrize(
    ("error", "told"),
    [
        ({"message": "no", "code": "insufficient_quota"}, ENGLISH.model_quota),
        ({"message": "no", "code": "context_length_exceeded"}, ENGLISH.model_context),
        ({"message": "no", "code": "invalid_api_key"}, ENGLISH.model_auth),
    ],
)
async def test_errors_with_status_200_are_reported_at_once(
    tmp_path: Path, error: dict[str, str], told: str
) -> None:
    async with FakeModelServer() as server:
        server.answer = lambda _: bytes_of({"error": error}, finish=None)
        _, message = await answer_to(tmp_path, server)
    assert message.text == told
    # A conversation that is too long is summarized, and the request is repeated.
    assert len(server.requests) == 1 or told == ENGLISH.model_context


# ---- pictures ----------------------------------------------------------------------------------


def pictures_in(request: ModelRequest) -> list[str]:
    blocks = [
        one for m in request.messages if isinstance(m["content"], list) for one in m["content"]
    ]
    return [one["image_url"]["url"] for one in blocks if one["type"] == "image_url"]


@pytest.mark.parametrize("most", [0, 1, 2])
async def test_only_the_newest_of_too_many_pictures_are_sent(tmp_path: Path, most: int) -> None:
    def answer(request: ModelRequest) -> ModelReply:
        if len(pictures_in(request)) > most:
            text = f"At most {most} image(s) may be provided in one prompt."
            return ModelReply(status=400, error_code="BadRequestError", error_text=text)
        return ModelReply(text=f"I see {len(pictures_in(request))}.")

    said: list[Any] = [{"type": "text", "text": "look"}]
    said += [{"type": "image_url", "image_url": {"url": f"{PICTURE}{n}"}} for n in range(4)]
    async with FakeModelServer() as server:
        server.answer = answer
        async with agents_with(tmp_path, openai_at(server, supports_vision=True)) as agents:
            assert (await turn(agents, said))[0] == f"I see {most}."
            assert len(server.requests) == 2
            assert (await turn(agents, "and now?"))[0] == f"I see {most}."
            assert len(server.requests) == 3  # the limit is known now
    expected = [f"{PICTURE}{n}" for n in range(4)][4 - most :]
    assert [pictures_in(request) for request in server.requests[1:]] == [expected] * 2


@pytest.mark.parametrize(
    ("text", "limit"),
    [
        ("At most 1 image(s) may be provided in one request.", 1),
        ("You set --limit-mm-per-prompt image=2, at most 2 image items are allowed", 2),
        ("Too many images and documents: 101 + 0 > 100", 100),
        ("This model supports up to 8 images per request", 8),
        ("The maximum number of images is 20", 20),
        ("Only one image is supported", 1),
        ("Maximum of 5 images exceeded", 5),
        ("Exceeds the limit of 10 images", 10),
        ("Too many images in request: 9, max 8", 8),
        ("Multiple images are not supported", 1),
        ("图片数量超过限制，最多支持5张", 5),
        ("该模型仅支持单张图片", 1),
        ("图片大小超过10MB", None),
        ("Image is larger than the maximum of 5 MB", None),
        ("Invalid image data", None),
        ("at most 5 tools", None),
    ],
)
def test_how_many_pictures_a_server_takes(text: str, limit: int | None) -> None:
    class RejectedError(Exception):
        status_code = 400

    failure = classify_error(RejectedError(text))
    assert failure is not None
    assert failure.picture_limit == limit
