"""Models and tools return values that no store or server accepts: this turn and the next still get answers."""

import json
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from langchain_core.messages import AIMessage, AnyMessage, HumanMessage, ToolMessage
from langchain_core.runnables import RunnableConfig
from langchain_core.tools import tool
from langgraph.types import Command

from agent.clean_values import clean_json, clean_text
from agent.config import AgentConfig
from agent.factory import AgentFactory, open_agent_factory
from agent.middleware.clean_messages import clean_message
from agent.middleware.tool_call_repair import MAX_ARGUMENT_CHARS, NESTED_TOO_DEEP, TOO_LONG
from agent.models.failures import is_fallback
from agent.services import AgentSetup
from gateway.runtime.serialization import dumps
from store.checkpoints import open_checkpointer
from tests.agent.plain_agent import THREAD
from tests.agent.test_model_servers import openai_at
from tests.fakes.model import FakeModelServer, ModelReply, event_stream, whole_body

HERE = __name__


def nested(levels: int) -> object:
    value: object = 1
    for _ in range(levels):
        value = {"a": [value]}
    return value


VALUES: dict[str, Any] = {
    "huge integer": 12345678901234567890123,
    "large integer": 2**63,
    "integer of 5,000 digits": "DIGITS",
    "deep": nested(150),
    "deeper": nested(300),
    "lone surrogate": "a\ud800b",
    "surrogate key": {"\udc00": 1},
    "NUL": "a\0b",
    "NaN": float("nan"),
    "Infinity": [float("inf"), float("-inf")],
    "huge text": "x" * 1_200_000,
    "all": {"a": [2**80, "\ud83d", float("nan"), {"\0": "\ud83d\ude00"}]},
}
DIGITS = "1" * 5000


def encoded(value: object) -> str:
    """Return a value as JSON, like a careless server."""
    return json.dumps(value).replace('"DIGITS"', DIGITS)


@tool
def keep(value: Any) -> str:  # noqa: ANN401 - a model can send anything
    """Keep a value."""
    return f"kept {type(value).__name__}"


@tool
def give(name: str) -> str:
    """Return a value as text."""
    value = VALUES[name]
    return value if isinstance(value, str) else str(value)


@tool(response_format="content_and_artifact")
def attach(name: str) -> tuple[str, Any]:
    """Return a value next to the text."""
    return "attached", VALUES[name]


@tool
def fail(name: str) -> str:
    """Raise an error with a value."""
    raise RuntimeError(f"failed with {VALUES[name]}")


@tool
def update(name: str) -> Command[Any]:
    """Put a value into the state."""
    message = ToolMessage(
        "updated",
        tool_call_id="c",
        artifact=VALUES[name],
        additional_kwargs={"value": VALUES[name]},
    )
    return Command(update={"messages": [message], "title": VALUES[name]})


TOOLS = (keep, give, attach, fail, update)


@asynccontextmanager
async def agents_at(
    home: Path, server: FakeModelServer, *, is_streamed: bool
) -> AsyncIterator[AgentFactory]:
    tools = [{"name": one.name, "group": "g", "use": f"{HERE}:{one.name}"} for one in TOOLS]
    entry = openai_at(server, disable_streaming=not is_streamed)
    sections = {"models": [entry], "tools": tools, "memory": {"enabled": False}}
    async with (
        open_checkpointer(home) as checkpointer,
        open_agent_factory(
            AgentSetup(config=AgentConfig.model_validate(sections), home=home), checkpointer
        ) as agents,
    ):
        yield agents


async def say(agents: AgentFactory, said: str, thread: str) -> list[AnyMessage]:
    """Run a turn, check that what it streams can be sent to clients, and return the thread's messages."""
    config: RunnableConfig = {"configurable": {"thread_id": thread}, "recursion_limit": 50}
    graph = await agents.graph_for(config)
    asked = {"messages": [HumanMessage(said)]}
    async for part in graph.astream(asked, config, stream_mode=["messages", "values"]):
        json.loads(dumps(part))
    state = await graph.aget_state(config)
    return list(state.values["messages"])


Check = Callable[[list[AnyMessage]], None]


async def find_problems(
    home: Path,
    replies: Mapping[str, Sequence[ModelReply | str]],
    check: Check,
    *,
    is_streamed: bool,
) -> dict[str, str]:
    """Run a turn with each row's replies, and another one after a restart. Return the problems by row.

    Each row has its own thread. `check` gets the messages of its first turn.
    """
    problems: dict[str, str] = {}
    threads = {row: f"row{number}" for number, row in enumerate(replies)}

    async def converse(agents: AgentFactory, row: str, said: str) -> None:
        try:
            messages = await say(agents, said, threads[row])
            if said == "go":
                check(messages)
            else:
                assert messages[-1].text == f"You said: {said}"
            assert not any(is_fallback(one) for one in messages)
            for request in server.requests:
                json.dumps(request.body, ensure_ascii=False, allow_nan=False).encode()
        except Exception as error:  # noqa: BLE001 - report every row
            problems.setdefault(row, f"{said}: {error!r:.500}")
        server.requests.clear()
        server.forget_replies()

    async with FakeModelServer() as server:
        async with agents_at(home, server, is_streamed=is_streamed) as agents:
            for row, answers in replies.items():
                server.reply(*answers)
                await converse(agents, row, "go")
        async with agents_at(home, server, is_streamed=is_streamed) as agents:
            for row in replies:
                await converse(agents, row, "and now?")
    return problems


