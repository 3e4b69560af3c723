"""Problems of the running service and how to fix them: the checks of `parley doctor` that cost nothing.

Nothing here asks a model: the models are judged by their latest calls. Platforms are asked only about channels that do
not work, and only if an administrator looks again.
"""

import time
from collections.abc import Iterator, Mapping

import anyio

from bots.common.diagnosis import CheckResult, DiagnosisOptions, Severity, problem, warning
from bots.diagnosis import diagnose_channel
from bus.commands import COMMANDS
from gateway.checks.machine import check_data_folder, check_langgraph_server
from gateway.checks.mcp_servers import server_result
from gateway.checks.models import fix_of
from gateway.checks.report import MACHINE, MCP, MODELS, DoctorReport, redact_report
from gateway.config import Config
from gateway.logs import SecretRedactor
from gateway.readiness import (
    ReadinessCheck,
    check_readiness,
    find_broken_channels,
    find_failing_models,
)
from gateway.services import Findings, Services

NODES = "nodes"

SEVERITIES = (Severity.PROBLEM, Severity.WARNING, Severity.NOTE, Severity.OK)
"""The worst one first."""

DIAGNOSIS_S = 20.0
"""Time limit for asking the platforms about broken channels, seconds."""

_OWN_FAULT = ("auth", "quota")
"""Failures that repeat on every call until somebody fixes the cause."""

_OF_ONE_REQUEST = ("context", "circuit_open")
"""Failures caused by a single request, which say nothing about the model."""

_STORE_FIX = "see the log; `parley doctor` checks the whole database"


async def find_findings(services: Services, *, asks_platforms: bool) -> Findings:
    """Return the results of all checks, problems first. Secrets are redacted.

    Args:
        services: The service.
        asks_platforms: Whether to ask the platforms what is wrong with broken channels.
    """
    config, report = services.config, DoctorReport()
    ready = await check_readiness(services)
    for line in (*config.unknown_keys, *config.warnings):
        report.add(MACHINE, warning("configuration", line))
    sandbox = config.agent.sandbox
    report.add(MACHINE, await anyio.to_thread.run_sync(check_data_folder, config.home, sandbox))
    report.add(MACHINE, *_store_results(ready, config))
    if config.bus.langgraph_url:
        report.add(MODELS, await check_langgraph_server(config.bus.langgraph_url))
    else:
        report.add(MODELS, *_model_results(services, ready["model"]))
    servers = await services.agent_services.mcp.statuses()
    report.add(MCP, *(server_result(server, has_waited=False) for server in servers))
    report.add(NODES, *_node_results(services))
    await _check_channels(services, report, asks_platforms=asks_platforms)
    rows = redact_report(report, SecretRedactor(config.secrets)).rows
    return sorted(rows, key=lambda row: SEVERITIES.index(Severity(str(row["severity"]))))


def _store_results(ready: Mapping[str, ReadinessCheck], config: Config) -> Iterator[CheckResult]:
    """Yield the results of the database and the bucket. The check of the data folder covers the disk."""
    store, files = ready["store"], ready.get("files")
    if store.state in ("slow", "failed"):
        yield problem("database", store.detail, _STORE_FIX)
    else:
        text = "PostgreSQL" if config.database.is_postgres else "SQLite"
        yield CheckResult(subject="database", text=text)
    if files is not None:
        severity = Severity.WARNING if files.detail else Severity.OK
        fix = "check storage.bucket: messages with files are not answered" if files.detail else ""
        text = files.detail or "the bucket answers"
        yield CheckResult(subject="files", text=text, severity=severity, fix=fix)


def _model_results(services: Services, ready: ReadinessCheck) -> Iterator[CheckResult]:
    """Yield the result of each model, by its latest calls."""
    failing, breakers = find_failing_models(services), services.agent_services.circuit_breakers
    if ready.state in ("failed", "starting"):
        severity = Severity.PROBLEM if ready.state == "failed" else Severity.NOTE
        yield CheckResult(subject="default", text=ready.detail, severity=severity)
    for entry in services.agent_services.config.get().chat_models:
        failure, is_failing = breakers.latest_failures.get(entry.name), entry.name in failing
        if not is_failing and (failure is None or failure.reason in _OF_ONE_REQUEST):
            yield CheckResult(subject=entry.name, text="its latest call did not fail")
            continue
        is_broken = is_failing or (failure is not None and failure.reason in _OWN_FAULT)
        why = f": {failure.reason} ({failure.detail})" if failure else ""
        yield CheckResult(
            subject=entry.name,
            text=f"its latest call{'s' if is_failing else ''} failed{why}",
            severity=Severity.PROBLEM if is_broken else Severity.WARNING,
            fix=fix_of(failure) if failure else "see the log",
        )


def _node_results(services: Services) -> Iterator[CheckResult]:
    """Yield the result of each process that shares the database."""
    nodes = services.database.nodes
    for node in nodes.living if nodes.number else ():
        name = node.name or f"node {node.number}"
        if node.takes_work:
            yield CheckResult(subject=name, text="accepts work")
        else:
            text = "accepts no work: it is starting or stopping, or receives no signals"
            fix = "if this lasts, restart it"
            yield CheckResult(subject=name, text=text, severity=Severity.WARNING, fix=fix)


async def _check_channels(
    services: Services, report: DoctorReport, *, asks_platforms: bool
) -> None:
    broken, found = find_broken_channels(services, now=time.time()), dict[str, list[CheckResult]]()

    async def diagnose(name: str) -> None:
        section = services.config.bots.platforms[name]
        options = DiagnosisOptions(exclusive=False, service_running=True, commands=COMMANDS)
        results = await diagnose_channel(name, section, options)
        found[name] = [one for one in results if one.severity is Severity.PROBLEM]

    if asks_platforms:
        with anyio.move_on_after(DIAGNOSIS_S):
            async with anyio.create_task_group() as tasks:
                for name in broken.keys() & services.config.bots.platforms.keys():
                    tasks.start_soon(diagnose, name)
    for name, detail in broken.items():
        fix = f"check channels.{name}; look again to ask the platform"
        report.add(name, *found.get(name) or [problem("connection", detail, fix)])
    for name, health in (services.bus.health() if services.bus else {}).items():
        if name not in broken:
            report.add(name, CheckResult(subject="connection", text=health.state.value))
