"""Client methods for turns (`chat`, `stream`) and threads."""

from collections.abc import AsyncGenerator
from contextlib import aclosing
from dataclasses import replace
from typing import Any
from uuid import uuid4

import anyio
import anyio.to_thread
from langchain_core.messages import HumanMessage
from langgraph.checkpoint.base import BaseCheckpointSaver
from typing_extensions import Unpack

from agent.client.api import ClientApi, JsonObject
from agent.client.events import MODES, FinalText, StreamEvent, TurnEvents
from agent.client.options import TurnOptions, TurnSettings
from agent.client.threads import ThreadIndex, list_checkpoints
from agent.errors import ModelNotFound
from agent.factory import AgentFactory
from agent.streaming import stream_graph
from agent.thread_queue import ThreadQueue

MARK_FINISHED_S = 10.0
"""Time limit for recording the end of a turn, seconds."""


class ConversationsApi(ClientApi):
    """Turns and threads. Turns of one thread run one after another; turns of different threads run concurrently.

    Args:
        factory: Builds the agent's graphs.
        checkpointer: Stores the threads' state. Must be the factory's checkpointer.
        threads: Lists the threads.
        defaults: Defaults for turns.
    """

    def __init__(
        self,
        factory: AgentFactory,
        checkpointer: BaseCheckpointSaver[Any],
        threads: ThreadIndex,
        defaults: TurnSettings,
    ) -> None:
        super().__init__(factory.services)
        self._factory = factory
        self._checkpointer = checkpointer
        self._threads = threads
        self._defaults = defaults
        self._queue = ThreadQueue()

    async def chat(
        self, message: str, thread_id: str | None = None, **options: Unpack[TurnOptions]
    ) -> str:
        """Send a message and return the agent's answer; "" if there is no answer.

        The answer is the agent's last message with text, or the question it asks. Arguments and errors are those of
        `stream`.
        """
        answer = FinalText()
        async with aclosing(self.stream(message, thread_id, **options)) as events:
            async for event in events:
                answer.add(event)
        return answer.text

    async def stream(
        self, message: str, thread_id: str | None = None, **options: Unpack[TurnOptions]
    ) -> AsyncGenerator[StreamEvent]:
        """Send a message and yield the turn's events (see `StreamEvent`); the last one is `end`.

        To stop the turn early, close the generator (`contextlib.aclosing`). Finished steps are kept.

        Args:
            message: The user's message.
            thread_id: The thread: 1 to 64 letters, digits, `_` or `-`; None = a new one with a random UUID. The
                service's HTTP API only opens threads whose ids are UUIDs.
            options: Options of this turn.

        Raises:
            ThreadIdInvalid: The thread id is invalid.
            ModelNotFound, ModelUnusable: The model does not exist, or its entry cannot be used.
            AgentNotFound, AgentInvalid: The custom agent cannot be used.
            GraphRecursionError: The turn took more than `recursion_limit` steps.
        """
        settings = replace(self._defaults, **options)
        thread_id = thread_id or str(uuid4())
        self._require_usable(thread_id, settings)
        ticket = self._queue.join(thread_id)
        try:
            await ticket.ready.wait()
            async with aclosing(self._turn(message, thread_id, settings)) as events:
                async for event in events:
                    yield event
        finally:
            self._queue.leave(ticket)

    async def list_threads(self, limit: int = 10) -> JsonObject:
        """Return the most recently used threads: `{thread_list: [{thread_id, created_at, updated_at, ...}]}`."""
        return {"thread_list": await self._threads.list_recent(max(limit, 0))}

    async def get_thread(self, thread_id: str) -> JsonObject:
        """Return a thread's checkpoints, oldest first: `{thread_id, checkpoints}`. Empty for an unknown thread."""
        found = await list_checkpoints(self._checkpointer, thread_id)
        return {"thread_id": thread_id, "checkpoints": found}

    async def delete_thread(self, thread_id: str) -> JsonObject:
        """Delete a thread with its state and files, after its pending turns. Does nothing for an unknown thread.

        Raises:
            ThreadIdInvalid: The thread id is invalid.
            OSError: Its files could not be removed.
        """
        folders = self._services.folders
        folders.folders(thread_id)
        ticket = self._queue.join(thread_id)
        try:
            await ticket.ready.wait()
            await self._threads.delete(thread_id)
            await self._services.delete_files(thread_id)
        finally:
            self._queue.leave(ticket)
        return {"success": True, "message": f"Deleted thread {thread_id}"}

    async def reset_agent(self) -> None:
        """Rebuild the agent for the next turn.

        Changes to skills, MCP servers, memory and custom agents apply automatically. Use this for changes that the
        agent cannot detect, such as a new version of a module that the configuration names.
        """
        await self._factory.replace_config(self._services.config.get())

    def _require_usable(self, thread_id: str, settings: TurnSettings) -> None:
        services = self._services
        services.folders.folders(thread_id)
        name = settings.model_name
        if name is not None and services.config.get().model_named(name) is None:
            raise ModelNotFound(f"There is no model named {name[:80]!r}.")

    async def _turn(
        self, text: str, thread_id: str, settings: TurnSettings
    ) -> AsyncGenerator[StreamEvent]:
        config = settings.config(thread_id)
        message = HumanMessage(text, id=str(uuid4()))
        graph = await self._factory.graph_for(config)
        stream = stream_graph(
            graph,
            {"messages": [message]},
            config,
            context=config["configurable"],
            modes=MODES,
            durability="sync",
        )
        turn = TurnEvents(str(message.id))
        title: str | None = None
        await self._threads.mark_started(thread_id)
        try:
            async with aclosing(stream) as parts:
                async for _namespace, mode, data in parts:
                    if mode == "values":
                        title = data.get("title")
                    for event in turn.read(mode, data):
                        yield event
        finally:
            with anyio.move_on_after(MARK_FINISHED_S, shield=True):
                await self._threads.mark_finished(thread_id, title)
        yield turn.end()