def is_done(messages: list[AnyMessage]) -> None:
    assert messages[-1].text == "Done."
    (result,) = (one for one in messages if isinstance(one, ToolMessage))
    assert clean_text(result.text) == result.text


def calling(name: str, arguments: object, *, is_streamed: bool) -> ModelReply:
    call = {
        "index": 0,
        "id": "c",
        "type": "function",
        "function": {"name": name, "arguments": arguments},
    }
    message = {"content": "", "tool_calls": [call]}
    return body_of(message, is_streamed=is_streamed, finish="tool_calls")


def body_of(message: dict[str, Any], *, is_streamed: bool, finish: str = "stop") -> ModelReply:
    body = (
        event_stream(message, finish=finish) if is_streamed else whole_body(message, finish=finish)
    )
    return ModelReply(body=body.replace(b'"DIGITS"', DIGITS.encode()))


streamed = pytest.mark.parametrize("is_streamed", [True, False], ids=["streamed", "whole"])


@streamed
@pytest.mark.parametrize("as_object", [True, False], ids=["object", "text"])
async def test_in_arguments(tmp_path: Path, *, is_streamed: bool, as_object: bool) -> None:
    def is_kept_or_refused(messages: list[AnyMessage]) -> None:
        is_done(messages)
        (result,) = (one for one in messages if isinstance(one, ToolMessage))
        assert result.text.startswith(("kept", "[Tool call was not run"))

    rows = {}
    for name, value in VALUES.items():
        arguments: Any = {"value": value} if as_object else encoded({"value": value})
        rows[name] = (calling("keep", arguments, is_streamed=is_streamed), "Done.")
    problems = await find_problems(tmp_path, rows, is_kept_or_refused, is_streamed=is_streamed)
    assert problems == {}


@streamed
async def test_arguments_that_are_no_object(tmp_path: Path, *, is_streamed: bool) -> None:
    texts = ["[1]", "7", '"x"', "null", "", "{", "nonsense", '"{\\"value\\": 1}"', "\ud800"]
    rows = {
        f"{number}: {value!r}": (calling("keep", value, is_streamed=is_streamed), "Done.")
        for number, value in enumerate([*texts, [1], 7, None])
    }
    assert await find_problems(tmp_path, rows, is_done, is_streamed=is_streamed) == {}


@streamed
async def test_in_text(tmp_path: Path, *, is_streamed: bool) -> None:
    def is_clean(messages: list[AnyMessage]) -> None:
        assert messages[-1].text.startswith("Look:")
        assert clean_text(messages[-1].text) == messages[-1].text

    rows = {}
    for name, value in VALUES.items():
        text = value if isinstance(value, str) else str(value)
        message = {"content": f"Look: {text}", "odd": value, "reasoning_content": text[:99]}
        rows[name] = (body_of(message, is_streamed=is_streamed),)
    assert await find_problems(tmp_path, rows, is_clean, is_streamed=is_streamed) == {}


@streamed
@pytest.mark.parametrize("door", ["give", "attach", "fail", "update"])
async def test_from_tools(tmp_path: Path, door: str, *, is_streamed: bool) -> None:
    rows = {
        name: (calling(door, {"name": name}, is_streamed=is_streamed), "Done.") for name in VALUES
    }
    assert await find_problems(tmp_path, rows, is_done, is_streamed=is_streamed) == {}


async def test_calls_that_were_not_run_are_reported_to_the_model(tmp_path: Path) -> None:
    values = {NESTED_TOO_DEEP: nested(150), TOO_LONG: "x" * MAX_ARGUMENT_CHARS}
    async with (
        FakeModelServer() as server,
        agents_at(tmp_path, server, is_streamed=True) as agents,
    ):
        for number, (told, value) in enumerate(values.items()):
            server.reply(calling("keep", {"value": value}, is_streamed=True), "Done.")
            is_done(await say(agents, "go", f"t{number}"))
            (result,) = (one for one in server.requests[-1].messages if one["role"] == "tool")
            (asked,) = (one for one in server.requests[-1].messages if one.get("tool_calls"))
            assert result["content"] == told
            assert asked["tool_calls"][0]["function"]["arguments"] == "{}"


async def test_numbers_keep_their_digits(tmp_path: Path) -> None:
    async with (
        FakeModelServer() as server,
        agents_at(tmp_path, server, is_streamed=True) as agents,
    ):
        server.reply(
            calling("keep", '{"value": 12345678901234567890123}', is_streamed=True), "Done."
        )
        messages = await say(agents, "go", THREAD)
    (call,) = (call for one in messages if isinstance(one, AIMessage) for call in one.tool_calls)
    assert call["args"] == {"value": "12345678901234567890123"}


JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(st.characters(codec=None), max_size=9),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3)
    ),
    max_leaves=9,
)


@given(JSON)
def test_clean_values_can_be_stored_and_stay_as_they_are(value: object) -> None:
    cleaned = clean_json(value)
    assert json.loads(json.dumps(cleaned, allow_nan=False).encode()) == cleaned
    assert clean_json(cleaned) is cleaned


@given(JSON)
def test_messages_with_any_value_become_clean(value: object) -> None:
    message = clean_message(
        ToolMessage("x", tool_call_id="c", artifact=value, additional_kwargs={"a": value})
    )
    json.dumps(message.model_dump(), allow_nan=False).encode()
    assert clean_message(message) is message
