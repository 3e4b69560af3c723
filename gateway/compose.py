"""Composition root: starts all services in dependency order and stops them in reverse."""

import importlib
import logging
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import anyio
import anyio.to_thread
import httpx
from fastapi import FastAPI
from langgraph_sdk.client import get_client

from agent.errors import AgentError
from agent.factory import AgentFactory, open_agent_factory
from agent.usage.recorder import UsageRecorder
from bots import registry
from bus.commands import COMMANDS
from bus.config import ChannelPolicy
from bus.context import AgentServer
from bus.runs.port import Runs
from bus.runs.remote import RemoteRuns
from bus.runs.remote_files import RemoteFiles
from bus.service import Bus, run_bus
from gateway.agent_setup import agent_setup_from_config
from gateway.app import INTERNAL_URL, build_app
from gateway.audit import AuditLog
from gateway.changes import ChangeFeed, ChangeTracer
from gateway.chat_schedules import ChatSchedules
from gateway.config import Config
from gateway.embedded_files import EmbeddedFiles
from gateway.embedded_runs import EmbeddedRuns
from gateway.figures import Figures
from gateway.graphs import load_graphs
from gateway.langgraph.run_webhooks import build_webhooks
from gateway.langgraph_file import LEAD_ASSISTANT
from gateway.recent_logs import keep_recent_logs
from gateway.request_stats import RequestStats
from gateway.routes.metrics import METRICS_MODULE
from gateway.runtime.cluster_runs import open_cluster_runs
from gateway.runtime.expiry import run_expiry_loop
from gateway.runtime.runs import RunManager
from gateway.scheduled_runs import SandboxChecks, ScheduledRuns
from gateway.services import Services
from gateway.telemetry_base import Telemetry
from gateway.terminal.other_terminals import connect_terminals
from gateway.watchdog import Watchdog
from store.api_tokens import ApiTokenStore
from store.checkpoints import open_checkpointer
from store.console_sessions import ConsoleSessionStore
from store.credentials import CredentialStore
from store.data_folder import find_interrupted_restore, remove_unpacked
from store.database import Database
from store.errors import StoreUnavailable
from store.figures import FigureStore
from store.files.housekeeping import run_housekeeping
from store.files.opening import open_mirror
from store.guardrail_decisions import GuardrailDecisions
from store.node_calls import open_node_calls
from store.past_messages import PastMessages
from store.process_description import UNDESCRIBED, ProcessDescription
from store.usage import UsageStore

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry, Metric


log = logging.getLogger(__name__)

EXPORTERS_MODULE = "gateway.telemetry.exporters"
REST_TIMEOUT = httpx.Timeout(30.0)


@asynccontextmanager
async def open_app(
    config: Config,
    description: ProcessDescription = UNDESCRIBED,
    on_lost: Callable[[], None] | None = None,
) -> AsyncIterator[FastAPI]:
    """Start all services of a configuration; yield the application for requests inside the process.

    The services are `app.state.services`. Opens no port. `description`, `on_lost`: see `Database.open`.

    Raises:
        StoreError: The data folder or a database in it cannot be used.
    """
    async with AsyncExitStack() as stack:
        recent = stack.enter_context(keep_recent_logs())
        telemetry = await stack.enter_async_context(open_telemetry(config))
        if problem := await anyio.to_thread.run_sync(_find_folder_problem, config):
            raise StoreUnavailable(problem)
        opening = Database.open(config.database, config.home, description, on_lost)
        database = await stack.enter_async_context(opening)
        await anyio.to_thread.run_sync(_remove_unpacked, config.home)
        schedules = ChatSchedules()
        app = await _open_embedded_app(stack, config, telemetry, database, schedules)
        services: Services = app.state.services
        built = registry.build_adapters(
            config.bots,
            COMMANDS,
            files=config.files / "terminal",
            vault=CredentialStore(services.database, config.files),
        )
        connect_terminals(built.terminal, services.node_calls)
        services = replace(
            services, webhooks=built.webhooks, installations=built.installations, logs=recent
        )
        bus = await stack.enter_async_context(
            run_bus(
                config=config.bus,
                policies=_policies(config, built.adapters),
                adapters=built.adapters,
                calls=services.node_calls,
                server=await _agent_server(stack, config, app),
                voice=config.voice,
                tracer=ChangeTracer(services.changes, telemetry.messages),
            )
        )
        bus.hooks.configure(config.hooks)
        schedules.bus = bus
        app.state.services = replace(
            services, bus=bus, terminal=built.terminal, channel_problems=built.faults
        )
        watching = await stack.enter_async_context(anyio.create_task_group())
        stack.callback(watching.cancel_scope.cancel)
        watching.start_soon(services.changes.run, partial(_connection_states, bus))
        try:
            yield app
        finally:
            schedules.bus = None
            app.state.services = services


def _connection_states(bus: Bus) -> dict[str, str]:
    return {name: health.state.value for name, health in bus.health().items()}


def _find_folder_problem(config: Config) -> str | None:
    return config.storage.find_folder_problem() or find_interrupted_restore(config.home)


def _remove_unpacked(home: Path) -> None:
    """Remove leftovers of killed restores, as far as possible. Blocking."""
    try:
        remove_unpacked(home)
    except OSError as error:
        log.warning("%s cannot be removed (%s)", error.filename, error.strerror)


def _policies(config: Config, channels: Iterable[str]) -> dict[str, ChannelPolicy]:
    return {name: config.bots.sections[name] for name in channels}


