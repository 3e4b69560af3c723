"""Long conversations of the whole agent with a model server that measures them, for tests and benchmarks.

The server refuses prompts beyond the window, and caches prefixes. A separate server writes the summaries.
"""

import time
from collections import deque
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from langchain_core.messages import HumanMessage
from langchain_core.runnables import RunnableConfig

from agent.config import AgentConfig
from agent.factory import AgentFactory, open_agent_factory
from agent.middleware.chain import Middleware
from agent.middleware.visible_history import INTRODUCTION
from agent.paths import WORKSPACE
from agent.services import AgentSetup
from store.checkpoints import open_checkpointer
from tests.fakes.model import FakeModelServer, ModelReply, ModelRequest, ToolCall
from tests.fakes.model_switches import ModelSwitches

THREAD = "11111111-2222-4333-8444-555555555555"
CONFIG: RunnableConfig = {"configurable": {"thread_id": THREAD}, "recursion_limit": 400}

WINDOW = 128_000
READ_CHARS = 50_000
"""Characters that `read_file` returns at a time."""

FACT = "Important: the vault opens with amber-42."
"""The fact that the person marks as important in turn 3."""


@dataclass(kw_only=True)
class Measured:
    """What the servers saw of one conversation.

    Attributes:
        requests: Accepted requests for an answer.
        refused: Requests that were too long for the window.
        prompt_tokens: Total tokens of the accepted prompts.
        cached_tokens: How many of these were in a prefix shared with an earlier prompt.
        compactions: Requests that do not continue the one before: old messages were changed or left out.
        unsummarized: Requests without the beginning of the conversation, and without a summary of it.
        summaries: Calls of the summary model.
        summary_tokens: Total tokens of their prompts.
        longest_stall_s: Longest time between a person's message or a response and the next request, seconds.
        turn_tokens: Prompt tokens of each turn, summaries included.
        turn_cpu_s: CPU seconds of each turn.
        last_prompt: The messages of the last request.
    """

    requests: int = 0
    refused: int = 0
    prompt_tokens: int = 0
    cached_tokens: int = 0
    compactions: int = 0
    unsummarized: int = 0
    summaries: int = 0
    summary_tokens: int = 0
    longest_stall_s: float = 0.0
    turn_tokens: list[int] = field(default_factory=list)
    turn_cpu_s: list[float] = field(default_factory=list)
    last_prompt: list[dict[str, Any]] = field(default_factory=list)

    @property
    def prefix_hits(self) -> float:
        """Fraction of the prompt tokens that were cached."""
        return self.cached_tokens / self.prompt_tokens

    @property
    def last_text(self) -> str:
        """The last request's conversation as text."""
        return "\n".join(str(message.get("content")) for message in self.last_prompt[1:])


class LongConversation:
    """One thread of the whole agent. `steps` holds the model's next replies. If it is empty, the model answers "Noted."

    Args:
        home: The data folder.
        agents: The agent.
        model: The conversation's server.
        writer: The server that writes summaries.
        pause_s: How long the model takes for a step, seconds.
    """

    def __init__(
        self,
        home: Path,
        agents: AgentFactory,
        model: FakeModelServer,
        writer: FakeModelServer,
        pause_s: float,
    ) -> None:
        self.home = home
        self.agents = agents
        self.model = model
        self.writer = writer
        self.measured = Measured()
        self.steps: deque[ModelReply | ToolCall] = deque()
        self.prompt_of_summary = ""
        self._first = ""
        self._pause_s = pause_s
        self._answered_at = 0.0
        model.answer = self._answer

    def write_file(self, name: str, content: str) -> str:
        """Write a file to the workspace and return its path."""
        folder = self.agents.services.folders.folders(THREAD).workspace
        folder.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(content)
        return f"{WORKSPACE}/{name}"

    async def say(self, text: str) -> str:
        """Run a turn, and return the answer."""
        self._first = self._first or text
        self._answered_at = time.monotonic() - self._pause_s
        measured, cpu = self.measured, time.process_time()
        tokens = measured.prompt_tokens + measured.summary_tokens
        graph = await self.agents.graph_for(CONFIG)
        context = {"thread_id": THREAD}
        state = await graph.ainvoke(
            {"messages": [HumanMessage(text)]}, CONFIG, context=context, durability="sync"
        )
        self._count_other_requests()
        measured.turn_tokens.append(measured.prompt_tokens + measured.summary_tokens - tokens)
        measured.turn_cpu_s.append(time.process_time() - cpu)
        return str(state["messages"][-1].text)

    def _count_other_requests(self) -> None:
        """Count summaries and refusals, then drop all requests, which take much memory together."""
        measured = self.measured
        measured.refused += len(self.model.refusals)
        self.model.requests.clear()
        measured.summaries += len(self.writer.requests)
        for request in self.writer.requests:
            self.prompt_of_summary = request.last_user_text
        measured.summary_tokens += sum(request.tokens for request in self.writer.requests)
        self.writer.requests.clear()

    def _answer(self, request: ModelRequest) -> ModelReply:
        measured, now = self.measured, time.monotonic()
        stall_s = now - self._answered_at - self._pause_s
        measured.longest_stall_s = max(measured.longest_stall_s, stall_s)
        self._answered_at = now
        measured.requests += 1
        measured.prompt_tokens += request.tokens
        measured.cached_tokens += request.cached_tokens
        messages, before = request.messages, measured.last_prompt
        measured.compactions += messages[: len(before)] != before
        begin = str(messages[1].get("content"))
        measured.unsummarized += not begin.startswith((self._first, INTRODUCTION))
        measured.last_prompt = messages
        step = self.steps.popleft() if self.steps else ModelReply(text="Noted.")
        return ModelReply(calls=(step,)) if isinstance(step, ToolCall) else step


