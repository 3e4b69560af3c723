"""What all parts of the bus share: configuration, platforms, journal, servers, delivery, settings, clock, tasks."""

from collections.abc import Mapping
from dataclasses import dataclass

import httpx
from anyio.abc import TaskGroup

from bus.access.intake_stats import IntakeStats
from bus.config import BusConfig, ChannelPolicy
from bus.outbound.worker import DeliveryWorker
from bus.platform import Adapter, Clock
from bus.runs.client import RunClient
from bus.settings.language import LanguageResolver
from bus.settings.resolver import SettingsResolver
from bus.stores import JournalStores
from bus.tracing import NO_TRACER, MessageTracer
from store.nodes import Nodes


@dataclass(frozen=True, slots=True, kw_only=True)
class BusContext:
    """The surroundings of a running bus.

    Attributes:
        tasks: Owns all tasks of the bus.
        config: Limits and the default session.
        policies: Who may talk to the bot, by channel.
        adapters: The platforms to connect, by channel.
        stores: The journal.
        nodes: The processes that share it.
        runs: Threads and runs at the agent's server.
        gateway: The gateway's REST API; its base URL ends in `/api`.
        delivery: Sends what is in the outbox.
        settings: What people chose by command.
        languages: The language of each reply.
        stats: What became of messages since the start.
        now: The wall clock.
        tracer: Records what happens to messages.
    """

    tasks: TaskGroup
    config: BusConfig
    policies: Mapping[str, ChannelPolicy]
    adapters: Mapping[str, Adapter]
    stores: JournalStores
    nodes: Nodes
    runs: RunClient
    gateway: httpx.AsyncClient
    delivery: DeliveryWorker
    settings: SettingsResolver
    languages: LanguageResolver
    stats: IntakeStats
    now: Clock
    tracer: MessageTracer = NO_TRACER
