"""Usage of model calls: the rows match the model server's count, and no call is sent beyond a limit."""

import json
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import pytest
from langchain_core.messages import HumanMessage
from langgraph.checkpoint.memory import InMemorySaver

from agent.config import AgentConfig, ModelConfig
from agent.factory import AgentFactory, open_agent_factory
from agent.services import AgentSetup
from agent.usage.prices import cost_nano_usd
from store.config import StoreConfig
from store.database import Database
from store.usage import UsageRow, UsageStore
from tests.eventually import eventually
from tests.fakes.model import FakeModelServer, ModelReply, ModelRequest, ToolCall, tool_plan
from tests.fakes.model_switches import ModelSwitches


@asynccontextmanager
async def _agent(
    home: Path, server: FakeModelServer, sections: Mapping[str, Any] | None = None
) -> AsyncIterator[tuple[AgentFactory, UsageStore]]:
    entry = {
        "name": "gpt",
        "use": "langchain_openai:ChatOpenAI",
        "model": "fake",
        "base_url": server.base_url,
        "api_key": "test",
        "max_tokens": 100,
        "price": {"input": 2, "cached_input": 0.5, "output": 10},
    }
    config = AgentConfig.model_validate(
        {"models": [entry], "memory": {"enabled": False}, **(sections or {})}
    )
    async with Database.open(StoreConfig(), home) as database:
        store = UsageStore(database)
        setup = AgentSetup(config=config, home=home, usage=store)
        async with open_agent_factory(setup, InMemorySaver()) as agents:
            yield agents, store


async def _say(agents: AgentFactory, thread: str, text: str = "Hi", **context: object) -> str:
    given = {"thread_id": thread, "run_id": f"run-{thread}", "user_id": "slack:T:ann", **context}
    config: Any = {"configurable": given, "recursion_limit": 100}
    graph = await agents.graph_for(config)
    state = await graph.ainvoke({"messages": [HumanMessage(text)]}, config, context=given)
    return str(state["messages"][-1].text)


def _counted(server: FakeModelServer) -> tuple[int, int]:
    """Return the input tokens that the server counted, and the number of its answers."""
    answered = [request for request in server.requests if request.finished]
    return sum(request.tokens for request in answered), len(answered)


async def test_rows_equal_what_the_server_counted(tmp_path: Path) -> None:
    plan = tool_plan(ToolCall("ls", {"path": "/mnt/user-data/workspace"}), "Nothing there.")
    switches = ModelSwitches(caches_prefixes=True)
    sections = {"title": {"model_name": "gpt"}}
    async with (
        FakeModelServer(switches, answer=plan) as server,
        _agent(tmp_path, server, sections) as (agents, store),
    ):
        async with anyio.create_task_group() as tasks:
            for number in range(20):
                tasks.start_soon(_say, agents, f"t{number}", f"Question {number}")
        await agents.services.usage.flush()
        tokens, calls = _counted(server)
        cached = sum(request.cached_tokens for request in server.requests)
        (total,) = await store.totals()
        assert (total["input_tokens"], total["calls"]) == (tokens, calls)
        assert total["cached_tokens"] == cached > 0
        assert total["estimated_calls"] == total["unpriced_calls"] == 0
        cost = (tokens - cached) * 2_000 + cached * 500 + total["output_tokens"] * 10_000
        assert total["cost_nano_usd"] == cost
        kinds = {row["kind"]: row["calls"] for row in await store.totals(by=["kind"])}
        assert kinds == {"run": 40, "title": 20}
        assert (await store.totals(filters={"person": "slack:T:ann"}))[0]["calls"] == calls
        assert agents.services.usage.tokens[("gpt", "title", "input")] > 0


async def test_no_call_leaves_beyond_a_limit_of_100_parallel_turns(tmp_path: Path) -> None:
    limit = 60_000
    sections = {"usage": {"limits": {"person": {"tokens_per_day": limit}}}}
    async with (
        FakeModelServer() as server,
        _agent(tmp_path, server, sections) as (agents, store),
    ):
        answers: list[str] = []

        async def say(number: int) -> None:
            answers.append(await _say(agents, f"t{number}"))

        async with anyio.create_task_group() as tasks:
            for number in range(100):
                tasks.start_soon(say, number)
        await agents.services.usage.flush()
        refused = [text for text in answers if text.startswith("You have used your")]
        assert 0 < len(refused) < 100
        assert len(server.requests) == 100 - len(refused)
        (total,) = await store.totals()
        assert total["calls"] == len(server.requests)
        assert total["input_tokens"] + total["output_tokens"] <= limit
        assert total["input_tokens"] == _counted(server)[0]
        assert "resets on" in refused[0]
        assert "allowance" not in await _say(agents, "other", user_id="slack:T:bob")


async def test_a_refusal_speaks_the_language_of_the_person(tmp_path: Path) -> None:
    sections = {"usage": {"limits": {"service": {"cost_per_month": 0.0001}}}}
    async with FakeModelServer() as server, _agent(tmp_path, server, sections) as (agents, _):
        assert "总额度（$0.00）已用完" in await _say(agents, "t1", language="zh")
        assert server.requests == []


async def test_a_stopped_answer_and_a_server_without_usage_are_estimated(tmp_path: Path) -> None:
    async with FakeModelServer() as server, _agent(tmp_path, server) as (agents, store):
        server.reply(ModelReply(text="one two three", hang_after=2))
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(_say, agents, "t1")
            await server.until(lambda server: len(server.requests) == 1)
            tasks.cancel_scope.cancel()

        async def estimated() -> bool:
            (total,) = await store.totals()
            return bool(total["estimated_calls"] == 1 and total["input_tokens"] > 100)

        await eventually(estimated)


