"""`parley check`: shows what is configured, missing or broken. It starts MCP servers to list their tools."""

import argparse
import json
import sys
from collections.abc import Iterator, Sequence
from typing import Any

import anyio

from agent.errors import AgentError
from agent.mcp.registry import McpServerInfo
from agent.sandbox.factory import (
    build_sandbox_provider,
)
from agent.thread_storage import ThreadStorage
from bots.common.diagnosis import Severity
from bots.registry import missing_keys
from bots.terminal.adapter import TERMINAL
from gateway import logs
from gateway.checks.configuration import find_config_problems, find_folder_problem
from gateway.checks.machine import check_data_folder
from gateway.checks.mcp_servers import (
    check_mcp_servers,
    describe_server,
    is_usable,
    server_report,
)
from gateway.checks.references import compare_tool_names
from gateway.command_errors import EXIT_BAD_CONFIG, EXIT_FAILED
from gateway.config import Config, load_config, prepare_process_for_agent
from gateway.config_file import ConfigError
from gateway.serving import startup_report
from store.database_check import find_database_problem


def run(arguments: argparse.Namespace) -> int:
    """Print the report. Returns 1 if something cannot work, 2 if the configuration is invalid."""
    code = 0
    problems: list[str] = []
    try:
        config: Config | None = load_config(arguments.config)
    except ConfigError as error:
        code, problems = EXIT_BAD_CONFIG, list(error.problems)
        config = error.partial if isinstance(error.partial, Config) else None
    sandbox = ""
    hints: list[str] = []
    servers: list[McpServerInfo] = []
    if config is not None:
        prepare_process_for_agent(config)
        logs.configure_logging("error", config.log_format, secrets=config.secrets)
        problems += [line for line in find_config_problems(config) if line not in problems]
        sandbox, hints = _check_machine(config, problems)
        servers = _check_servers(config, problems)
        if not problems and config.database.is_sqlite:
            problems += filter(None, [find_database_problem(config.database, config.home)])
    code = code or (EXIT_FAILED if problems else 0)
    if arguments.json:
        report: dict[str, Any] = {"healthy": not problems, "problems": problems, "warnings": hints}
        report["mcp_servers"] = server_report(servers)
        sys.stdout.write(f"{json.dumps(report, indent=2, ensure_ascii=False)}\n")
        return code
    if config is not None:
        _print_summary(config, sandbox, servers, hints)
    for problem in problems:
        sys.stderr.write(f"parley: {problem}\n")
    if not problems:
        sys.stdout.write("No problems found.\n")
    return code


def _print_summary(
    config: Config, sandbox: str, servers: Sequence[McpServerInfo], hints: Sequence[str]
) -> None:
    lines = [
        *startup_report.summary_lines(config, sandbox),
        *_channel_lines(config),
        *((f"mcp {server.name}", describe_server(server)) for server in servers),
    ]
    sys.stdout.write(startup_report.format_lines(iter(lines)))
    sys.stdout.write("".join(f"  - {hint}\n" for hint in hints))
    sys.stdout.flush()


def _check_servers(config: Config, problems: list[str]) -> list[McpServerInfo]:
    """Return the state of the MCP servers. Append new problems to the list."""
    servers = anyio.run(check_mcp_servers, config)
    for server in servers:
        is_known = any(f"mcpServers.{server.name}:" in line for line in problems)
        if not is_usable(server) and not is_known:
            problems.append(f"MCP server {server.name}: {describe_server(server)}")
    return servers


def _check_machine(config: Config, problems: list[str]) -> tuple[str, list[str]]:
    """Return the description of the sandbox and its warnings. Append new problems to the list."""
    warnings = [line for line in startup_report.config_hints(config) if line not in problems]
    warnings += [line for line, is_certain in compare_tool_names(config) if not is_certain]
    if find_folder_problem(config.home) is None:
        disk = check_data_folder(config.home, config.agent.sandbox)
        if disk.severity is not Severity.OK:
            known = problems if disk.severity is Severity.PROBLEM else warnings
            known.append(f"data folder {disk.text}: {disk.fix}")
    try:
        folders = ThreadStorage(config.files)
        return build_sandbox_provider(config.agent.sandbox, folders).description, warnings
    except AgentError as error:
        if not any(error.user_message in line for line in problems):
            problems.append(f"sandbox: {error.user_message}")
        return error.user_message, warnings


def _channel_lines(config: Config) -> Iterator[tuple[str, str]]:
    for name, section in config.bots.sections.items():
        fault = missing_keys(name, section) if section.enabled else None
        on = "on" if name == TERMINAL else f"on; {startup_report.access_summary(section)}"
        yield name, (fault or on) if section.enabled else "off"
