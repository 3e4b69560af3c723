"""The running parts, in one frozen record on `app.state.services`."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from agent.factory import AgentFactory
from agent.services import AgentServices
from agent.thread_storage import ThreadStorage
from bots.common.webhooks import WebhookEndpoint
from bots.terminal.adapter import TerminalAdapter
from bus.service import Bus
from gateway.audit import AuditLog
from gateway.config import Config
from gateway.request_stats import RequestStats
from gateway.runtime.runs import RunManager
from gateway.watchdog import Watchdog
from store.database import Database


@dataclass(frozen=True, slots=True, kw_only=True)
class Services:
    """What routes and commands work with.

    Attributes:
        runs: The embedded runtime.
        agents: The agent, with the systems behind it.
        terminal: The adapter behind `parley chat`; None where it is disabled.
        bus: The channels; None before they started and after they stopped.
        traffic: What came in over HTTP.
        audit: Where admins' actions are written down.
        watchdog: How the event loop fares.
        channel_faults: Channels that are enabled and cannot be built: name -> what to do.
        webhooks: The doors of channels that deliver by HTTP; they answer 503 while their channel does not run.
    """

    config: Config
    database: Database
    runs: RunManager
    agents: AgentFactory
    traffic: RequestStats
    audit: AuditLog
    watchdog: Watchdog
    terminal: TerminalAdapter | None = None
    bus: Bus | None = None
    channel_faults: tuple[tuple[str, str], ...] = ()
    webhooks: Mapping[str, WebhookEndpoint] = field(default_factory=dict)

    @property
    def systems(self) -> AgentServices:
        """The agent's systems: memory, skills, uploads and the like."""
        return self.agents.services

    @property
    def folders(self) -> ThreadStorage:
        """The threads' files."""
        return self.agents.services.folders
