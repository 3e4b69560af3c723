"""The pure parts of the runtime: serialization, modes, requests, queues, lifecycle."""

import math
from collections import deque
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Any

import orjson
import pytest
from langchain_core.messages import (
    AIMessage,
    AIMessageChunk,
    BaseMessage,
    HumanMessage,
    SystemMessage,
    ToolMessage,
)
from langgraph.types import Command, Send

from agent.thread_queue import ThreadQueue
from gateway.runtime.errors import InvalidRequest
from gateway.runtime.lifecycle import (
    can_transition,
    describe_failure,
    ends_with_model_failure,
    is_final,
)
from gateway.runtime.masking import mask_secrets
from gateway.runtime.request import GraphRunRequest, graph_input, request_options, runnable_config
from gateway.runtime.serialization import MessageFrameEncoder, dumps
from gateway.runtime.stream_modes import STREAM_MODES, parse_stream_modes

RUN = "5d0d1d3c-93b5-4a52-8f4e-4b2b0a1f6c11"


@dataclass
class Point:
    x: int


@pytest.mark.parametrize(
    "message",
    [
        AIMessageChunk(content="a", id="1"),
        AIMessage(content=[{"type": "text", "text": "a"}], id="2", name="n"),
        AIMessage("", tool_calls=[{"name": "t", "args": {"a": 1}, "id": "c", "type": "tool_call"}]),
        HumanMessage("x", additional_kwargs={"k": [1]}, more="extra"),
        ToolMessage("x", tool_call_id="c", artifact={"a": 1}, status="error"),
        SystemMessage("s"),
    ],
)
def test_messages_look_as_pydantic_shows_them(message: BaseMessage) -> None:
    assert orjson.loads(dumps(message)) == message.model_dump()


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        ({"a": {1}, "b": deque([1]), "c": (1, 2)}, {"a": [1], "b": [1], "c": [1, 2]}),
        ({"p": Point(3), "u": PurePosixPath("/a")}, {"p": {"x": 3}, "u": "/a"}),
        ({1: "a", "b": b"\xff"}, {"1": "a", "b": "/w=="}),
        ({"n": math.nan, "e": ValueError("no")}, {"n": None, "e": "ValueError('no')"}),
        ({"s": "a\ud800b"}, {"s": "a?b"}),
        ({"big": 2**70}, {"big": 2.0**70}),
        ([HumanMessage("a\ud800b", id="1")], None),
    ],
)
def test_odd_values_become_json(value: object, shown: object) -> None:
    loaded = orjson.loads(dumps(value))
    if shown is not None:
        assert loaded == shown
    else:
        assert loaded[0]["content"] == "a?b"


def test_metadata_of_a_token_is_short_and_sent_once() -> None:
    frames = MessageFrameEncoder()
    metadata = {"langgraph_node": "model", "tags": ["t"], "lc_versions": {"a": 1}, "mine": 1}
    first = frames.pair(AIMessageChunk(content="a", id="1"), metadata)
    assert orjson.loads(first)[1] == {"langgraph_node": "model", "tags": ["t"], "mine": 1}
    assert frames.metadata(metadata) is frames.metadata(metadata)
    other = {"langgraph_node": "tools"}
    assert orjson.loads(frames.metadata(other)) == other


def test_stream_modes_are_parsed() -> None:
    assert parse_stream_modes(None).requested == {"values"}
    assert parse_stream_modes("updates").graph_modes() == ["updates", "values"]
    assert parse_stream_modes(["messages", "messages-tuple"]).graph_modes() == [
        "messages",
        "values",
    ]
    assert parse_stream_modes(STREAM_MODES).requested == set(STREAM_MODES)
    for bad in ("tools", "lifecycle", ["values", "nonsense"]):
        with pytest.raises(InvalidRequest, match="not supported"):
            parse_stream_modes(bad)


def request(**fields: Any) -> GraphRunRequest:  # noqa: ANN401 - any field
    return GraphRunRequest(
        thread_id="t", assistant_id="a", modes=parse_stream_modes(None), **fields
    )


@pytest.mark.parametrize(
    ("given", "kind", "content"),
    [
        ({"role": "user", "content": "a"}, HumanMessage, "a"),
        ({"role": "human", "content": "a", "type": "human"}, HumanMessage, "a"),
        ({"type": "human", "content": [{"type": "text", "text": "a"}]}, HumanMessage, None),
        ({"role": "assistant", "content": "a"}, AIMessage, "a"),
        ({"role": "system", "content": "a"}, SystemMessage, "a"),
        ({"type": "tool", "content": "a", "tool_call_id": "c"}, ToolMessage, "a"),
        ("just text", HumanMessage, "just text"),
    ],
)
def test_messages_of_clients_are_parsed(
    given: object, kind: type[BaseMessage], content: str | None
) -> None:
    converted: Any = graph_input(request(input={"messages": [given], "other": 1}))
    [message] = converted["messages"]
    assert isinstance(message, kind)
    assert converted["other"] == 1
    if content is not None:
        assert message.content == content


def test_a_message_keeps_its_id_name_and_additions_and_can_be_echoed() -> None:
    given = {
        "role": "user",
        "content": "a",
        "id": "event-1",
        "name": "ann",
        "additional_kwargs": {"files": [1]},
    }
    converted: Any = graph_input(request(input={"messages": given}))
    [message] = converted["messages"]
    assert (message.id, message.name) == ("event-1", "ann")
    assert message.additional_kwargs == {"files": [1]}
    said = AIMessage("hi", id="2", response_metadata={"m": 1})
    again: Any = graph_input(request(input={"messages": [said.model_dump()]}))
    assert again["messages"] == [said]