def short_summary(request: ModelRequest) -> ModelReply:
    """Return a summary like that of a weak model, which keeps nothing from the messages."""
    return ModelReply(text=f"They went on talking ({len(request.last_user_text)} characters).")


@asynccontextmanager
async def long_conversation(
    home: Path,
    *,
    window: int = WINDOW,
    window_is_known: bool = True,
    step_s: float = 0.0,
    piece_s: float = 0.0,
    sections: dict[str, Any] | None = None,
    middleware: Sequence[Middleware] = (),
) -> AsyncIterator[LongConversation]:
    """Open the whole agent with a thread.

    Args:
        home: The data folder.
        window: Longest prompt that the server accepts, tokens.
        window_is_known: Whether the agent knows the window.
        step_s: How long the model takes for a step, seconds.
        piece_s: How long the model takes for a piece of a summary, seconds.
        sections: Further sections of the configuration.
        middleware: Further middleware, for comparisons.
    """
    switches = ModelSwitches(
        strict=True, max_tokens=window, caches_prefixes=True, first_token_delay_s=step_s
    )
    async with AsyncExitStack() as stack:
        model = await stack.enter_async_context(FakeModelServer(switches))
        pauses = ModelSwitches(first_token_delay_s=piece_s, max_tokens=window)
        writer = await stack.enter_async_context(FakeModelServer(pauses, answer=short_summary))
        entry = {"use": "langchain_openai:ChatOpenAI", "model": "fake", "api_key": "k"}
        known = {"max_input_tokens": window} if window_is_known else {}
        given = {
            "models": [
                {**entry, "name": "model", "base_url": model.base_url},
                {**entry, "name": "writer", "base_url": writer.base_url},
            ],
            "summarization": {"model_name": "writer", **known},
            "memory": {"enabled": False},
            "title": {"enabled": False},
            **(sections or {}),
        }
        setup = AgentSetup(config=AgentConfig.model_validate(given), home=home)
        saver = await stack.enter_async_context(open_checkpointer(home))
        agents = await stack.enter_async_context(
            open_agent_factory(setup, saver, middleware=middleware)
        )
        await agents.warm_up()  # imports the provider's package, which must not count as a stall
        yield LongConversation(home, agents, model, writer, step_s)


def file_of(number: int, chars: int = READ_CHARS) -> str:
    """Return a text of `chars` characters that is unique to this number."""
    line = f"Line of report {number:04}: nothing that anybody needs to know by heart.\n"
    return (line * (chars // len(line) + 1))[:chars]


async def turns_with_reads(
    conversation: LongConversation, turns: int, chars: int = READ_CHARS, first: int = 0
) -> None:
    """Let the model read one file in each turn, numbered from `first` on."""
    for number in range(first, first + turns):
        path = conversation.write_file(f"report-{number}.txt", file_of(number, chars))
        conversation.steps += [ToolCall("read_file", {"path": path}, id=f"call_{number}")]
        await conversation.say(f"Please read report {number}.")


async def long_turn(conversation: LongConversation, reads: int, chars: int = READ_CHARS) -> None:
    """Let the model read many files in one turn."""
    for number in range(reads):
        path = conversation.write_file(f"report-{number}.txt", file_of(number, chars))
        conversation.steps += [ToolCall("read_file", {"path": path}, id=f"call_{number}")]
    await conversation.say("Please read all reports.")


async def many_turns(conversation: LongConversation, turns: int, chars: int = 1_000) -> None:
    """Let a person and the model talk. In turn 3, the person marks a fact as important."""
    for number in range(1, turns + 1):
        said = f"Message {number}. " + f"Talk of item {number:05}. " * (chars // 20)
        conversation.steps += [ModelReply(text=f"Answer {number}. " + "So it is. " * (chars // 10))]
        await conversation.say(f"{said}\n{FACT}" if number == 3 else said)