async def test_a_turn_answers_within_its_tokens(tmp_path: Path) -> None:
    def endless(request: ModelRequest) -> ModelReply:
        if "last message in this turn" in json.dumps(request.messages):
            return ModelReply(text="So far: nothing.")
        number = len(request.messages)
        return ModelReply(
            calls=(ToolCall("ls", {"path": f"/mnt/user-data/workspace/{number}"}, f"c{number}"),)
        )

    budget = 40_000
    sections = {"usage": {"tokens_per_turn": budget}, "loop_detection": {"enabled": False}}
    async with (
        FakeModelServer(answer=endless) as server,
        _agent(tmp_path, server, sections) as (agents, store),
    ):
        assert await _say(agents, "t1") == "So far: nothing."
        await agents.services.usage.flush()
        (total,) = await store.totals(filters={"kind": "run"})
        assert 2 < total["calls"] == len(server.requests)
        assert budget / 2 < total["input_tokens"] + total["output_tokens"] <= budget


async def test_a_person_is_warned_once_below_an_answer(tmp_path: Path) -> None:
    sections = {"usage": {"limits": {"person": {"tokens_per_month": 40_000}}}}
    async with FakeModelServer() as server, _agent(tmp_path, server, sections) as (agents, _):
        answers = [await _say(agents, f"t{number}") for number in range(30)]
        other = await _say(agents, "other", user_id="slack:T:bob")
    warned = [text for text in answers if "used 80% of your allowance of 40,000 tokens" in text]
    first_refusal = next(at for at, text in enumerate(answers) if text.startswith("You have used"))
    assert len(warned) == 1
    assert warned[0].startswith("You said: Hi\n\n(")
    assert 0 < answers.index(warned[0]) < first_refusal
    assert "allowance" not in other


async def test_silence_in_a_group_stays_silence_when_a_limit_is_nearly_used(tmp_path: Path) -> None:
    sections = {"usage": {"limits": {"person": {"tokens_per_month": 40_000}}}}
    reply = ModelReply(text="NO_REPLY")
    async with (
        FakeModelServer(answer=lambda _: reply) as server,
        _agent(tmp_path, server, sections) as (agents, _),
    ):
        answers = [await _say(agents, f"t{number}") for number in range(30)]
    refused = [text for text in answers if text.startswith("You have used")]
    assert refused
    assert {text for text in answers if text not in refused} == {"NO_REPLY"}


@pytest.mark.parametrize(
    ("entry", "cost"),
    [
        ({"use": "langchain_openai:ChatOpenAI", "model": "gpt-5"}, 1_800_000),
        (
            {"use": "langchain_openai:ChatOpenAI", "model": "gpt-5", "price": {"input": 1}},
            1_000_000,
        ),
        (
            {
                "use": "langchain_openai:ChatOpenAI",
                "model": "gpt-5",
                "base_url": "https://api.openai.com/v1",
            },
            1_800_000,
        ),
        (
            {
                "use": "langchain_openai:ChatOpenAI",
                "model": "gpt-5",
                "base_url": "http://127.0.0.1:8000/v1",
            },
            None,
        ),
        ({"use": "langchain_openai:ChatOpenAI", "model": "my-own"}, None),
        ({"use": "agent.models.demo:DemoChatModel", "model": "gpt-5"}, None),
    ],
)
def test_a_price_is_the_entry_s_or_the_provider_s(
    entry: dict[str, object], cost: int | None
) -> None:
    config = ModelConfig.model_validate({"name": "one", **entry})
    row = UsageRow(
        day="2026-11-28", run_id="r", kind="run", model="one", agent="lead_agent",
        input_tokens=1_000, cached_tokens=400, output_tokens=100,
    )  # fmt: skip
    assert cost_nano_usd(config, row) == cost


async def test_subagents_summaries_and_memory_are_counted_for_their_person(tmp_path: Path) -> None:
    def answer(request: ModelRequest) -> ModelReply:
        is_lead = "task" in request.tool_names
        if is_lead and request.last_user_text == "delegate":
            if request.messages[-1]["role"] == "tool":
                return ModelReply(text="Delegated.")
            args = {"description": "count", "prompt": "count", "subagent_type": "general-purpose"}
            return ModelReply(calls=(ToolCall("task", args, "c1"),))
        return ModelReply(text="Fine.")

    sections = {
        "memory": {"enabled": True, "debounce_seconds": 1},
        "summarization": {
            "trigger": [{"type": "messages", "value": 6}],
            "keep": {"type": "messages", "value": 2},
        },
        "title": {"enabled": False},
    }
    async with (
        FakeModelServer(answer=answer) as server,
        _agent(tmp_path, server, sections) as (agents, store),
    ):
        scope = {"memory_scope": "person:slack:T:ann", "subagent_enabled": True}
        for text in ("delegate", "I sail every summer", "and I like tea", "what else?", "and now?"):
            await _say(agents, "t1", text, run_id=text, **scope)

        async def kinds() -> set[str]:
            await agents.services.usage.flush()
            rows = await store.totals(filters={"person": "slack:T:ann"}, by=["kind"])
            return {str(row["kind"]) for row in rows}

        async def all_counted() -> bool:
            if not {"run", "subagent", "summarize", "memory"} <= await kinds():
                return False
            (total,) = await store.totals(filters={"person": "slack:T:ann"})
            return (total["input_tokens"], total["calls"]) == _counted(server)

        await eventually(all_counted)
        found = await store.totals(filters={"kind": "subagent"}, by=["kind", "person"])
        assert [row["calls"] for row in found] == [1]
