"""The whole agent around a scripted model, opened as the service opens it, with a checkpoint file."""

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, cast

from langchain_core.messages import AnyMessage, HumanMessage
from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.sqlite.aio import AsyncSqliteSaver
from langgraph.types import StreamMode

from agent.config import AgentConfig
from agent.factory import AgentFactory, open_agent_factory
from agent.services import AgentServices, AgentSetup
from agent.thread_storage import ThreadFolders
from agent.tools.schedule import ScheduleBackend
from store.files.mirror import FileMirror, SharedFolder
from tests.agent.plain_agent import THREAD
from tests.fakes.scripted import ScriptedChatModel, registered


class AgentHarness:
    """An open agent. Turns run in `THREAD` unless another thread is named."""

    def __init__(self, agents: AgentFactory) -> None:
        self.factory = agents

    @property
    def services(self) -> AgentServices:
        """The services that its runs share."""
        return self.factory.services

    def folders(self, thread: str = THREAD) -> ThreadFolders:
        """Return a thread's folders."""
        return self.services.folders.folders(thread)

    async def say(
        self, said: str | HumanMessage, *, thread: str = THREAD, **context: object
    ) -> list[AnyMessage]:
        """Run one turn, with each step on disk before the next, and return the thread's messages."""
        message = HumanMessage(said) if isinstance(said, str) else said
        config, given = _asked(thread, context)
        graph = await self.factory.graph_for(config)
        state = await graph.ainvoke(
            {"messages": [message]}, config, context=given, durability="sync"
        )
        messages: list[AnyMessage] = state["messages"]
        return messages

    async def stream(
        self, said: str, *modes: StreamMode, thread: str = THREAD, **context: object
    ) -> list[tuple[str, Any]]:
        """Run one turn; return what it streamed as (mode, chunk)."""
        config, given = _asked(thread, context)
        graph = await self.factory.graph_for(config)
        stream = graph.astream(
            {"messages": [HumanMessage(said)]}, config, context=given, stream_mode=list(modes)
        )
        return [cast("tuple[str, Any]", part) async for part in stream]

    async def state(self, thread: str = THREAD, **context: object) -> dict[str, Any]:
        """Return the thread's stored state."""
        config, _ = _asked(thread, context)
        graph = await self.factory.graph_for(config)
        return dict((await graph.aget_state(config)).values)


@asynccontextmanager
async def open_agent(
    home: Path,
    model: ScriptedChatModel,
    config: Mapping[str, Any] | None = None,
    *,
    entry: Mapping[str, Any] | None = None,
    extensions: Path | None = None,
    environment: Mapping[str, str] | None = None,
    mirror: FileMirror | None = None,
    schedules: ScheduleBackend | None = None,
) -> AsyncIterator[AgentHarness]:
    """Open the agent in a data folder.

    Args:
        home: The data folder.
        model: The lead agent's scripted model.
        config: Sections of the configuration. Further `models` follow the scripted one. Memory is off unless given.
        entry: Further keys of the model's entry, like `supports_vision`.
        extensions: The file with MCP servers and disabled skills.
        environment: The values of `$NAME` in that file.
        mirror: Copies files between nodes; None = there is one node.
        schedules: Carries out the tool `schedule`; None = there is no such tool.
    """
    # Memory extraction would consume replies of the model's script. The memory tests enable it.
    sections = {"memory": {"enabled": False}, **(config or {})}
    with registered(model) as keys:
        sections["models"] = [{**keys, **(entry or {})}, *sections.get("models", [])]
        site = AgentSetup(
            config=AgentConfig.model_validate(sections),
            home=home,
            extensions=() if extensions is None else (extensions,),
            environment=environment or {},
            mirror=mirror or SharedFolder(),
            schedules=schedules,
        )
        async with (
            AsyncSqliteSaver.from_conn_string(str(home / "checkpoints.db")) as checkpointer,
            open_agent_factory(site, checkpointer) as agents,
        ):
            yield AgentHarness(agents)


def _asked(thread: str, context: Mapping[str, object]) -> tuple[RunnableConfig, dict[str, Any]]:
    given = {"thread_id": thread, **context}
    config: RunnableConfig = {"configurable": given, "recursion_limit": 100}
    return config, given
