"""Steps that process all messages of a thread are fast, and have the same result as the slow way."""

from itertools import pairwise
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st
from langchain_core.messages import AIMessage, AnyMessage, HumanMessage, SystemMessage, ToolMessage

from agent.middleware.dangling_tool_calls import repair_history
from gateway.runtime.serialization import dumps, json_default

_IDS = st.sampled_from("abc")


def _call(call_id: str) -> dict[str, Any]:
    return {"name": "look", "args": {}, "id": call_id, "type": "tool_call"}


def _ai(ids: list[str]) -> AIMessage:
    return AIMessage("", tool_calls=[_call(one) for one in ids])


def _raw(call_id: str) -> AIMessage:
    raw = [{"id": call_id, "function": {"name": "look", "arguments": "{}"}}]
    return AIMessage("", additional_kwargs={"tool_calls": raw})


def _invalid(call_id: str) -> AIMessage:
    bad = {"name": "look", "args": "{", "id": call_id, "error": "cut", "type": "invalid_tool_call"}
    return AIMessage.model_validate({"content": "", "invalid_tool_calls": [bad]})


_MESSAGES: st.SearchStrategy[AnyMessage] = st.one_of(
    st.builds(HumanMessage, st.just("hello")),
    st.builds(AIMessage, st.just("hello")),
    st.lists(_IDS, max_size=3, unique=True).map(_ai),
    _IDS.map(_raw),
    _IDS.map(_invalid),
    _IDS.map(lambda call_id: ToolMessage("found", tool_call_id=call_id)),
)


def _called(message: AnyMessage) -> list[str]:
    """Return the ids of the calls of a message made here."""
    if not isinstance(message, AIMessage):
        return []
    raw = message.additional_kwargs.get("tool_calls", [])
    calls = [*message.tool_calls, *message.invalid_tool_calls, *raw]
    return list(dict.fromkeys(str(call["id"]) for call in calls))


def _in_order(messages: list[AnyMessage]) -> bool:
    """Return whether every call, and nothing else, is answered right behind its message."""
    expected = [
        [f"call {one}" for one in _called(message)]
        for message in messages
        if not isinstance(message, ToolMessage)
    ]
    given_answers: list[list[str]] = []
    for message in messages:
        if not isinstance(message, ToolMessage):
            given_answers.append([])
        elif not given_answers:
            return False
        else:
            given_answers[-1].append(f"call {message.tool_call_id}")
    return expected == given_answers


def _is_valid(messages: list[AnyMessage]) -> bool:
    """Return whether calls are answered in order, and no answer follows another."""
    types = [message.type for message in messages]
    return _in_order(messages) and ("ai", "ai") not in pairwise(types)


@given(st.lists(_MESSAGES, max_size=8))
def test_a_history_is_repaired_exactly_when_it_has_faults(messages: list[AnyMessage]) -> None:
    fixed = repair_history(messages)
    assert _is_valid(fixed)
    assert (fixed is messages) == _is_valid(messages)
    assert repair_history(fixed) is fixed


@pytest.mark.parametrize(
    "state",
    [
        {"messages": [HumanMessage("hello", id="1"), AIMessage("yes", id="2")], "title": "T"},
        {"messages": [_ai(["a", "b"]), ToolMessage("found", tool_call_id="a", artifact={1, 2})]},
        {"messages": [HumanMessage("named", name="Ada", color="blue", id="3")]},
        {"messages": [HumanMessage("one"), "two", {"three": 3}], "empty": []},
        {"inner": {"messages": [SystemMessage("deep")]}, "pair": (HumanMessage("x"), 1)},
        {},
    ],
)
def test_a_state_is_the_same_json_as_message_by_message(state: dict[str, Any]) -> None:
    assert dumps(state) == orjson.dumps(state, default=json_default)


def test_a_state_that_json_refuses_is_still_streamed() -> None:
    assert dumps({"messages": [HumanMessage("a\ud800b")]}).startswith(
        b'{"messages": [{"content": "a?b"'
    )
    assert dumps({1: [HumanMessage("x")]}).startswith(b'{"1":[{"content":"x"')
