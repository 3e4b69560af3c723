"""A server gets its own fields back, and no other server gets them: across checkpoints, summaries and changed calls."""

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from langchain_core.messages import AIMessage, AnyMessage, HumanMessage, ToolCall, ToolMessage

from agent.config import AgentConfig
from agent.factory import AgentFactory, open_agent_factory
from agent.middleware.call_ids import unique_call_ids
from agent.middleware.tool_calls import remove_tool_calls
from agent.middleware.visible_history import VisibleHistory
from agent.models.answers import PROVIDER_FIELDS
from agent.services import AgentSetup
from agent.state import HistorySummary
from store.checkpoints import open_checkpointer
from tests.agent.test_model_servers import openai_at, turn
from tests.fakes.model import FakeModelServer, ModelReply, event_stream, whole_body

PATH = "/mnt/user-data/workspace"
SIGNATURE = {"google": {"thought_signature": "c2lnbmF0dXJl"}}
DETAILS = [
    {"type": "reasoning.text", "text": "Hm, let me see.", "signature": "s", "index": 0},
    {"type": "reasoning.encrypted", "data": "eA==", "id": "c1", "index": 0},
]


def look(call_id: str, **more: object) -> dict[str, Any]:
    function = {"name": "ls", "arguments": f'{{"path": "{PATH}"}}'}
    return {"index": 0, "id": call_id, "type": "function", "function": function, **more}


@asynccontextmanager
async def agents_at(home: Path, *models: Mapping[str, object]) -> AsyncIterator[AgentFactory]:
    """Open the agent with the service's checkpoints, so that each turn reads what the previous one saved."""
    config = AgentConfig.model_validate({"models": list(models), "memory": {"enabled": False}})
    async with (
        open_checkpointer(home) as checkpointer,
        open_agent_factory(AgentSetup(config=config, home=home), checkpointer) as agents,
    ):
        yield agents


