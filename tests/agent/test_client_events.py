"""The events of a turn: everything is reported once, and nothing of earlier turns."""

import sys
from collections.abc import Iterable
from types import FrameType
from typing import Any

import pytest
from langchain_core.messages import (
    AIMessage,
    AIMessageChunk,
    AnyMessage,
    HumanMessage,
    ToolMessage,
)
from langchain_core.messages.ai import UsageMetadata
from langchain_core.messages.tool import tool_call_chunk

from agent.client.events import FinalText, StreamEvent, TurnEvents
from agent.streaming import SUBAGENT_USAGE_KEY as USAGE_KEY

ASKED = HumanMessage("and now?", id="h2")
OLD: list[AnyMessage] = [
    HumanMessage("hi", id="h1"),
    AIMessage(
        "old words",
        id="a1",
        tool_calls=[{"name": "ls", "args": {}, "id": "c1"}],
        usage_metadata=UsageMetadata(input_tokens=100, output_tokens=100, total_tokens=200),
    ),
    ToolMessage("old result", tool_call_id="c1", name="ls", id="t1"),
]
USAGE = UsageMetadata(input_tokens=3, output_tokens=2, total_tokens=5)
NO_USAGE = {"input_tokens": 0, "output_tokens": 0, "total_tokens": 0}

Part = tuple[str, Any]


def piece(message: AnyMessage) -> Part:
    return "messages", (message, {"langgraph_node": "model"})


def chunk(text: str, **more: Any) -> Part:  # noqa: ANN401 - fields of a message
    return piece(AIMessageChunk(content=text, id="a2", **more))


def values(*messages: AnyMessage, **more: object) -> Part:
    return "values", {"messages": [*OLD, ASKED, *messages], **more}


def told(*parts: Part) -> list[StreamEvent]:
    """Return the events of a turn whose graph streams the thread's earlier state and then these parts."""
    telling = TurnEvents("h2")
    events = [event for part in (values(), *parts) for event in telling.read(*part)]
    return [*events, telling.end()]


def ai(content: str = "", message_id: str = "a2", **more: object) -> StreamEvent:
    data = {"type": "ai", "content": content, "id": message_id, **more}
    return StreamEvent("messages-tuple", data)


def kinds(events: Iterable[StreamEvent]) -> list[str]:
    return [event.type for event in events]


def spoken(events: Iterable[StreamEvent]) -> list[dict[str, Any]]:
    return [event.data for event in events if event.type == "messages-tuple"]


def usage_of(events: list[StreamEvent]) -> dict[str, int]:
    usage: dict[str, int] = events[-1].data["usage"]
    return usage


def test_the_golden_sequence() -> None:
    answer = AIMessage("Hello there", id="a2", usage_metadata=USAGE)
    events = told(
        chunk("Hello "),
        chunk("there", usage_metadata=USAGE),
        values(answer, title="Greeting", artifacts=["/mnt/user-data/outputs/a"]),
    )
    messages = [message.model_dump() for message in (*OLD, ASKED, answer)]
    state = {"title": "Greeting", "messages": messages, "artifacts": ["/mnt/user-data/outputs/a"]}
    assert events == [
        ai("Hello "),
        ai("there", usage_metadata=dict(USAGE)),
        StreamEvent("values", state),
        StreamEvent("end", {"usage": dict(USAGE)}),
    ]


def test_earlier_turns_are_neither_streamed_nor_counted() -> None:
    events = told(values(), piece(OLD[1]), piece(OLD[2]), values())
    assert kinds(events) == ["values", "values", "end"]
    assert usage_of(events) == NO_USAGE


def test_a_first_state_with_more_than_the_input_is_streamed() -> None:
    """This happens if a run continues from a step that finished earlier."""
    telling = TurnEvents("h2")
    first = list(telling.read(*values(AIMessage("Yes", id="a2"))))
    assert spoken(first) == [ai("Yes").data]
    assert kinds(first) == ["messages-tuple", "values"]


def test_a_state_without_the_input_streams_nothing_old() -> None:
    """This happens if a middleware replaces the message."""
    telling = TurnEvents("h2")
    assert list(telling.read("values", {"messages": OLD})) == []
    later = telling.read("values", {"messages": [*OLD, AIMessage("Yes", id="a2")]})
    assert spoken(later) == [ai("Yes").data]


def test_tool_calls_are_streamed_once_and_whole() -> None:
    call = {"name": "add", "args": {"a": 1, "b": 2}, "id": "c2"}
    answer = AIMessage("Adding.", id="a2", tool_calls=[{**call, "type": "tool_call"}])
    result = ToolMessage("3", tool_call_id="c2", name="add", id="t2")
    first = tool_call_chunk(name="add", args="", id="c2", index=0)
    second = tool_call_chunk(name=None, args='{"a": 1, "b": 2}', id=None, index=0)
    raw = {"tool_calls": [{"index": 0, "id": "c2", "function": {"name": "add"}}]}
    events = told(
        chunk("Adding."),
        chunk("", tool_call_chunks=[first], additional_kwargs=raw),
        chunk("", tool_call_chunks=[second]),
        values(answer),
        piece(result),
        values(answer, result),
    )
    assert spoken(events) == [
        ai("Adding.").data,
        ai(tool_calls=[call]).data,
        {"type": "tool", "content": "3", "name": "add", "tool_call_id": "c2", "id": "t2"},
    ]


