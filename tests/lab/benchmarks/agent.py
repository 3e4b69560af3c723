"""The cost of our middleware and tools, the length of requests, and the share that providers have cached.

For the costs, the lead agent and a bare `create_agent` with the same model and tools run in this process, in
alternating rounds, without a checkpointer. The model answers at once, so nearly all of the CPU time goes to LangGraph,
LangChain and our code; the difference is our code's. Requests go to a model server that counts and caches.

A model server measures the long conversations (tests/agent/long_conversations.py). Except for the stalls, their figures
do not depend on the speed of the machine.
"""

import statistics
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated, Any

import anyio
from langchain.agents import create_agent
from langchain_core.callbacks import AsyncCallbackManagerForLLMRun, CallbackManagerForLLMRun
from langchain_core.language_models import BaseChatModel, LanguageModelInput
from langchain_core.messages import AIMessage, AnyMessage, BaseMessage, HumanMessage
from langchain_core.messages.ai import UsageMetadata
from langchain_core.outputs import ChatGeneration, ChatResult
from langchain_core.runnables import Runnable, RunnableConfig
from langchain_core.tools import BaseTool, StructuredTool, tool
from langchain_core.utils.function_calling import convert_to_openai_tool
from pydantic import Field
from typing_extensions import override

from agent.config import AgentConfig
from agent.factory import AgentFactory, AgentGraph, open_agent_factory
from agent.locales import PROMPTS
from agent.memory.schema import MemoryFact
from agent.memory.scope import MemoryScope
from agent.memory.store import MemoryStore
from agent.services import AgentSetup
from agent.thread_storage import ThreadStorage
from agent.tools.registry import built_in_tools, deduplicate_tools
from agent.tools.results import ToolLimits
from tests.agent.cached_conversation import (
    anthropic_entry,
    converse,
    openai_entry,
    say_first,
)
from tests.agent.long_conversations import (
    FACT,
    long_conversation,
    long_turn,
    many_turns,
    turns_with_reads,
)
from tests.fakes.model import FakeModelServer, ToolCall, tool_plan
from tests.lab.benchmarks.figures import Figure, rounds

ROUNDS = rounds(5)
RUNS = 6
"""Runs of each kind in a round."""

MESSAGES = 200
SKILLS = 50
FACTS = 100
UPLOADS = 20
HISTORY_TOKENS = 20_000
STEPS = 16
"""Tool calls of a run: one after another, or all at once."""

MANY_TOOLS = 500
TURNS = 50

LONG_TURNS = 100
LONG_TURN_READS = 32
MANY_TURNS = 300 if rounds(2) == 1 else 2_000
TIME_SCALE = 0.02
"""Factor for the long turn's model, which takes 4 s for a step and 8 s for a piece of a summary."""

EDITED = "ContextEditingMiddleware 73 %"
"""Figures of LangChain's middleware in this conversation, which acts from 80% of the window on: docs/decisions/0040."""

SMALL_WINDOW = 32_000
"""The window of the conversation with many short turns, tokens. Its history is shortened about 80 times."""

THREAD = "benchmark"
CONFIG: RunnableConfig = {"configurable": {"thread_id": THREAD}, "recursion_limit": 100}
PARAGRAPH = (
    "What people write in a chat is rarely longer than these two lines, and models write more. " * 3
)


@tool
async def note(text: str) -> str:
    """Take a note."""
    return f"Noted: {text}"


def office_note(number: int) -> BaseTool:
    """Return one of many tools, with a schema as long as that of a typical MCP tool."""

    async def note_of_kind(
        customer: Annotated[
            str, Field(description="The customer's number, or its name if unique.")
        ],
        text: Annotated[str, Field(description="The note, as the customer will read it.")],
        amount: Annotated[
            int, Field(description="The amount in cents; negative for a credit.")
        ] = 0,
    ) -> str:
        return f"Noted: {text}"

    return StructuredTool.from_function(
        coroutine=note_of_kind,
        name=f"office_note_of_kind_{number}",
        description=f"Write a note of kind {number} about a customer. {PARAGRAPH}",
    )


class InstantModel(BaseChatModel):
    """Calls `note` as the last human message, "STEPS CALLS", requests: CALLS calls at once, STEPS times."""

    model_name: str = "instant"

    @property
    @override
    def _llm_type(self) -> str:
        return "instant"

    @override
    def bind_tools(
        self, tools: Sequence[dict[str, Any] | type | Callable[..., Any] | BaseTool], **kwargs: Any
    ) -> Runnable[LanguageModelInput, AIMessage]:
        kwargs.pop("tool_choice", None)
        return self.bind(tools=[convert_to_openai_tool(one) for one in tools], **kwargs)

    @override
    def _generate(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: CallbackManagerForLLMRun | None = None,
        **kwargs: Any,
    ) -> ChatResult:
        return ChatResult(generations=[ChatGeneration(message=_answer(messages))])

    @override
    async def _agenerate(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: AsyncCallbackManagerForLLMRun | None = None,
        **kwargs: Any,
    ) -> ChatResult:
        return self._generate(messages)


