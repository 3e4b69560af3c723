"""Checks what is configured, without calling anything: classes, folders, keys, names, MCP servers."""

import os
import shutil
from collections.abc import Iterator
from pathlib import Path

from agent.config import AgentConfig
from agent.errors import AgentError, ObjectNotImportable
from agent.extensions import ExtensionsFile
from agent.guardrails.factory import find_guardrail_problem
from agent.importer import import_object, is_importable
from agent.mcp.registry import build_interceptor
from agent.mcp.server_config import is_disabled, parse_server
from agent.sandbox.factory import BUILT_IN, PROVIDER_CLASSES, sandbox_problem
from agent.sandbox.mounts import find_mount_problem
from agent.tools.registry import configured_tools
from agent.tracing import LANGFUSE_CLIENT
from bots.registry import find_settings_problem
from bus.voice.local_model import is_installed
from gateway.auth import load_admin_token
from gateway.checks.folders import find_file_problems
from gateway.checks.references import find_reference_problems
from gateway.checks.voice import NOT_INSTALLED
from gateway.config import Config
from gateway.config_file import ConfigError, read_dotenv
from gateway.graphs import GraphUnusable, load_graphs
from gateway.misspelled_keys import find_unknown_extensions, find_unknown_model_keys
from store.files.opening import find_storage_problem

_NEED_KEY = ("agent.tools.web:tavily_", "agent.tools.web:firecrawl_")
"""Prefixes of `use` for web tools whose services require a key."""


def find_config_problems(config: Config, *, loads_graphs: bool = True) -> Iterator[str]:
    """Yield one line for each configured part that cannot work. Blocking.

    Args:
        config: The configuration.
        loads_graphs: Whether to load the graphs, which runs the code of their files again.
    """
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
    if loads_graphs:
        yield from _find_graph_problems(config, str(label))
    if config.voice.local_model and not is_installed():
        yield f"{label}: {NOT_INSTALLED}"
    yield from _find_mcp_problems(config)
    found = list(find_reference_problems(config))
    for name, section in config.bots.platforms.items():
        is_told = any(fault.startswith(f"channels.{name}.") for fault in found)
        if section.enabled and not is_told and (fault := find_settings_problem(name, section)):
            found.append(fault)
    yield from (f"{label}: {fault}" for fault in found)


def _find_graph_problems(config: Config, label: str) -> Iterator[str]:
    try:
        load_graphs(config.graphs, config.folder)
    except GraphUnusable as error:
        yield f"{label}: {error.user_message}"


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
