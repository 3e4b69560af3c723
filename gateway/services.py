"""Parley's running services as one frozen record, stored in `app.state.services`."""

import logging
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from agent.factory import AgentFactory
from agent.services import AgentServices
from bots.common.installation import InstallationEndpoint
from bots.common.webhooks import WebhookEndpoint
from bots.terminal.adapter import TerminalAdapter
from bus.service import Bus
from gateway.audit import AuditLog
from gateway.changes import ChangeFeed
from gateway.config import Config
from gateway.figures import Figures
from gateway.recent_logs import RecentLogs
from gateway.request_stats import RequestStats
from gateway.runtime.cluster_runs import ClusterRuns
from gateway.runtime.protocol import ThreadEventLogs
from gateway.runtime.runs import RunManager
from gateway.runtime.thread_states import ThreadStates
from gateway.shared_result import SharedResult
from gateway.telemetry_base import Telemetry
from gateway.watchdog import Watchdog
from store.api_tokens import ApiTokenStore
from store.console_sessions import ConsoleSessionStore
from store.database import Database
from store.errors import StoreError
from store.node_calls import NodeCalls
from store.runs import ThreadAtOtherNode

DELETE_THREAD = "thread.delete"
"""The call that deletes a thread at the node that executes its runs. The answer is empty if the thread is unknown."""

Findings = Sequence[Mapping[str, str | None]]
"""Results of checks, problems first: `area`, `subject`, `severity`, `text` and `fix` of each."""

FINDINGS_S = 30.0
"""How long findings are shown before the checks run again, seconds."""

DELETE_S = 15.0
"""Time limit of such a call, seconds. The node stops the thread's runs first."""

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Services:
    """The services that routes and commands use.

    Attributes:
        node_calls: Calls to the other nodes of the database.
        agents: Builds the agent's graphs, and holds its services.
        runs: The embedded runtime: threads, runs and assistants.
        cluster_runs: The runs of all nodes.
        tokens: The named tokens of the API.
        sessions: The sessions of browsers.
        changes: The change feed for open pages.
        figures: Messages, waits, tokens and cost over time.
        findings: The latest findings.
        telemetry: Reports to OpenTelemetry.
        logs: The last log lines.
        terminal: The adapter behind `parley chat`; None if disabled.
        bus: The channels; None before they start and after they stop.
        channel_problems: Enabled channels that could not be built: name -> what to do.
        webhooks: Endpoints of channels in webhook mode, by channel. They answer 503 while their channel is down.
        installations: Endpoints of channels that workspaces can install over OAuth, by channel.
        event_logs: The events of threads, for LangChain's newer streaming protocol.
        max_searched_threads: Maximum number of threads whose state a search by values reads, about 0.3 ms each.
        heartbeat_s: Silence on a stream or a waiting response before a heartbeat, seconds. LangGraph Server sends
            one every 5, and clients measure the cadence.
    """

    config: Config
    database: Database
    node_calls: NodeCalls
    agents: AgentFactory
    runs: RunManager
    cluster_runs: ClusterRuns
    stats: RequestStats
    audit: AuditLog
    watchdog: Watchdog
    tokens: ApiTokenStore
    sessions: ConsoleSessionStore
    changes: ChangeFeed
    figures: Figures
    findings: SharedResult[Findings] = field(default_factory=lambda: SharedResult(FINDINGS_S))
    telemetry: Telemetry = field(default_factory=Telemetry)
    logs: RecentLogs = field(default_factory=RecentLogs)
    terminal: TerminalAdapter | None = None
    bus: Bus | None = None
    channel_problems: Mapping[str, str] = field(default_factory=dict)
    webhooks: Mapping[str, WebhookEndpoint] = field(default_factory=dict)
    installations: Mapping[str, InstallationEndpoint] = field(default_factory=dict)
    event_logs: ThreadEventLogs = field(default_factory=lambda: ThreadEventLogs(time.time))
    max_searched_threads: int = 5000
    heartbeat_s: float = 5.0

    @property
    def agent_services(self) -> AgentServices:
        """The agent's services: memory, skills, uploads and so on."""
        return self.agents.services

    @property
    def states(self) -> ThreadStates:
        """The states of threads."""
        return ThreadStates(self.runs)

    async def delete_thread(self, thread_id: str) -> bool:
        """Stop a thread's runs, and delete it with its runs, state and files. False if none of these exist.

        If another node executes runs on the thread, that node deletes it.

        Raises:
            OSError: The files could not be deleted; everything else is gone.
            StoreUnavailable: The other node does not answer.
        """
        try:
            return await self._delete_thread_here(thread_id)
        except ThreadAtOtherNode as error:
            calls = self.node_calls
            answer = await calls.call(error.node, DELETE_THREAD, thread_id, within_s=DELETE_S)
            return bool(answer)

    def serve_calls(self) -> None:
        """Delete the threads for other nodes whose runs are here."""

        async def delete(thread_id: str) -> str:
            return "deleted" if await self._delete_thread_here(thread_id) else ""

        self.node_calls.serve(DELETE_THREAD, delete)

    async def _delete_thread_here(self, thread_id: str) -> bool:
        await self.runs.check_thread(thread_id)
        is_known = await self.runs.delete_thread(thread_id)
        had_files = await self.agent_services.delete_files(thread_id)
        return is_known or had_files

    async def delete_thread_files(self, thread_id: str) -> None:
        """Delete the files of a thread. Logs and keeps files that cannot be deleted."""
        try:
            await self.agent_services.delete_files(thread_id)
        except (StoreError, OSError):
            log.exception("the files of thread %s could not be deleted", thread_id)