@pytest.mark.parametrize("bad", [{"content": "a"}, {"role": "x", "content": "a"}, 5, None])
def test_malformed_messages_are_named(bad: object) -> None:
    good = {"role": "user", "content": "a"}
    with pytest.raises(InvalidRequest, match=r"input\.messages\[1\]"):
        graph_input(request(input={"messages": [good, bad]}))


def test_commands_are_parsed() -> None:
    resume = graph_input(request(command={"resume": {"a": 1}}))
    assert resume == Command(resume={"a": 1}, goto=[])
    goto = graph_input(
        request(command={"update": {"n": 1}, "goto": ["x", {"node": "y", "input": 2}]})
    )
    assert goto == Command(update={"n": 1}, goto=["x", Send("y", 2)])
    with pytest.raises(InvalidRequest, match="goto"):
        graph_input(request(command={"goto": [{"no": "node"}]}))


@pytest.mark.parametrize(("asked", "got"), [(None, 100), (5, 5), (0, 1), (-3, 1), (10_000, 1000)])
def test_the_recursion_limit_is_bounded(asked: object, got: int) -> None:
    limited = request(config={"recursion_limit": asked})
    config = runnable_config(
        limited, request_options(limited), run_id=RUN, thread_id="t", graph_id="g"
    )
    assert config["recursion_limit"] == got


@pytest.mark.parametrize("asked", ["x", "25", 2.5, True])
def test_a_recursion_limit_that_is_no_whole_number_is_refused(asked: object) -> None:
    with pytest.raises(InvalidRequest, match="whole number"):
        request_options(request(config={"recursion_limit": asked}))


def test_a_runs_config_contains_its_ids_and_options() -> None:
    asked = request(
        config={"tags": ["a"], "metadata": {"m": 1}, "configurable": {"x": 1, "run_id": "evil"}},
        context={"x": 1, "langgraph_auth_user": "root"},
        metadata={"k": "v", "run_id": "evil"},
        checkpoint={"checkpoint_id": "c", "thread_id": "evil"},
    )
    config = runnable_config(asked, request_options(asked), run_id=RUN, thread_id="t", graph_id="g")
    ids = {"thread_id": "t", "run_id": RUN}
    assert config["configurable"] == {"x": 1, "checkpoint_id": "c", **ids}
    assert config["metadata"] == {"m": 1, "k": "v", "graph_id": "g", **ids}
    assert config["tags"] == ["a"]


@pytest.mark.parametrize(
    "config", [{"configurable": [1]}, {"tags": "abc"}, {"metadata": "x"}, {"tags": 5}]
)
def test_config_of_the_wrong_form(config: dict[str, Any]) -> None:
    with pytest.raises(InvalidRequest, match="must be"):
        request_options(request(config=config))


def test_queues_go_in_order() -> None:
    queue = ThreadQueue()
    first, second, third = (queue.join("t") for _ in range(3))
    other = queue.join("other")
    assert first.ready.is_set()
    assert other.ready.is_set()
    assert not second.ready.is_set()
    queue.leave(second)
    assert not third.ready.is_set()
    queue.leave(first)
    assert third.ready.is_set()
    queue.leave(third)
    assert queue.length("t") == 0
    assert queue.length("other") == 1


def test_a_run_passes_these_states() -> None:
    assert can_transition("pending", "interrupted")
    assert not can_transition("interrupted", "running")
    assert is_final("timeout")
    assert not is_final("running")


class CustomError(Exception):
    user_message = "Set OPENAI_API_KEY."


def test_exceptions_are_described_without_secrets() -> None:
    assert describe_failure(KeyError("a")).message == "'a'"
    assert describe_failure(CustomError("sk-secret")).message == "Set OPENAI_API_KEY."
    assert describe_failure(PermissionError("/etc/shadow")).as_dict() == {
        "error": "PermissionError",
        "message": "An internal error occurred",
    }


@pytest.mark.parametrize("command", [{}, {"resume": None}, {"update": {}, "goto": []}])
def test_an_empty_command_is_refused(command: dict[str, Any]) -> None:
    with pytest.raises(InvalidRequest, match="resume, update or goto"):
        graph_input(request(command=command))
    assert graph_input(request(command={"resume": False})) is not None


@pytest.mark.parametrize(
    ("said", "told"),
    [
        ("n must be > 0", "n must be > 0"),
        ("a/b and 1/2", "a/b and 1/2"),
        ("/mnt/skills/public/x/SKILL.md", "/mnt/skills/public/x/SKILL.md"),
        ("[Errno 2] '/srv/parley/data/parley.db'", "[Errno 2] '(a path)'"),
        ("C:\\Users\\me\\secrets.txt is not there", "(a path) is not there"),
        ("use key sk-proj-abcdefghijklmnop", "use key (a key)"),
        ("Authorization: Bearer abcdefgh12345678", "Authorization: (a key)"),
        ("xoxb-1234567890-abcdefghij", "(a key)"),
        (
            "see https://docs.example.com/a/b/c?x=/y/z",
            "see https://docs.example.com/a/b/c?x=(a path)",
        ),
    ],
)
def test_errors_do_not_tell_where_files_lie_and_what_keys_are(said: str, told: str) -> None:
    assert mask_secrets(said) == told
    assert describe_failure(ValueError(said)).message == told


def test_a_run_that_only_excused_itself_has_failed() -> None:
    excuse = AIMessage("No model.", additional_kwargs={"error_fallback": True})
    assert ends_with_model_failure({"messages": [HumanMessage("a"), excuse]})
    assert not ends_with_model_failure({"messages": [excuse, HumanMessage("a"), AIMessage("b")]})
    assert not ends_with_model_failure({"messages": []})
    assert not ends_with_model_failure(None)
