"""Runs turns of the real lead agent for tests, with a data folder, a checkpoint file and the test's model."""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from langchain.agents import create_agent
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AnyMessage, HumanMessage
from langchain_core.runnables import RunnableConfig
from langchain_core.tools import BaseTool
from langgraph.checkpoint.sqlite.aio import AsyncSqliteSaver

from agent.config import AgentConfig, TitleConfig
from agent.factory import AgentGraph
from agent.memory.service import MemoryService
from agent.middleware.chain import Middleware, join_middleware
from agent.middleware.clarification import ClarificationMiddleware
from agent.middleware.dangling_tool_calls import DanglingToolCallMiddleware
from agent.middleware.final_answer import FinalAnswerMiddleware
from agent.middleware.thread_data import ThreadDataMiddleware
from agent.middleware.tool_errors import ToolErrorMiddleware
from agent.sandbox.local import LocalSandboxProvider
from agent.state import ThreadState
from agent.thread_storage import ThreadFolders, ThreadStorage
from agent.titles import TitleWriter
from agent.tools.registry import built_in_tools
from agent.tools.results import ToolLimits
from tests.agent.memory_model import MemoryModel

THREAD = "11111111-2222-4333-8444-555555555555"
CONFIG: RunnableConfig = {"configurable": {"thread_id": THREAD}, "recursion_limit": 100}


class PlainAgent:
    """One thread of an agent around a scripted model."""

    def __init__(self, graph: AgentGraph, folders: ThreadFolders) -> None:
        self.graph = graph
        self.folders = folders

    async def say(self, text: str) -> list[AnyMessage]:
        """Run one turn, with each step on disk before the next, and return the thread's messages."""
        state = await self.graph.ainvoke(
            {"messages": [HumanMessage(text)]}, CONFIG, durability="sync"
        )
        messages: list[AnyMessage] = state["messages"]
        return messages

    async def state(self) -> dict[str, Any]:
        """Return the thread's stored state."""
        return dict((await self.graph.aget_state(CONFIG)).values)


def memory_not_open(home: Path) -> MemoryService:
    """Return a memory service that is not open, so it accepts no turns."""
    return MemoryService(home, AgentConfig, MemoryModel().given)


def plain_middleware(
    folders: ThreadStorage,
    home: Path,
    title: TitleConfig | None = None,
    title_model: BaseChatModel | None = None,
) -> list[Middleware | None]:
    """Return the middleware that every agent has."""
    title = title or TitleConfig()
    titles = TitleWriter(title, model=title_model) if title.enabled else None
    return [
        ThreadDataMiddleware(folders),
        FinalAnswerMiddleware(memory_not_open(home), LocalSandboxProvider(folders), titles),
        DanglingToolCallMiddleware(),
        ToolErrorMiddleware(),
        ClarificationMiddleware(),
    ]


@asynccontextmanager
async def open_plain_agent(
    home: Path,
    model: BaseChatModel,
    *,
    tools: Sequence[BaseTool] = (),
    title: TitleConfig | None = None,
    title_model: BaseChatModel | None = None,
    limits: ToolLimits | None = None,
) -> AsyncIterator[PlainAgent]:
    """Open a thread whose agent has the plain middleware, the built-in tools and the given tools."""
    folders = ThreadStorage(home)
    built_in = built_in_tools(LocalSandboxProvider(folders), limits or ToolLimits())
    async with AsyncSqliteSaver.from_conn_string(str(home / "checkpoints.db")) as checkpointer:
        graph = create_agent(
            model,
            [*built_in, *tools],
            middleware=join_middleware(plain_middleware(folders, home, title, title_model)),
            state_schema=ThreadState,
            checkpointer=checkpointer,
        )
        yield PlainAgent(graph, folders.folders(THREAD))
