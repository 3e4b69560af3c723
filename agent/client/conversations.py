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
"""Bound of noting that a turn is over, seconds."""


class ConversationsApi(ClientApi):
    """Turns of the agent. Turns of one thread run one after the other, those of different threads side by side.

    Args:
        agents: The open agent.
        checkpointer: Keeps the threads' state; the same that the agent was opened with.
        book: Keeps account of the threads.
        settings: How turns run unless they say otherwise.
    """

    def __init__(
        self,
        agents: AgentFactory,
        checkpointer: BaseCheckpointSaver[Any],
        book: ThreadIndex,
        settings: TurnSettings,
    ) -> None:
        super().__init__(agents.services)
        self._factory = agents
        self._checkpointer = checkpointer
        self._threads = book
        self._settings = settings
        self._queue = ThreadQueue()

    async def chat(
        self, message: str, thread_id: str | None = None, **options: Unpack[TurnOptions]
    ) -> str:
        """Say something and return what the agent says in the end; "" when it says nothing.

        That is the text of its last message that has text, or the question that it needs an answer to. Arguments
        and errors are those of `stream`.
        """
        words = FinalText()
        async with aclosing(self.stream(message, thread_id, **options)) as events:
            async for event in events:
                words.add(event)
        return words.text

    async def stream(
        self, message: str, thread_id: str | None = None, **options: Unpack[TurnOptions]
    ) -> AsyncGenerator[StreamEvent]:
        """Say something and yield what happens, see `StreamEvent`; the last event is `end`.

        Leaving early stops the turn at its last finished step; close the generator then (`contextlib.aclosing`).

        Args:
            message: What is said.
            thread_id: The conversation: letters, digits, `_` and `-`, at most 64; None = a new one, with a random
                UUID. The service's HTTP API opens threads whose ids are UUIDs only.
            options: For this turn.

        Raises:
            ThreadIdInvalid: The id cannot be one.
            ModelNotFound, ModelUnusable: There is no such model, or its entry cannot be used.
            AgentNotFound, AgentInvalid: The custom agent cannot be used.
            GraphRecursionError: The turn took more than `recursion_limit` steps.
        """
        settings = replace(self._settings, **options)
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
        """Return the threads that were used last: `{thread_list: [{thread_id, created_at, updated_at, ...}]}`."""
        return {"thread_list": await self._threads.list_recent(max(limit, 0))}

    async def get_thread(self, thread_id: str) -> JsonObject:
        """Return what is kept of a thread: `{thread_id, checkpoints}`, the oldest first; none for an unknown one."""
        found = await list_checkpoints(self._checkpointer, thread_id)
        return {"thread_id": thread_id, "checkpoints": found}

    async def delete_thread(self, thread_id: str) -> JsonObject:
        """Delete a thread with its state and files, after its turns that run or wait. Deleting none is no error.

        Raises:
            ThreadIdInvalid: The id cannot be one.
            OSError: Its files could not be removed.
        """
        folders = self._systems.folders
        folders.folders(thread_id)
        ticket = self._queue.join(thread_id)
        try:
            await ticket.ready.wait()
            await self._threads.delete(thread_id)
            await anyio.to_thread.run_sync(folders.delete, thread_id)
        finally:
            self._queue.leave(ticket)
        return {"success": True, "message": f"Deleted thread {thread_id}"}

    async def reset_agent(self) -> None:
        """Build the agent anew with the next turn.

        It follows changes of skills, MCP servers, memory and custom agents by itself; this is for what it cannot
        see, like another version of a module that the configuration names.
        """
        await self._factory.replace_config(self._systems.config.get())

    def _require_usable(self, thread_id: str, settings: TurnSettings) -> None:
        systems = self._systems
        systems.folders.folders(thread_id)
        name = settings.model_name
        if name is not None and systems.config.get().model_named(name) is None:
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