def _answer(messages: Sequence[BaseMessage]) -> AIMessage:
    done = 0
    for message in reversed(messages):
        if isinstance(message, HumanMessage):
            break
        done += isinstance(message, AIMessage)
    try:
        steps, calls = map(int, message.text.split()[-2:])
    except ValueError:  # not a message of a run, but memory extraction
        steps, calls = 0, 0
    # Reported, as providers do. Without usage, each call would estimate the whole history.
    usage = UsageMetadata(
        input_tokens=HISTORY_TOKENS, output_tokens=20, total_tokens=HISTORY_TOKENS + 20
    )
    if done >= steps:
        return AIMessage("Done.", usage_metadata=usage)
    return AIMessage(
        "",
        usage_metadata=usage,
        tool_calls=[
            {"name": "note", "args": {"text": f"{done} {at}"}, "id": f"{done}-{at}"}
            for at in range(calls)
        ],
    )


def run() -> list[Figure]:
    """Measure and return the figures."""
    measured = (_measure, _measure_requests, _long_conversations)
    return [figure for one in measured for figure in anyio.run(one)]


async def _long_conversations() -> list[Figure]:
    with TemporaryDirectory() as folder:
        async with long_conversation(Path(folder)) as talk:
            await turns_with_reads(talk, LONG_TURNS)
            reads = talk.measured
    with TemporaryDirectory() as folder:
        step_s, piece_s = 4 * TIME_SCALE, 8 * TIME_SCALE
        async with long_conversation(Path(folder), step_s=step_s, piece_s=piece_s) as talk:
            await long_turn(talk, LONG_TURN_READS)
            turn = talk.measured
    with TemporaryDirectory() as folder:
        async with long_conversation(Path(folder), window=SMALL_WINDOW) as talk:
            await many_turns(talk, MANY_TURNS)
            many = talk.measured
    quarter = MANY_TURNS // 4
    tokens, cpu = (
        sum(values[-quarter:]) / sum(values[quarter : 2 * quarter])
        for values in (many.turn_tokens, many.turn_cpu_s)
    )
    seen = sum(f"report-{number}.txt" in str(turn.last_prompt) for number in range(LONG_TURN_READS))
    fact = int(FACT in many.last_text)
    stall_s = max(one.longest_stall_s for one in (reads, turn, many))
    name, long = f"agent: {LONG_TURNS} turns of large reads", "agent: turn of 32 large reads"
    talk_name = f"agent: {MANY_TURNS:,} turns"
    return [
        Figure(f"{name}, compactions", reads.compactions, "", "<= 20"),
        Figure(f"{name}, calls of the summary model", reads.summaries, ""),
        Figure(f"{name}, prefix hits", 100 * reads.prefix_hits, "%", ">= 88", EDITED),
        Figure(f"{long}, refused", turn.refused, "", "= 0"),
        Figure(f"{long}, calls without a summary", turn.unsummarized, "", "= 0"),
        Figure(f"{long}, own steps known at its end", seen, "", f"= {LONG_TURN_READS}"),
        Figure(f"{talk_name}, refused", many.refused, "", "= 0"),
        Figure(f"{talk_name}, compactions", many.compactions, ""),
        Figure(f"{talk_name}, tokens of the last quarter / second", tokens, "x", "<= 1.1"),
        Figure(f"{talk_name}, CPU of the last quarter / second", cpu, "x"),
        Figure(f"{talk_name}, the fact of turn 3 is known", fact, "", "= 1"),
        Figure("agent: longest stall before a request", stall_s, "s", "<= 5"),
    ]


async def _measure() -> list[Figure]:
    return [*await _middleware_figures(), *await _request_figures()]


async def _request_figures() -> list[Figure]:
    """Return the length of the first request and the number of tools in requests, with hundreds of custom tools."""
    plan = tool_plan(ToolCall("tool_search", {"query": "kind"}))
    async with FakeModelServer(answer=plan) as server:
        config = {
            "models": [
                {
                    "name": "server",
                    "use": "langchain_openai:ChatOpenAI",
                    "model": "fake",
                    "api_key": "k",
                    "base_url": server.base_url,
                }
            ],
            "tools": [
                {
                    "name": f"office_note_of_kind_{number}",
                    "group": "notes",
                    "use": f"{__name__}:office_note",
                    "number": number,
                }
                for number in range(MANY_TOOLS)
            ],
            "memory": {"enabled": False},
        }
        with TemporaryDirectory() as folder:
            setup = AgentSetup(config=AgentConfig.model_validate(config), home=Path(folder))
            async with open_agent_factory(setup) as factory:
                graph = await factory.graph_for(CONFIG)
                await graph.ainvoke({"messages": [HumanMessage("Hello")]}, CONFIG)
        first = server.requests[0].tokens
        most = max(len(request.tool_names) for request in server.requests)
    name = f"agent: {MANY_TOOLS} custom tools"
    return [
        Figure(f"{name}, first request", first, "tokens", "<= 8,000"),
        Figure(f"{name}, tools in a request after a search", most, "tools", "<= 128"),
    ]


