"""`parley check`: shows what is configured, missing or broken. It starts MCP servers to list their tools."""

import argparse
import json
import os
import shutil
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import anyio

from agent.config import AgentConfig
from agent.errors import AgentError, ObjectNotImportable
from agent.extensions import ExtensionsFile
from agent.guardrails.factory import find_guardrail_problem
from agent.importer import import_object, is_importable
from agent.mcp.registry import McpServerInfo, build_interceptor
from agent.mcp.server_config import is_disabled, parse_server
from agent.sandbox.factory import (
    BUILT_IN,
    PROVIDER_CLASSES,
    build_sandbox_provider,
    sandbox_problem,
)
from agent.sandbox.mounts import find_mount_problem
from agent.thread_storage import ThreadStorage
from agent.tools.registry import configured_tools
from agent.tracing import LANGFUSE_CLIENT
from bots.common.diagnosis import Severity
from bots.registry import find_settings_problem, missing_keys
from bots.terminal.adapter import TERMINAL
from bus.voice.local_model import is_installed
from gateway import logs
from gateway.auth import load_admin_token
from gateway.checks.folders import find_file_problems
from gateway.checks.machine import check_data_folder
from gateway.checks.mcp_servers import (
    check_mcp_servers,
    describe_server,
    is_usable,
    server_report,
)
from gateway.checks.references import compare_tool_names, find_reference_problems
from gateway.checks.voice import NOT_INSTALLED
from gateway.command_errors import EXIT_BAD_CONFIG, EXIT_FAILED
from gateway.config import Config, load_config, prepare_process_for_agent
from gateway.config_file import ConfigError, read_dotenv
from gateway.graphs import GraphUnusable, load_graphs
from gateway.misspelled_keys import find_unknown_extensions, find_unknown_model_keys
from gateway.serving import startup_report
from store.database_check import find_database_problem
from store.files.opening import find_storage_problem

_NEED_KEY = ("agent.tools.web:tavily_", "agent.tools.web:firecrawl_")
"""Prefixes of `use` for web tools whose services require a key."""


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


def find_config_problems(config: Config) -> Iterator[str]:
    """Yield one line for each configured part that cannot work."""
    label = config.source or "(built-in defaults)"
    yield from read_dotenv(config.folder / ".env").problems
    yield from config.unknown_keys
    yield from find_unknown_model_keys(config, imports=True)
    yield from _find_folder_problems(config)
    for path, use in _configured_classes(config):
        try:
            import_object(use)
        except ObjectNotImportable as error:
            yield f"{label}: {path}: {error.user_message}"
    for fault in _find_agent_problems(config.agent):
        yield f"{label}: {fault}"
    try:
        load_graphs(config.graphs, config.folder)
    except GraphUnusable as error:
        yield f"{label}: {error.user_message}"
    if config.voice.local_model and not is_installed():
        yield f"{label}: {NOT_INSTALLED}"
    yield from _find_mcp_problems(config)
    found = list(find_reference_problems(config))
    for name, section in config.bots.platforms.items():
        is_told = any(fault.startswith(f"channels.{name}.") for fault in found)
        if section.enabled and not is_told and (fault := find_settings_problem(name, section)):
            found.append(fault)
    yield from (f"{label}: {fault}" for fault in found)


def _find_folder_problems(config: Config) -> Iterator[str]:
    if fault := find_folder_problem(config.home):
        yield f"{config.home}: the data folder {fault}: correct its permissions, or set PARLEY_HOME to another folder"
    else:
        yield from _find_token_problems(config)
        yield from find_file_problems(config)
    if fault := find_storage_problem(config.storage):
        yield f"{config.source or '(built-in defaults)'}: {fault}"


def _find_token_problems(config: Config) -> Iterator[str]:
    """Yield why an existing admin token file cannot be used."""
    try:
        if config.token_file.exists():
            load_admin_token(config)
    except ConfigError as error:
        yield from error.problems
    except OSError as error:
        yield f"{config.token_file}: {error.strerror}"


def find_folder_problem(folder: Path) -> str | None:
    """Return why a data folder cannot be used, or None. It need not exist yet."""
    if folder.exists() and not folder.is_dir():
        return "is not a folder"
    existing = next(path for path in (folder, *folder.parents) if path.exists())
    if not existing.is_dir() or not os.access(existing, os.W_OK | os.X_OK):
        return "is not writable"
    return None


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


def _find_mcp_problems(config: Config) -> Iterator[str]:
    """Yield problems of the extensions file and its MCP servers, without starting the servers."""
    extensions = ExtensionsFile(*config.extensions)
    found, file = extensions.read(), extensions.path
    if found.error:
        yield f"{file}: {found.error}"
    yield from (f"{file}: {line}" for line in find_unknown_extensions(extensions))
    for name, entry in found.mcp_servers.items():
        try:
            parse_server(entry, config.environment)
        except AgentError as error:
            if not is_disabled(entry):
                yield f"{file}: mcpServers.{name}: {error.user_message}"
    for use in found.interceptors:
        try:
            build_interceptor(use)
        except AgentError as error:
            yield f"{file}: {error.user_message}"


def _configured_classes(config: Config) -> Iterator[tuple[str, str]]:
    agent = config.agent
    for index, model in enumerate(agent.models):
        yield f"models[{index}].use", model.use
    for index, tool in enumerate(agent.tools):
        yield f"tools[{index}].use", tool.use
    if agent.sandbox.use not in BUILT_IN:
        yield "sandbox.use", PROVIDER_CLASSES.get(agent.sandbox.use, agent.sandbox.use)
    if config.tracing.langfuse is not None:
        yield "LANGFUSE_TRACING", LANGFUSE_CLIENT


def _find_agent_problems(config: AgentConfig) -> Iterator[str]:
    """Yield problems of the agent's parts, except missing classes."""
    yield from filter(
        None, (sandbox_problem(config.sandbox), find_guardrail_problem(config.guardrails))
    )
    for index, mount in enumerate(config.sandbox.mounts):
        if fault := find_mount_problem(mount):
            yield f"sandbox.mounts[{index}]: {mount.container_path} is not mounted: {fault}"
    yield from _find_tool_problems(config)
    yield from _find_acp_problems(config)


def _find_tool_problems(config: AgentConfig) -> Iterator[str]:
    """Yield problems of tools' settings."""
    for index, tool in enumerate(config.tools):
        if not is_importable(tool.use):
            continue  # already reported with the other classes
        if tool.use.startswith(_NEED_KEY) and not tool.extra_keys().get("api_key"):
            yield f"tools[{index}].api_key: {tool.name} needs the key of its service: set it"
        try:
            configured_tools([tool])
        except AgentError as error:
            yield error.user_message


def _find_acp_problems(config: AgentConfig) -> Iterator[str]:
    for name, entry in config.acp_agents.items():
        if shutil.which(entry.command) is None:
            yield f"acp_agents.{name}.command: the program {entry.command} is not installed here"


def _channel_lines(config: Config) -> Iterator[tuple[str, str]]:
    for name, section in config.bots.sections.items():
        fault = missing_keys(name, section) if section.enabled else None
        on = "on" if name == TERMINAL else f"on; {startup_report.access_summary(section)}"
        yield name, (fault or on) if section.enabled else "off"
