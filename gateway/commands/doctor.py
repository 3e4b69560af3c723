"""`parley doctor`: checks everything that is configured and suggests fixes."""

import argparse
import re
import sys
from collections.abc import Mapping, Sequence
from functools import partial
from itertools import chain
from typing import Any

import anyio

from bots.common.diagnosis import CheckResult, DiagnosisOptions, Severity, problem
from bots.config import PlatformConfig
from bots.diagnosis import diagnose_channel
from bus.commands import COMMANDS
from gateway import logs
from gateway.checks import machine
from gateway.checks.configuration import find_config_problems
from gateway.checks.mcp_servers import check_mcp_servers, server_result
from gateway.checks.models import check_models
from gateway.checks.references import PLATFORM_ADDRESSES
from gateway.checks.report import (
    MACHINE,
    MCP,
    MODELS,
    SCHEDULES,
    VOICE,
    DoctorReport,
    redact_report,
)
from gateway.checks.schedules import check_schedules
from gateway.checks.voice import check_voice
from gateway.command_errors import EXIT_BAD_CONFIG, EXIT_FAILED, CommandFailed
from gateway.config import Config, load_config, prepare_process_for_agent
from gateway.config_file import ConfigError
from gateway.service_client import open_service_client, request_json
from gateway.serving.startup_report import access_summary, hook_summary

ChannelStatesByName = Mapping[str, Mapping[str, Any]]
"""Channel states reported by a running service."""


def run(arguments: argparse.Namespace) -> int:
    """Print the report. Returns 1 if there are problems, 2 if the configuration cannot be read."""
    try:
        config = load_config(arguments.config)
    except ConfigError as error:
        if not arguments.json:
            raise
        report = DoctorReport()
        report.add(MACHINE, *(problem("configuration", line) for line in error.problems))
        sys.stdout.write(f"{report.json()}\n")
        return EXIT_BAD_CONFIG
    prepare_process_for_agent(config)
    logs.configure_logging("error", config.log_format, secrets=config.secrets)
    report = anyio.run(partial(run_checks, config, ask_models=not arguments.no_model))
    sys.stdout.write(f"{report.json()}\n" if arguments.json else report.text())
    return 0 if report.healthy else EXIT_FAILED


async def run_checks(config: Config, *, ask_models: bool = True) -> DoctorReport:
    """Run all checks. Secrets are redacted from the report."""
    report = DoctorReport()
    report.add(MACHINE, *await anyio.to_thread.run_sync(_check_configuration, config))
    states, service, schedules = await _check_service(config)
    report.add(MACHINE, service)
    found: dict[str, Sequence[CheckResult]] = {}

    async def check_channel(name: str) -> None:
        section = config.bots.sections[name]
        runs = states is not None
        options = DiagnosisOptions(exclusive=not runs, service_running=runs, commands=COMMANDS)
        found[name] = await diagnose_channel(name, section, options)

    async def check_runs() -> None:
        found.update(await _check_runs(config, ask_models=ask_models))

    async def check_servers() -> None:
        found[MCP] = [server_result(server) for server in await check_mcp_servers(config)]

    enabled = [name for name, section in config.bots.platforms.items() if section.enabled]
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(check_runs)
        tasks.start_soon(check_servers)
        for name in enabled:
            tasks.start_soon(check_channel, name)
    report.add(MODELS, *found.get(MODELS, ()))
    report.add(VOICE, *found.get(VOICE, ()))
    report.add(MCP, *found[MCP])
    report.add(SCHEDULES, *schedules)
    for name in enabled:
        report.add(name, *_service_channel_result(states, name), *found.get(name, ()))
        report.add(name, _check_access(config.bots.sections[name]))
        report.add(name, *_list_hooks(config, name))
    return redact_report(report, logs.SecretRedactor(config.secrets))


