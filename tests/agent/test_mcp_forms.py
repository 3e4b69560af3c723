"""Forms that MCP servers send, filled with people's answers."""

from collections.abc import Sequence
from typing import Any

import pytest
from mcp.types import ElicitRequestFormParams, ElicitRequestURLParams, ElicitResult

from agent.locales import messages_for
from agent.mcp.elicitation import MAX_FIELDS, ask_person
from bus.locales.en import ENGLISH
from bus.runs.questions import (
    Question,
    are_numbered,
    chosen_index,
    interrupt_choices,
    question_text,
)


def filled(
    fields: dict[str, Any],
    answers: Sequence[object],
    required: Sequence[str] = (),
    *,
    language: str = "en",
) -> tuple[ElicitResult, list[str]]:
    """Return the result of a form, and the questions asked."""
    schema = {"type": "object", "properties": fields, "required": list(required)}
    form = ElicitRequestFormParams(message="Please say.", requestedSchema=schema)
    left, asked = list(answers), []

    def interrupt(value: Any) -> object:  # noqa: ANN401 - as LangGraph's
        asked.append(value["question"])
        return left.pop(0)

    result = ask_person("hotel", form, messages_for(language), interrupt)
    assert left == []
    return result, asked


SIZES = {"oneOf": [{"const": "s", "title": "Small"}, {"const": "l", "title": "Large"}]}
DAYS = {"type": "array", "items": {"enum": ["Mon", "Tue", "Wed"]}}


@pytest.mark.parametrize(
    ("schema", "answers", "value"),
    [
        ({"type": "string"}, ["Ann Lee"], "Ann Lee"),
        ({"type": "integer"}, ["many", "7"], 7),
        ({"type": "number"}, ["2.5"], 2.5),
        ({"type": "boolean"}, ["No"], False),
        (
            {"type": ["string"], "enum": ["a", "b"], "enumNames": ["First", "Second"]},
            ["second"],
            "b",
        ),
        (SIZES, ["huge", "Large"], "l"),
        (DAYS, ["mon, Wed"], ["Mon", "Wed"]),
        ({"type": "array", "items": {"type": "string"}}, ["x，y"], ["x", "y"]),
        ({"anyOf": [{"type": "integer"}, {"type": "null"}]}, ["3"], 3),
    ],
)
def test_an_answer_gets_the_type_of_its_field(
    schema: dict[str, Any], answers: list[object], value: object
) -> None:
    result, asked = filled({"field": schema}, answers, ["field"])
    assert (result.action, result.content) == ("accept", {"field": value})
    assert len(asked) == len(answers)


def test_a_field_may_be_skipped_and_a_form_declined() -> None:
    fields = {"a": {"type": "string"}, "b": {"type": "string"}}
    assert filled(fields, ["Skip", "x"])[0].content == {"b": "x"}
    assert filled(fields, ["x", "decline"])[0].action == "decline"
    assert filled(fields, ["跳过", "拒绝"], language="zh")[0].action == "decline"


def test_an_answer_that_never_fits_cancels() -> None:
    assert filled({"a": {"type": "integer"}}, ["x", "y", "z"], ["a"])[0].action == "cancel"


def test_a_long_form_is_declined_without_a_question() -> None:
    fields = {f"f{n}": {"type": "string"} for n in range(MAX_FIELDS + 1)}
    assert filled(fields, []) == (ElicitResult(action="decline"), [])


def test_without_fields_people_consent() -> None:
    assert filled({}, ["Accept"])[0] == ElicitResult(action="accept", content={})
    assert filled({}, ["hm", "同意"], language="zh")[0].action == "accept"


def test_an_address_is_shown() -> None:
    asked: list[Any] = []
    question = ElicitRequestURLParams(
        message="Sign in.", url="https://a.example/x", elicitationId="1"
    )

    def interrupt(value: object) -> object:
        asked.append(value)
        return "accept"

    result = ask_person("hotel", question, messages_for("en"), interrupt)
    assert result == ElicitResult(action="accept")
    assert "https://a.example/x" in asked[0]["question"]


def test_a_number_answers_a_form_and_chooses_no_button() -> None:
    """The bus reads numbers as choices, unless the form says that the answer may be a number."""
    asked: list[Any] = []

    def interrupt(value: Any) -> object:  # noqa: ANN401 - as LangGraph's
        asked.append({"value": value})
        options, values = interrupt_choices(asked[-1:])
        question = Question(
            options=options, values=values, is_numbered=are_numbered(asked[-1:]), interrupts=()
        )
        chosen = chosen_index(question, "1")
        return "1" if chosen is None else values[chosen]

    fields = {"guests": {"type": "integer"}, "size": SIZES}
    form = ElicitRequestFormParams(
        message="Please say.", requestedSchema={"type": "object", "properties": fields}
    )
    result = ask_person("hotel", form, messages_for("en"), interrupt)
    assert result.content == {"guests": 1, "size": "s"}
    shown = [question_text([one], ENGLISH) for one in asked]
    assert "- Skip\n- Decline" in shown[0]
    assert "1. Small\n2. Large" in shown[1]
