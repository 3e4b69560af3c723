"""Shared parts of the bus: configuration, platforms, journal, servers, delivery, settings, clock and tasks."""

from collections.abc import Mapping
from dataclasses import dataclass, field

import httpx
from anyio.abc import TaskGroup

from bus.access.checker import AccessChecker
from bus.access.intake_stats import IntakeStats
from bus.config import BusConfig, ChannelPolicy
from bus.outbound.worker import DeliveryWorker
from bus.platform import Adapter, Clock
from bus.runs.port import Runs, ThreadFiles
from bus.schedules.run_starter import CheckRunner, RunStarter
from bus.schedules.schedules import Schedules
from bus.settings.language import LanguageResolver
from bus.settings.resolver import SettingsResolver
from bus.stores import JournalStores
from bus.tracing import NO_TRACER, MessageTracer
from bus.voice.stats import SpeechStats
from store.node_calls import NodeCalls
from store.nodes import Nodes


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentServer:
    """The servers of the agents.

    Attributes:
        runs: Its threads and runs.
        files: The files of its threads.
        gateway: The REST API, for commands; the base URL ends in `/api`. Callers set a deadline around each request.
        graphs: The graphs besides Parley's agent, if this is the embedded runtime.
        schedules: Starts the runs of API schedules; None = there are no API schedules.
        checks: Runs the checks of schedules; None = schedules cannot have checks here.
    """

    runs: Runs
    files: ThreadFiles
    gateway: httpx.AsyncClient
    graphs: frozenset[str] = frozenset()
    schedules: RunStarter | None = None
    checks: CheckRunner | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class BusContext:
    """The shared parts of a running bus.

    Attributes:
        tasks: Owns all tasks of the bus.
        config: Limits and the default session.
        policies: The access policy of each channel.
        adapters: The platforms to connect, by channel.
        stores: The journal.
        calls: Calls to and from other processes that share the journal.
        runs: Threads and runs on the agent's server.
        files: The files of threads.
        gateway: The gateway's REST API; its base URL ends in `/api`.
        graphs: The embedded runtime's graphs besides the agent.
        delivery: Sends the rows of the outbox.
        settings: Settings that people chose by command.
        languages: The language of each reply.
        schedules: The schedules of chats.
        stats: Dispositions of messages since the start.
        speech_stats: Transcribed recordings since the start.
        now: The wall clock.
        tracer: Traces messages.
    """

    tasks: TaskGroup
    config: BusConfig
    policies: Mapping[str, ChannelPolicy]
    adapters: Mapping[str, Adapter]
    stores: JournalStores
    calls: NodeCalls
    runs: Runs
    files: ThreadFiles
    gateway: httpx.AsyncClient
    graphs: frozenset[str]
    delivery: DeliveryWorker
    settings: SettingsResolver
    languages: LanguageResolver
    schedules: Schedules
    now: Clock
    stats: IntakeStats = field(default_factory=IntakeStats)
    speech_stats: SpeechStats = field(default_factory=SpeechStats)
    tracer: MessageTracer = NO_TRACER

    @property
    def access(self) -> AccessChecker:
        """Decides who may use the bot."""
        return AccessChecker(policies=self.policies, pairings=self.stores.pairings, now=self.now)

    @property
    def nodes(self) -> Nodes:
        """The processes that share the journal."""
        return self.calls.database.nodes