def test_messages_that_were_not_streamed_are_read_from_the_state() -> None:
    answer = AIMessage(
        "Whole.", id="a2", usage_metadata=USAGE, additional_kwargs={"reasoning": "because"}
    )
    result = ToolMessage("3", tool_call_id="c2", name="add", id="t2")
    events = told(values(answer, result), values(answer, result))
    assert [one["content"] for one in spoken(events)] == ["Whole.", "3"]
    assert spoken(events)[0]["additional_kwargs"] == {"reasoning": "because"}
    assert usage_of(events) == dict(USAGE)


def test_a_whole_message_among_streamed_tokens_is_streamed_once() -> None:
    answer = AIMessage("Whole.", id="a2", usage_metadata=USAGE)
    events = told(piece(answer), piece(answer), values(answer))
    assert spoken(events) == [ai("Whole.", usage_metadata=dict(USAGE)).data]
    assert usage_of(events) == dict(USAGE)


def test_states_that_come_before_their_tokens_repeat_the_text() -> None:
    """The order matters: the graph streams a message's tokens before the state that contains the message."""
    answer = AIMessage("Hello", id="a2")
    events = told(values(answer), chunk("Hel"), chunk("lo"))
    assert "".join(one["content"] for one in spoken(events)) == "HelloHello"


def test_usage_in_pieces_counts_as_the_state_has_it() -> None:
    start = UsageMetadata(input_tokens=3, output_tokens=0, total_tokens=3)
    rest = UsageMetadata(input_tokens=0, output_tokens=2, total_tokens=2)
    parts = (chunk("a", usage_metadata=start), chunk("b", usage_metadata=rest))
    assert usage_of(told(*parts)) == dict(USAGE)
    corrected = UsageMetadata(input_tokens=7, output_tokens=2, total_tokens=9)
    answer = AIMessage("ab", id="a2", usage_metadata=corrected)
    assert usage_of(told(*parts, values(answer), values(answer))) == dict(corrected)


def test_usage_of_delegations_is_part_of_the_turns() -> None:
    answer = AIMessage("", id="a2", usage_metadata=USAGE)
    result = ToolMessage(
        "done", tool_call_id="c", name="task", id="t2", additional_kwargs={USAGE_KEY: USAGE}
    )
    events = told(values(answer), piece(result), values(answer, result))
    assert usage_of(events)["total_tokens"] == 10


def test_reasoning_is_streamed_in_chunks_and_not_repeated() -> None:
    answer = AIMessage(
        "4", id="a2", additional_kwargs={"reasoning_content": "two and two", "safe": True}
    )
    events = told(
        chunk("", additional_kwargs={"reasoning_content": "two "}),
        chunk("", additional_kwargs={"reasoning_content": "and two"}),
        chunk("4"),
        values(answer),
        values(answer),
    )
    assert spoken(events) == [
        ai(additional_kwargs={"reasoning_content": "two "}).data,
        ai(additional_kwargs={"reasoning_content": "and two"}).data,
        ai("4").data,
        ai(additional_kwargs={"safe": True}).data,
    ]


def test_text_of_content_blocks_is_streamed_and_other_blocks_are_not() -> None:
    blocks: list[str | dict[Any, Any]] = [
        {"type": "thinking", "thinking": "hm"},
        {"type": "text", "text": "So."},
    ]
    assert spoken(told(piece(AIMessageChunk(content=blocks, id="a2")))) == [ai("So.").data]


def test_custom_events_come_through_as_they_are() -> None:
    data = {"type": "task_started", "task_id": "c2"}
    assert told(("custom", data), ("custom", "text"))[:2] == [
        StreamEvent("custom", data),
        StreamEvent("custom", "text"),
    ]


def test_empty_chunks_are_not_streamed() -> None:
    assert kinds(told(chunk(""), piece(HumanMessage("aside", id="h9")))) == ["end"]


# --- the final text --------------------------------------------------------------------------------------------


def words(*events: StreamEvent) -> str:
    heard = FinalText()
    for event in events:
        heard.add(event)
    return heard.text


def tool(content: str, name: str) -> StreamEvent:
    data = {"type": "tool", "content": content, "name": name, "tool_call_id": "c", "id": "t"}
    return StreamEvent("messages-tuple", data)


@pytest.mark.parametrize(
    ("events", "text"),
    [
        ((), ""),
        ((StreamEvent("values", {}), StreamEvent("end", {})), ""),
        (
            (ai("Let me look. "), tool("3", "ls"), ai("There ", "b"), ai("are 3.", "b")),
            "There are 3.",
        ),
        ((ai("Said."), tool("3", "ls"), ai("", "b")), "Said."),
        ((ai("Hm. "), tool("Which one?", "ask_clarification")), "Which one?"),
        ((ai("a", "x"), ai("1", "y"), ai("b", "x")), "ab"),
    ],
)
def test_the_last_words(events: tuple[StreamEvent, ...], text: str) -> None:
    assert words(*events) == text


def test_a_long_answer_costs_the_same_for_every_piece() -> None:
    assert effort(10_000) <= 10.5 * effort(1_000)


def effort(pieces: int) -> int:
    """Return how many calls it takes to read an answer of this many pieces of one character."""
    calls = 0

    def count(_frame: FrameType, event: str, _argument: object) -> None:
        nonlocal calls
        calls += event in ("call", "c_call")

    telling, heard = TurnEvents("h2"), FinalText()
    parts = [chunk("x") for _ in range(pieces)]
    sys.setprofile(count)
    try:
        for part in parts:
            for event in telling.read(*part):
                heard.add(event)
        text = heard.text
    finally:
        sys.setprofile(None)
    assert text == "x" * pieces
    assert [len(kept) for kept in heard._pieces.values()] == [pieces]  # joined only at the end
    return calls