async def _middleware_figures() -> list[Figure]:
    bare: list[tuple[float, float]] = []
    ours: list[tuple[float, float]] = []
    with TemporaryDirectory() as folder:
        async with _agent(Path(folder)) as agent:
            graph = create_agent(InstantModel(), _tools(agent), system_prompt="You are helpful.")
            for _ in range(ROUNDS):
                bare.append(await _costs(graph))
                ours.append(await _costs(await agent.graph_for(CONFIG)))
    return [
        *_figures("model call", "<= 2.0", [cost[0] for cost in bare], [cost[0] for cost in ours]),
        *_figures("tool call", "<= 0.5", [cost[1] for cost in bare], [cost[1] for cost in ours]),
    ]


async def _measure_requests() -> list[Figure]:
    figures = []
    for provider, entry in (("OpenAI", openai_entry), ("Anthropic", anthropic_entry)):
        with TemporaryDirectory() as folder:
            server = await converse(Path(folder), entry, TURNS)
        what = f"agent: prefix hits of {TURNS} turns, {provider}"
        figures.append(Figure(what, server.prefix_hit_rate * 100, "%", ">= 97"))
    for language in PROMPTS:
        async with FakeModelServer() as server:
            with TemporaryDirectory() as folder:
                await say_first(Path(folder), server, language=language)
        what = f"agent: first request of a plain chat, {language}"
        figures.append(Figure(what, server.requests[0].tokens, "tokens", "<= 3,500"))
    return figures


def _figures(what: str, bar: str, bare: list[float], ours: list[float]) -> list[Figure]:
    over = [(b - a) * 1000 for a, b in zip(bare, ours, strict=True)]
    name = f"agent: CPU of a {what}"
    return [
        Figure(f"{name}, bare create_agent", statistics.median(bare) * 1000, "ms"),
        Figure(f"{name}, ours", statistics.median(ours) * 1000, "ms"),
        Figure(
            f"{name}, ours over bare ({min(over):.2f} to {max(over):.2f})",
            statistics.median(over),
            "ms",
            bar,
        ),
    ]


async def _costs(graph: Any) -> tuple[float, float]:  # noqa: ANN401 - either graph
    """Return the CPU seconds of one more model call, and of one more tool call."""
    await _cpu(graph, 1, 1)
    base = await _cpu(graph, 1, 1)
    tool_call = (await _cpu(graph, 1, STEPS) - base) / (STEPS - 1)
    step = (await _cpu(graph, STEPS, 1) - base) / (STEPS - 1)
    return step - tool_call, tool_call


async def _cpu(graph: AgentGraph, steps: int, calls: int) -> float:
    """Return the CPU seconds of the fastest of several equal runs."""
    times = []
    for _ in range(RUNS):
        messages = [*_history(), HumanMessage(f"{PARAGRAPH} {steps} {calls}")]
        began = time.process_time()
        await graph.ainvoke({"messages": messages}, CONFIG)
        times.append(time.process_time() - began)
    return min(times)


def _history() -> list[AnyMessage]:
    messages: list[AnyMessage] = []
    for number in range(MESSAGES // 2):
        files = [{"filename": f"file-{number}.txt", "size": 6}] if number < UPLOADS else []
        said = HumanMessage(PARAGRAPH, id=f"h{number}", additional_kwargs={"files": files})
        messages += [said, AIMessage(PARAGRAPH * 2, id=f"a{number}")]
    return messages


@asynccontextmanager
async def _agent(home: Path) -> AsyncIterator[AgentFactory]:
    _write_skills(home / "skills" / "custom")
    _write_memory(home / "memory")
    folders = ThreadStorage(home).folders(THREAD)
    folders.create()
    for number in range(UPLOADS):
        (folders.uploads / f"file-{number}.txt").write_text("a file")
    config = {
        "models": [{"name": "instant", "use": f"{__name__}:InstantModel", "model": "instant"}],
        "tools": [{"name": "note", "group": "notes", "use": f"{__name__}:note"}],
        "memory": {"debounce_seconds": 300},
    }
    setup = AgentSetup(config=AgentConfig.model_validate(config), home=home)
    async with open_agent_factory(setup) as factory:
        yield factory


def _tools(agent: AgentFactory) -> list[BaseTool]:
    return deduplicate_tools([note, *built_in_tools(agent.services.sandboxes, ToolLimits())])


def _write_skills(folder: Path) -> None:
    for number in range(SKILLS):
        skill = folder / f"skill-{number}"
        skill.mkdir(parents=True)
        head = (
            f"name: skill-{number}\ndescription: How to do task number {number} as we do it here."
        )
        (skill / "SKILL.md").write_text(f"---\n{head}\n---\n\nDo it well.\n")


def _write_memory(root: Path) -> None:
    facts = tuple(
        MemoryFact(
            id=f"fact_{number}",
            content=f"Ann likes dish number {number} better than all that came before.",
            category="preference",
            confidence=0.9,
            created_at="2026-01-01T00:00:00Z",
            source="manual",
        )
        for number in range(FACTS)
    )
    MemoryStore(root).update(MemoryScope(), lambda document: replace(document, facts=facts))
