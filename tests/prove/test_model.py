"""The model of a proof answers a person's last message, not the other texts that it gets."""

from typing import Any

import pytest

from agent.middleware.incomplete_answer import EMPTY_ANSWER_REMINDER
from agent.models.roles import arrange_messages
from tests.fakes.model import ModelReply, ModelRequest
from tests.prove.model import ProofModel, answer_text
from tests.prove.plan import MessageKind, ModelBehavior, PlannedMessage

FILES = "<uploaded_files>\n- m00001v1.txt\n- m00002v1.txt\n</uploaded_files>\n"


def message(mark: str, behavior: ModelBehavior = ModelBehavior.ANSWER) -> PlannedMessage:
    return PlannedMessage(
        id=mark, place="a", kind=MessageKind.CHAT, versions=(f"{mark}v1",), behavior=behavior
    )


def ask(model: ProofModel, text: str) -> ModelReply:
    request = ModelRequest(body={"messages": [{"role": "user", "content": text}]}, headers={})
    return model.answer(request)


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        ("m00003v1 hello", answer_text("m00003", 1)),
        ("[I edited my message: m00003v1] m00003v2", answer_text("m00003", 2)),
        (f"{FILES}m00003v1 hello", answer_text("m00003", 1)),
        (FILES, answer_text("m00001", 1)),
        (f"{FILES}green", "I see."),
        ("m00003v1 hello\n\n[Earlier in this thread]\n> Ann: m00001v1", answer_text("m00003", 1)),
        ("m99999v1 from elsewhere", "I see."),
    ],
)
def test_the_last_words_are_answered(text: str, answer: str) -> None:
    model = ProofModel({mark: message(mark) for mark in ("m00001", "m00002", "m00003")})
    assert ask(model, text).text == answer


def test_an_answer_that_was_empty_after_a_tool_comes_when_asked_for() -> None:
    model = ProofModel({"m00001": message("m00001", ModelBehavior.EMPTY_AFTER_TOOL)})
    called, empty = [ask(model, "m00001v1") for _ in range(2)]
    said = ["m00001v1", EMPTY_ANSWER_REMINDER]
    messages = [{"role": "user", "content": text} for text in said]
    answered = model.answer(ModelRequest(body={"messages": messages}, headers={}))
    assert [call.name for call in called.calls] == ["ls"]
    assert (empty.text, empty.calls) == ("", ())
    assert answered.text == answer_text("m00001", 1)


def test_a_call_that_fails_once_succeeds_the_second_time() -> None:
    model = ProofModel({"m00001": message("m00001", ModelBehavior.REFUSE_ONCE)})
    assert [ask(model, "m00001v1").status for _ in range(2)] == [429, 200]


@pytest.mark.parametrize(("tool", "covers_both"), [("ls", True), ("ask_clarification", False)])
def test_injected_messages_are_answered_together_unless_a_question_did(
    tool: str, covers_both: bool
) -> None:
    call = {"id": "1", "type": "function", "function": {"name": tool, "arguments": "{}"}}
    messages: list[dict[str, Any]] = [
        {"role": "user", "content": "m00001v1"},
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "1", "content": "done"},
        {"role": "user", "content": "m00002v1"},
    ]
    messages = arrange_messages(messages)
    model = ProofModel({mark: message(mark) for mark in ("m00001", "m00002")}, ["a"])
    reply = model.answer(ModelRequest(body={"messages": messages}, headers={}))
    assert (answer_text("m00001", 1) in reply.text) is covers_both
    assert reply.text.endswith(answer_text("m00002", 1))


def test_messages_that_wait_together_are_answered_together() -> None:
    messages = arrange_messages(
        {"role": "user", "content": f"{mark}v1"} for mark in ("m00001", "m00002")
    )
    model = ProofModel({mark: message(mark) for mark in ("m00001", "m00002")}, ["a"])
    reply = model.answer(ModelRequest(body={"messages": messages}, headers={}))
    assert reply.text == f"{answer_text('m00001', 1)}\n\n{answer_text('m00002', 1)}"