@asynccontextmanager
async def open_telemetry(config: Config) -> AsyncIterator[Telemetry]:
    """Yield the reporter to OpenTelemetry. Its packages are imported only if the configuration enables it."""
    if not config.telemetry.is_enabled:
        yield Telemetry()
        return
    module = await anyio.to_thread.run_sync(importlib.import_module, EXPORTERS_MODULE)
    async with module.run_exporters(config) as telemetry:
        yield telemetry


async def _open_embedded_app(
    stack: AsyncExitStack,
    config: Config,
    telemetry: Telemetry,
    database: Database,
    schedules: ChatSchedules,
) -> FastAPI:
    """Open the agent and the runtime; return their application."""
    checkpointer = await stack.enter_async_context(open_checkpointer(config.home, database))
    setup = agent_setup_from_config(config, telemetry.run_tracer)
    mirror = await open_mirror(config.storage, config.home, database)
    changes = ChangeFeed(database.signals)
    agents = await stack.enter_async_context(
        open_agent_factory(
            replace(
                setup,
                mirror=mirror,
                past_messages=PastMessages(database),
                schedules=schedules,
                usage=UsageStore(database),
                guardrail_decisions=GuardrailDecisions(database),
                on_memory_change=partial(changes.note, "people"),
            ),
            checkpointer,
        )
    )
    warming = await stack.enter_async_context(anyio.create_task_group())
    stack.callback(warming.cancel_scope.cancel)
    warming.start_soon(_warm_up, agents)
    own = await anyio.to_thread.run_sync(load_graphs, config.graphs, config.folder)
    graphs = {LEAD_ASSISTANT: agents.graph_for, **own}
    runs = await stack.enter_async_context(
        RunManager(database, graphs, checkpointer, webhooks=build_webhooks(config))
    )
    calls = await stack.enter_async_context(open_node_calls(database))
    services = Services(
        config=config,
        database=database,
        node_calls=calls,
        agents=agents,
        runs=runs,
        cluster_runs=await stack.enter_async_context(open_cluster_runs(runs, calls)),
        stats=RequestStats(),
        audit=AuditLog(config.audit_file),
        watchdog=Watchdog(config.gateway.watchdog_s),
        tokens=ApiTokenStore(database),
        sessions=ConsoleSessionStore(database),
        changes=changes,
        figures=Figures(FigureStore(database)),
        telemetry=telemetry,
    )
    warming.start_soon(_settle_usage_of_ended_nodes, agents.services.usage, database)
    warming.start_soon(run_housekeeping, agents.services.mirror, database.nodes)
    warming.start_soon(run_expiry_loop, runs, services.delete_thread_files, database.nodes)
    app = build_app(services)
    services.serve_calls()
    if database.nodes.number:
        # Many turns of other nodes may soon fail over to this one at once.
        await anyio.to_thread.run_sync(app.prepare)
    warming.start_soon(telemetry.export_metrics, partial(_collect_metrics, app))
    return app


async def _settle_usage_of_ended_nodes(usage: UsageRecorder, database: Database) -> None:
    while True:
        await database.nodes.wait_change()
        try:
            await usage.settle_abandoned()
        except StoreUnavailable as error:
            log.warning("The usage of another node is settled later: %s", error)


async def _collect_metrics(app: FastAPI) -> "Iterable[Metric]":
    module = await anyio.to_thread.run_sync(importlib.import_module, METRICS_MODULE)
    registry: CollectorRegistry = await module.collect_metrics(app.state.services)
    return registry.collect()


async def _warm_up(agents: AgentFactory) -> None:
    """Import the default model's package in the background, so that the first message does not wait for it."""
    try:
        await agents.warm_up()
    except AgentError as error:
        log.error("the default model cannot be used: %s", error.user_message)  # noqa: TRY400


async def _agent_server(stack: AsyncExitStack, config: Config, app: FastAPI) -> AgentServer:
    services: Services = app.state.services
    gateway = await stack.enter_async_context(_gateway_client(config, app))
    is_remote = bool(config.bus.gateway_url)
    return AgentServer(
        runs=await _runs(stack, config, app),
        files=RemoteFiles(gateway) if is_remote else EmbeddedFiles(services.agent_services),
        gateway=gateway,
        graphs=frozenset(services.runs.graphs) - {LEAD_ASSISTANT},
        schedules=ScheduledRuns(lambda: app.state.services),
        checks=_checks(config, services),
    )


def _checks(config: Config, services: Services) -> SandboxChecks | None:
    """Return the runner of schedules' checks; None if the agent may not run every command in the sandbox."""
    sandboxes = services.agent_services.sandboxes
    is_open = sandboxes.can_execute and not config.agent.guardrails.enabled
    return SandboxChecks(sandboxes) if is_open and not config.bus.langgraph_url else None


async def _runs(stack: AsyncExitStack, config: Config, app: FastAPI) -> Runs:
    if config.bus.langgraph_url:
        client = get_client(url=config.bus.langgraph_url)
        return RemoteRuns(await stack.enter_async_context(client))
    return EmbeddedRuns(lambda: app.state.services)


def _gateway_client(config: Config, app: FastAPI) -> httpx.AsyncClient:
    """Return a client of the REST API. A client of this process holds whole responses in memory and has no timeouts."""
    if config.bus.gateway_url:
        # A configured token is valid for both gateways, a generated one only here.
        token = config.gateway.admin_token
        return httpx.AsyncClient(
            base_url=f"{config.bus.gateway_url.rstrip('/')}/api",
            headers={"Authorization": f"Bearer {token}"} if token else {},
            timeout=REST_TIMEOUT,
        )
    transport = httpx.ASGITransport(app, raise_app_exceptions=False)
    return httpx.AsyncClient(transport=transport, base_url=f"{INTERNAL_URL}/api")
