"""Every provider accepts the requests, even with repeated or overlong call ids or blank texts."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from langchain_core.messages import AIMessage, AnyMessage, BaseMessage, HumanMessage, ToolMessage

from agent.middleware.blank_texts import without_blank_texts
from agent.middleware.call_ids import MAX_CHARS, unique_call_ids
from agent.models.roles import NO_TEXT
from tests.agent.agent_harness import open_agent
from tests.fakes.model import ModelReply, ToolCall
from tests.fakes.scripted import ScriptedChatModel

UNTIMED = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])

LISTING = ModelReply(
    text="\n\n",
    calls=(ToolCall(name="ls", args={"path": "/mnt/user-data"}, id="functions.ls:0"),),
)


def ai(*ids: str, **more: Any) -> AIMessage:  # noqa: ANN401 - whatever AIMessage takes
    return AIMessage("", tool_calls=[{"name": "ls", "args": {}, "id": one} for one in ids], **more)


def result(call_id: str) -> ToolMessage:
    return ToolMessage(f"result of {call_id}", tool_call_id=call_id)


def pairs(messages: Sequence[BaseMessage]) -> list[tuple[str, str]]:
    """Return the ids of calls and results, in order."""
    called = [str(c["id"]) for m in messages if isinstance(m, AIMessage) for c in m.tool_calls]
    answered = [m.tool_call_id for m in messages if isinstance(m, ToolMessage)]
    return list(zip(called, answered, strict=True))


@UNTIMED
@given(st.lists(st.lists(st.sampled_from("abcx"), min_size=1, max_size=3, unique=True), max_size=6))
def test_ids_are_unique_and_short_and_results_follow_them(turns: list[list[str]]) -> None:
    messages: list[AnyMessage] = []
    for names in turns:
        ids = [name * 50 if name == "x" else name for name in names]
        messages += [HumanMessage("go"), ai(*ids), *map(result, ids)]
    made = unique_call_ids(messages)
    ids = [call_id for call_id, answered in pairs(made) if call_id == answered]
    assert len(ids) == len(set(ids)) == sum(map(len, turns))
    assert all(len(call_id) <= MAX_CHARS for call_id in ids)
    assert [m.content for m in made] == [m.content for m in messages]
    assert pairs(unique_call_ids(messages)) == pairs(made)
    assert unique_call_ids(made) is made
    longer = unique_call_ids([*messages, HumanMessage("next")])
    assert pairs(longer) == pairs(made), "the beginning of a request stays the same"


def test_all_forms_of_a_call_get_its_new_id() -> None:
    raw = {"id": "a", "type": "function", "function": {"name": "ls", "arguments": "{}"}}
    block = {"type": "tool_use", "id": "a", "name": "ls", "input": {}}
    again = ai("a", additional_kwargs={"tool_calls": [raw]})
    again.content = [{"type": "text", "text": "I look."}, block]
    made = unique_call_ids([ai("a"), result("a"), again, result("a")])
    answer, answered = made[2], made[3]
    assert isinstance(answer, AIMessage)
    assert isinstance(answered, ToolMessage)
    new = answered.tool_call_id
    assert new != "a"
    assert answer.tool_calls[0]["id"] == new
    assert answer.additional_kwargs["tool_calls"] == [{**raw, "id": new}]
    assert answer.content == [{"type": "text", "text": "I look."}, {**block, "id": new}]
    assert again.tool_calls[0]["id"] == "a", "the thread keeps its messages"


def test_blank_texts_are_left_out() -> None:
    picture: dict[str, Any] = {"type": "image_url", "image_url": {"url": "data:"}}
    calling = ai("a")
    calling.content = [{"type": "text", "text": "\n"}, {"type": "thinking", "thinking": "Hm."}]
    messages: list[AnyMessage] = [
        HumanMessage(""),
        HumanMessage([{"type": "text", "text": " "}]),
        HumanMessage([{"type": "text", "text": ""}, picture]),
        calling,
        ToolMessage(" ", tool_call_id="a"),
    ]
    assert [message.content for message in without_blank_texts(messages)] == [
        NO_TEXT,
        NO_TEXT,
        [picture],
        [{"type": "thinking", "thinking": "Hm."}],
        " ",
    ]
    kept: list[AnyMessage] = [HumanMessage("a"), ai("a"), result("a"), AIMessage("b")]
    assert without_blank_texts(kept) is kept


async def test_a_thread_can_go_on_with_a_stricter_model(tmp_path: Path) -> None:
    model = ScriptedChatModel.playing(LISTING, "\n", "\n", LISTING, "Empty.")
    async with open_agent(tmp_path, model) as harness:
        await harness.say("look")
        messages = await harness.say("")
    request = model.prompts[-1]
    assert len({call_id for call_id, _ in pairs(request)}) == 2
    assert all(call_id == answered for call_id, answered in pairs(request))
    assert [m.content for m in request if m.type == "human"] == ["look", NO_TEXT]
    assert [m.content for m in request if m.type == "ai"] == ["", ""], "blank answers are left out"
    assert {call_id for call_id, _ in pairs(messages)} == {"functions.ls:0"}
