"""The parts that the LangGraph-compatible API works with, in one record on `app.state.langgraph`."""

from collections.abc import Mapping
from dataclasses import dataclass

from starlette.requests import Request

from agent.agents import CustomAgents
from agent.runtime.assistants import GraphSource
from agent.runtime.runs import RunManager
from agent.runtime.states import ThreadStates
from store.checkpoints import Checkpoints
from store.threads import Threads


@dataclass(frozen=True, slots=True, kw_only=True)
class LangGraphServices:
    """What the handlers need.

    Attributes:
        agents: The custom agents, which are assistants too; None = there are none.
        heartbeat_s: Silence on a stream or a waiting answer before a sign of life, seconds; LangGraph's
            server sends one every 5, and clients measure the cadence.
    """

    runs: RunManager
    threads: Threads
    checkpointer: Checkpoints
    graphs: Mapping[str, GraphSource]
    agents: CustomAgents | None = None
    heartbeat_s: float = 5.0

    @property
    def states(self) -> ThreadStates:
        """The threads' states."""
        return ThreadStates(self.runs)


def services_of(request: Request) -> LangGraphServices:
    """Return the record of the application that serves a request."""
    services: LangGraphServices = request.app.state.langgraph
    return services