async def _check_runs(config: Config, *, ask_models: bool) -> dict[str, Sequence[CheckResult]]:
    """Test the models or the LangGraph server, and the speech service. Return the results by area."""
    found: dict[str, Sequence[CheckResult]] = {}
    if config.bus.langgraph_url:  # the other server configures its own models
        found[MODELS] = [await machine.check_langgraph_server(config.bus.langgraph_url)]
    elif ask_models:
        found[MODELS] = await check_models(config.agent)
    if ask_models:
        found[VOICE] = await check_voice(config.voice)
    return found


def _check_configuration(config: Config) -> list[CheckResult]:
    """Run the checks that need no network. Blocking."""
    source = str(config.source) if config.source else "no file; built-in defaults"
    found = [CheckResult(subject="configuration", text=source)]
    found += [
        problem("configuration", line)
        for line in find_config_problems(config)
        if not _is_found_by_platform(config, line)
    ]
    found += [
        CheckResult(subject="configuration", text=line, severity=Severity.WARNING)
        for line in config.warnings
    ]
    if not any(section.enabled for section in config.bots.platforms.values()):
        text = "no chat platform is enabled"
        fix = "`parley init` sets one up"
        found.append(CheckResult(subject="channels", text=text, severity=Severity.NOTE, fix=fix))
    found.append(machine.check_data_folder(config.home, config.agent.sandbox))
    found.append(machine.check_database(config.database, config.home))
    found.append(machine.check_sandbox(config.agent.sandbox, config.files))
    return found


def _is_found_by_platform(config: Config, line: str) -> bool:
    """Return whether the platform's check reports this problem too, as it does for credentials and addresses."""
    return any(
        re.search(rf"\bchannels\.{re.escape(name)}\.{re.escape(key)}(?![\w.])", line)
        for name, section in config.bots.platforms.items()
        for key in {*chain(*section.required_keys.values()), *PLATFORM_ADDRESSES}
    )


def _check_access(section: PlatformConfig) -> CheckResult:
    """Report who may use a channel."""
    text = access_summary(section)
    is_open = section.external_policy == "open" or section.group_policy == "open"
    if not is_open:
        return CheckResult(subject="access", text=text)
    fix = "anyone in these chats can use the bot; see docs/howto/let-strangers-in.md"
    return CheckResult(subject="access", text=text, severity=Severity.NOTE, fix=fix)


def _list_hooks(config: Config, channel: str) -> list[CheckResult]:
    """Report which other systems may talk to a channel's chats."""
    return [
        CheckResult(subject=f"hook {name}", text=hook_summary(hook))
        for name, hook in config.hooks.items()
        if hook.channel == channel
    ]


async def _check_service(
    config: Config,
) -> tuple[ChannelStatesByName | None, CheckResult, Sequence[CheckResult]]:
    """Check a running service.

    Return its channel states (None = it is not running), the result, and the results of its schedules.
    """
    try:
        async with open_service_client(config) as client:
            if client is None:
                return None, CheckResult(subject="service", text="not running"), ()
            states: ChannelStatesByName = (await request_json(client, "GET", "channels"))[
                "channels"
            ]
            running = f"running at {str(client.base_url).removesuffix('/api/')}"
            result = CheckResult(subject="service", text=running)
            return states, result, await check_schedules(client)
    except CommandFailed as error:
        return None, problem("service", str(error)), ()


def _service_channel_result(states: ChannelStatesByName | None, name: str) -> list[CheckResult]:
    state = (states or {}).get(name)
    if state is None:
        return []
    if state["running"]:
        return [CheckResult(subject="service", text=str(state["state"]))]
    if not state["enabled"]:
        text = "not enabled in the running service"
        fix = "restart the service to apply changes of `channels`"
        return [CheckResult(subject="service", text=text, severity=Severity.WARNING, fix=fix)]
    text = f"{state['state']}: {state['detail']}" if state["detail"] else str(state["state"])
    return [CheckResult(subject="service", text=text, severity=Severity.WARNING)]