def answers_of(messages: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [message for message in messages if message["role"] == "assistant"]


@pytest.mark.parametrize("is_streamed", [True, False])
@pytest.mark.parametrize("use", ["langchain_openai:ChatOpenAI", "agent.models.vllm:VllmChatModel"])
async def test_signatures_and_unknown_fields_come_back_in_their_place(
    tmp_path: Path, use: str, *, is_streamed: bool
) -> None:
    calls = [
        {**look("c1", extra_content=SIGNATURE), "index": 0},
        {**look("c2", odd={"a": [1]}), "index": 1},
    ]
    calls[1]["function"] = {**calls[1]["function"], "inner": "x"}
    message = {
        "extra_content": SIGNATURE,
        "reasoning_details": DETAILS,
        "unknown": [1, {"b": None}],
        "tool_calls": calls,
    }
    pieces: list[dict[str, Any]] = [
        {"reasoning_details": [{"type": "reasoning.text", "text": "Hm, ", "index": 0}]},
        {"reasoning_details": [{"type": "reasoning.text", "text": "let me see.", "index": 0}]},
        {
            "reasoning_details": [
                {"type": "reasoning.text", "text": "", "signature": "s", "index": 0}
            ]
        },
        {
            "reasoning_details": [DETAILS[1]],
            "extra_content": SIGNATURE,
            "unknown": [1, {"b": None}],
        },
        {"extra_content": SIGNATURE},
        {"tool_calls": calls},
    ]
    body = event_stream(*pieces) if is_streamed else whole_body(message)
    last = {"content": "Empty.", "extra_content": SIGNATURE}
    end = event_stream(last) if is_streamed else whole_body(last)
    async with FakeModelServer() as server:
        server.reply(ModelReply(body=body), ModelReply(body=end), "Still.")
        entry = openai_at(server, use=use, disable_streaming=not is_streamed)
        async with agents_at(tmp_path, entry) as agents:
            await turn(agents, "look")
        async with agents_at(tmp_path, entry) as agents:  # a new process reads them from disk
            await turn(agents, "and now?")
    for request in server.requests[1:]:
        first, *others = answers_of(request.messages)
        assert first["extra_content"] == SIGNATURE
        assert first["reasoning_details"] == DETAILS
        assert first["unknown"] == [1, {"b": None}]
        assert first["tool_calls"][0]["extra_content"] == SIGNATURE
        assert first["tool_calls"][1]["odd"] == {"a": [1]}
        assert first["tool_calls"][1]["function"]["inner"] == "x"
        assert "extra_content" not in first["tool_calls"][1]
        assert all(one["extra_content"] == SIGNATURE for one in others)


async def test_another_server_is_sent_none_of_it(tmp_path: Path) -> None:
    async with FakeModelServer() as first, FakeModelServer() as second:
        first.reply(
            ModelReply(
                body=event_stream(
                    {"reasoning_content": "Hm."},
                    {"tool_calls": [look("c1", extra_content=SIGNATURE)], "unknown": 1},
                )
            ),
            "Empty.",
        )
        models = openai_at(first, name="a"), openai_at(second, name="b")
        async with agents_at(tmp_path, *models) as agents:
            await turn(agents, "look")
            await turn(agents, "and now?", model_name="b")
            await turn(agents, "and back?", model_name="a")
    sent = answers_of(second.requests[0].messages)[0]
    assert sent.keys() == {"role", "content", "tool_calls"}
    assert sent["tool_calls"][0].keys() == {"id", "type", "function"}
    back = answers_of(first.requests[-1].messages)[0]
    assert (back["unknown"], back["reasoning_content"]) == (1, "Hm.")


@pytest.mark.parametrize("use", ["langchain_openai:ChatOpenAI", "agent.models.vllm:VllmChatModel"])
async def test_thinking_goes_back_where_a_server_wants_it(tmp_path: Path, use: str) -> None:
    async with FakeModelServer() as server:
        server.reply(
            ModelReply(
                body=event_stream(
                    {"reasoning_content": "Look first."}, {"tool_calls": [look("c1")]}
                )
            ),
            ModelReply(body=event_stream({"reasoning_content": "Nothing."}, {"content": "Empty."})),
            "Still.",
        )
        async with agents_at(tmp_path, openai_at(server, use=use)) as agents:
            await turn(agents, "look")
            await turn(agents, "and now?")
    calling, answering = answers_of(server.requests[2].messages)
    assert calling["reasoning_content"] == "Look first."
    always = use.endswith("VllmChatModel")
    assert answering.get("reasoning_content") == ("Nothing." if always else None)


async def test_ids_that_come_again_keep_their_fields(tmp_path: Path) -> None:
    async with FakeModelServer() as server:
        for number in (1, 2):
            signature = {"google": {"thought_signature": f"s{number}"}}
            call = look("call_0", extra_content=signature)
            server.reply(ModelReply(body=event_stream({"tool_calls": [call]})), "Empty.")
        server.reply("Done.")
        async with agents_at(tmp_path, openai_at(server)) as agents:
            for said in ("one", "two", "three"):
                await turn(agents, said)
    sent = [
        call
        for one in answers_of(server.requests[-1].messages)
        for call in one.get("tool_calls", ())
    ]
    assert [call["extra_content"]["google"]["thought_signature"] for call in sent] == ["s1", "s2"]
    assert len({call["id"] for call in sent}) == 2


def test_fields_stay_with_calls_that_a_summary_keeps() -> None:
    call = ToolCall(name="read_file", args={"path": "/mnt/skills/a/SKILL.md"}, id="a")
    fields = {"server": "s", "calls": {"a": {"y": 1}}}
    calling = AIMessage(
        "Hm", id="1", tool_calls=[call], additional_kwargs={PROVIDER_FIELDS: fields}
    )
    messages: list[AnyMessage] = [
        HumanMessage("x", id="0"),
        calling,
        ToolMessage("ok", tool_call_id="a", id="2"),
        HumanMessage("y", id="3"),
    ]
    summary = HistorySummary(
        text="s", kept_from="3", summarized_to="3", kept_calls=["a"], important=[], parts=0
    )
    kept = next(
        one for one in VisibleHistory(messages, summary).messages if isinstance(one, AIMessage)
    )
    assert kept.additional_kwargs == {PROVIDER_FIELDS: fields}


def test_fields_stay_with_what_is_left_of_a_message() -> None:
    calls = [ToolCall(name="ls", args={"path": f"/mnt/skills/{n}"}, id=n) for n in ("a", "b")]
    fields = {"server": "s", "message": {"x": 1}, "calls": {"a": {"y": 1}, "b": {"y": 2}}}
    answer = AIMessage("", id="1", tool_calls=calls, additional_kwargs={PROVIDER_FIELDS: fields})
    assert (
        remove_tool_calls(answer, lambda one: one["id"] == "a").additional_kwargs[PROVIDER_FIELDS]
        == fields
    )
    again = answer.model_copy(update={"id": "2"})
    renamed = unique_call_ids([HumanMessage("x"), answer, HumanMessage("y"), again])[-1]
    assert isinstance(renamed, AIMessage)
    kept = renamed.additional_kwargs[PROVIDER_FIELDS]["calls"]
    assert [kept[str(one["id"])] for one in renamed.tool_calls] == [{"y": 1}, {"y": 2}]
