"""What all parts of the bus share: configuration, platforms, journal, servers, delivery, settings, clock, tasks."""

from collections.abc import Mapping
from dataclasses import dataclass, field

import httpx
from anyio.abc import TaskGroup

from bus.access.intake_stats import IntakeStats
from bus.config import BusConfig, ChannelPolicy
from bus.outbound.worker import DeliveryWorker
from bus.platform import Adapter, Clock
from bus.runs.port import Runs
from bus.settings.language import LanguageResolver
from bus.settings.resolver import SettingsResolver
from bus.stores import JournalStores
from bus.tracing import NO_TRACER, MessageTracer
from store.node_calls import NodeCalls
from store.nodes import Nodes


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentServer:
    """Where the agents are.

    Attributes:
        runs: Its threads and runs.
        gateway: The client of its REST API; the base URL ends in `/api`.
        graphs: The graphs besides Parley's agent, if it is the embedded runtime.
    """

    runs: Runs
    gateway: httpx.AsyncClient
    graphs: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True, kw_only=True)
class BusContext:
    """What all parts of a running bus share.

    Attributes:
        tasks: Owns all tasks of the bus.
        config: Limits and the default session.
        policies: The access policy of each channel.
        adapters: The platforms to connect, by channel.
        stores: The journal.
        calls: Calls to and from the other processes that share it.
        runs: Threads and runs at the agent's server.
        gateway: The gateway's REST API; its base URL ends in `/api`.
        graphs: The embedded runtime's graphs besides the agent.
        delivery: Sends what is in the outbox.
        settings: The settings that people chose by command.
        languages: The language of each reply.
        stats: Outcomes of messages since the start.
        now: The wall clock.
        tracer: Records what happens to messages.
    """

    tasks: TaskGroup
    config: BusConfig
    policies: Mapping[str, ChannelPolicy]
    adapters: Mapping[str, Adapter]
    stores: JournalStores
    calls: NodeCalls
    runs: Runs
    gateway: httpx.AsyncClient
    graphs: frozenset[str]
    delivery: DeliveryWorker
    settings: SettingsResolver
    languages: LanguageResolver
    now: Clock
    stats: IntakeStats = field(default_factory=IntakeStats)
    tracer: MessageTracer = NO_TRACER

    @property
    def nodes(self) -> Nodes:
        """The processes that share the journal."""
        return self.calls.database.nodes
