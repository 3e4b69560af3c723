"""The parts that the LangGraph-compatible API works with, in one record on `app.state.langgraph`."""

import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field

from starlette.requests import Request

from agent.custom_agents import CustomAgentStore
from gateway.runtime.assistants import GraphSource
from gateway.runtime.protocol import ThreadEventLogs
from gateway.runtime.runs import RunManager
from gateway.runtime.thread_states import ThreadStates
from store.checkpoints import CheckpointSaver
from store.threads import ThreadStore


async def _delete_nothing(_thread_id: str) -> None:
    """Where threads have no files."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LangGraphServices:
    """What the handlers need.

    Attributes:
        delete_files: Deletes what belongs to a thread besides its runs and its state: its files.
        agents: The custom agents, which are assistants too; None = there are none.
        sequences: The events of threads in the form of the newer streaming protocol.
        max_searched_threads: Threads whose state is read for one search by values: it lies in the checkpoints, each
            costs about 0.3 ms.
        heartbeat_s: Silence on a stream or a waiting answer before a sign of life, seconds; LangGraph's
            server sends one every 5, and clients measure the cadence.
    """

    runs: RunManager
    threads: ThreadStore
    checkpointer: CheckpointSaver
    graphs: Mapping[str, GraphSource]
    agents: CustomAgentStore | None = None
    delete_files: Callable[[str], Awaitable[None]] = _delete_nothing
    sequences: ThreadEventLogs = field(default_factory=lambda: ThreadEventLogs(time.time))
    max_searched_threads: int = 5000
    heartbeat_s: float = 5.0

    async def delete_thread(self, thread_id: str) -> bool:
        """Delete a thread with everything that belongs to it; False if there is none."""
        known = await self.runs.delete_thread(thread_id)
        if known:
            await self.delete_files(thread_id)
        return known

    @property
    def states(self) -> ThreadStates:
        """The threads' states."""
        return ThreadStates(self.runs)


def services_of(request: Request) -> LangGraphServices:
    """Return the record of the application that serves a request."""
    services: LangGraphServices = request.app.state.langgraph
    return services
