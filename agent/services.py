"""AgentServices: what all runs of the agent share, opened once and closed after the last run."""

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

import anyio.to_thread

from agent.acp.tool import AcpAgentRunner
from agent.config import AgentConfig
from agent.config.tracing import TracingConfig
from agent.custom_agents import CustomAgentStore
from agent.extensions import ExtensionsFile
from agent.mcp.registry import McpToolRegistry, open_mcp
from agent.memory.service import MemoryService
from agent.models.auxiliary import AuxiliaryModels
from agent.models.circuit_breakers import CircuitBreakers
from agent.models.http_client import ModelHttpClient
from agent.sandbox.factory import build_sandbox_provider
from agent.sandbox.protocol import SandboxProvider, maintained
from agent.skills.installer import SkillInstaller
from agent.skills.registry import SkillRegistry
from agent.skills.scanner import SkillScanner
from agent.subagents.executor import SubagentExecutor, open_subagent_executor
from agent.thread_storage import ThreadStorage
from agent.tracing import Tracing, open_tracing
from agent.uploads.service import UploadService


class CurrentConfig:
    """The configuration that holds now."""

    def __init__(self, config: AgentConfig) -> None:
        self._config = config

    def get(self) -> AgentConfig:
        """Return it."""
        return self._config

    def replace(self, config: AgentConfig) -> None:
        """Put another in its place; runs that are under way keep what they were built with."""
        self._config = config


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentSetup:
    """Where the agent lives.

    Attributes:
        config: The configuration to begin with.
        home: The data folder.
        extensions_path: The file with MCP servers and switched-off skills; None = `extensions_config.json` in `home`.
        sandboxes: Where the agent's files are; None = as configured.
        base_dir: From where relative paths of the configuration are meant; None = the working folder.
        environment: Where `$NAME` in the extensions file is looked up.
        tracing: Where runs are recorded.
    """

    config: AgentConfig
    home: Path
    extensions_path: Path | None = None
    sandboxes: SandboxProvider | None = None
    base_dir: Path | None = None
    environment: Mapping[str, str] = field(default_factory=dict, repr=False)
    tracing: TracingConfig = field(default_factory=TracingConfig)

    @property
    def extensions_file(self) -> Path:
        """Where MCP servers and switched-off skills are written down."""
        return self.extensions_path or self.home / "extensions_config.json"


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentServices:
    """The open parts.

    Attributes:
        config: The configuration that holds now.
        folders: The threads' files.
        sandboxes: Where tools work on them.
        model_http_client: The models' connections.
        auxiliary_models: Models for work beside the conversation.
        circuit_breakers: Which models are left alone for a while.
        extensions: The file with MCP servers and switched-off skills.
        skills: What the agent knows how to do.
        skill_installer: Where skills are installed and changed.
        custom_agents: The custom agents.
        acp_agents: The agents of other makers.
        subagents: Runs what is delegated.
        mcp: The tools of MCP servers.
        memory: What is remembered of people and rooms.
        uploads: What users send.
        tracing: Where runs are recorded.
    """

    config: CurrentConfig
    home: Path
    folders: ThreadStorage
    sandboxes: SandboxProvider
    model_http_client: ModelHttpClient
    auxiliary_models: AuxiliaryModels
    circuit_breakers: CircuitBreakers
    extensions: ExtensionsFile
    skills: SkillRegistry
    skill_installer: SkillInstaller
    custom_agents: CustomAgentStore
    acp_agents: AcpAgentRunner
    subagents: SubagentExecutor
    mcp: McpToolRegistry
    memory: MemoryService
    uploads: UploadService
    tracing: Tracing


@asynccontextmanager
async def open_agent_services(site: AgentSetup) -> AsyncIterator[AgentServices]:
    """Open everything that runs share, and close it on exit.

    Raises:
        AgentError: The configuration names something that cannot be used.
    """
    settings = CurrentConfig(site.config)
    folders = ThreadStorage(site.home)
    extensions = ExtensionsFile(site.extensions_file)
    skills = _skill_registry(site, settings, extensions)
    await skills.load()
    sandboxes = site.sandboxes
    if sandboxes is None:
        sandboxes = await anyio.to_thread.run_sync(
            build_sandbox_provider, site.config.sandbox, folders, skills.mounts
        )
    connections = ModelHttpClient()
    models = AuxiliaryModels(settings.get, connections)
    try:
        async with (
            maintained(sandboxes),
            open_tracing(site.tracing) as tracing,
            MemoryService(site.home, settings.get, models.get) as memory,
            open_subagent_executor() as subagents,
            open_mcp(extensions, site.environment, lambda: settings.get().mcp) as mcp,
        ):
            yield AgentServices(
                config=settings,
                home=site.home,
                folders=folders,
                sandboxes=sandboxes,
                model_http_client=connections,
                auxiliary_models=models,
                circuit_breakers=CircuitBreakers(lambda: settings.get().circuit_breaker),
                extensions=extensions,
                skills=skills,
                skill_installer=_skill_installer(skills, settings, models),
                custom_agents=CustomAgentStore(site.home),
                acp_agents=AcpAgentRunner(folders),
                subagents=subagents,
                mcp=mcp,
                memory=memory,
                uploads=UploadService(
                    folders, converts=lambda: settings.get().uploads.auto_convert_documents
                ),
                tracing=tracing,
            )
    finally:
        await connections.aclose()
        await sandboxes.aclose()


def _skill_installer(
    skills: SkillRegistry, settings: CurrentConfig, models: AuxiliaryModels
) -> SkillInstaller:
    scanner = SkillScanner(lambda: settings.get().skills, models.get)
    return SkillInstaller(skills, skills.custom_folder, scanner)


def _skill_registry(
    site: AgentSetup, settings: CurrentConfig, extensions: ExtensionsFile
) -> SkillRegistry:
    return SkillRegistry(
        lambda: settings.get().skills, extensions, home=site.home, base=site.base_dir
    )
