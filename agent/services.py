"""AgentServices: the services that all runs of the agent share. Opened once, and closed after the last run."""

from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager, nullcontext
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import anyio.to_thread
from langchain_core.runnables import RunnableConfig

from agent.acp.tool import AcpAgentRunner
from agent.background import background_tasks
from agent.config import AgentConfig
from agent.config.tracing import TracingConfig
from agent.custom_agents import CustomAgentStore
from agent.extensions import ExtensionsFile
from agent.mcp.registry import McpToolRegistry, open_mcp
from agent.memory.service import MemoryService, open_memory
from agent.models.auxiliary import AuxiliaryModels
from agent.models.circuit_breakers import CircuitBreakers
from agent.models.http_client import ModelHttpClient
from agent.sandbox.background_commands import BackgroundCommands, open_background_commands
from agent.sandbox.disk import DiskMeter, disk_limits
from agent.sandbox.factory import build_sandbox_provider
from agent.sandbox.protocol import SandboxProvider, maintained
from agent.skills.installer import SkillInstaller
from agent.skills.registry import SkillRegistry
from agent.skills.scanner import SkillScanner
from agent.subagents.executor import SubagentExecutor, open_subagent_executor
from agent.summarizer import Summarizer, open_summarizer
from agent.thread_storage import ThreadStorage
from agent.tools.schedule import ScheduleBackend
from agent.tools.services import ToolServices
from agent.tracing import HandlerFactory, Tracing, open_tracing
from agent.uploads.converter import DocumentConverter
from agent.uploads.service import UploadService
from agent.usage.recorder import UsageRecorder, running_recorder
from store.files.config import StorageConfig
from store.files.mirror import SHARED_AREA, FileMirror, SharedFolder, thread_area
from store.guardrail_decisions import GuardrailDecisions
from store.past_messages import PastMessages
from store.usage import UsageStore


class CurrentConfig:
    """Holds the current configuration."""

    def __init__(self, config: AgentConfig) -> None:
        self._config = config

    def get(self) -> AgentConfig:
        """Return the current configuration."""
        return self._config

    def replace(self, config: AgentConfig) -> None:
        """Replace the configuration. Active runs keep the one they were built with."""
        self._config = config


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentSetup:
    """What `open_agent_services` needs.

    Attributes:
        config: The initial configuration.
        home: The data folder.
        storage: Storage of the files that all nodes need.
        mirror: Copies these files between nodes.
        past_messages: Stores past messages for the `recall` tool; None = there is no such tool.
        extensions: Places of the file with MCP servers and disabled skills; () = `extensions_config.json` in `files`.
        sandboxes: The sandbox provider; None = as configured.
        base_dir: The base of relative paths in the configuration; None = the working directory.
        environment: Values for `$NAME` in the extensions file.
        tracing: The tracers of runs.
        run_tracer: An additional tracer, or None.
        learns: Whether to extract memory in the background. Otherwise memory is only read.
        schedules: Carries out the tool `schedule`; None = there is no such tool.
        usage: Stores the usage of model calls; None = usage is not stored, and limits do not apply.
        guardrail_decisions: Stores the decisions of guardrails; None = only the log says them.
        on_memory_change: Called after memory may have changed.
    """

    config: AgentConfig
    home: Path
    storage: StorageConfig = field(default_factory=StorageConfig)
    mirror: FileMirror = field(default_factory=SharedFolder)
    past_messages: PastMessages | None = None
    extensions: tuple[Path, ...] = ()
    sandboxes: SandboxProvider | None = None
    base_dir: Path | None = None
    environment: Mapping[str, str] = field(default_factory=dict, repr=False)
    tracing: TracingConfig = field(default_factory=TracingConfig)
    run_tracer: HandlerFactory | None = None
    learns: bool = True
    schedules: ScheduleBackend | None = None
    usage: UsageStore | None = None
    guardrail_decisions: GuardrailDecisions | None = None
    on_memory_change: Callable[[], None] = lambda: None

    @property
    def files(self) -> Path:
        """The folder of the files that all nodes need, or of this node's copy."""
        return self.storage.folder(self.home)


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentServices:
    """The agent's running parts.

    Attributes:
        config: The current configuration.
        home: The folder of all files.
        mirror: Copies files between nodes.
        folders: The threads' folders.
        sandboxes: Provides the sandboxes for tools.
        background: Shell commands that run in the background.
        model_http_client: The HTTP client that models share.
        auxiliary_models: Models for titles, summaries, memory and scans.
        circuit_breakers: The models' circuit breakers.
        extensions: The file with MCP servers and disabled skills.
        skills: The installed skills.
        skill_installer: Installs and edits skills.
        custom_agents: The custom agents.
        acp_agents: Calls external agents over ACP.
        subagents: Runs subagents.
        summarizer: Writes summaries of long threads.
        mcp: The tools of MCP servers.
        memory: Long-term memory of people and rooms.
        uploads: Uploaded files.
        for_tools: The services of configured tools.
        tracing: The tracers of runs.
        schedules: Carries out the tool `schedule`; None = there is no such tool.
        usage: Counts the usage of model calls.
        guardrail_decisions: Stores the decisions of guardrails; None = only the log says them.
    """

    config: CurrentConfig
    home: Path
    mirror: FileMirror
    folders: ThreadStorage
    sandboxes: SandboxProvider
    background: BackgroundCommands
    model_http_client: ModelHttpClient
    auxiliary_models: AuxiliaryModels
    circuit_breakers: CircuitBreakers
    extensions: ExtensionsFile
    skills: SkillRegistry
    skill_installer: SkillInstaller
    custom_agents: CustomAgentStore
    acp_agents: AcpAgentRunner
    subagents: SubagentExecutor
    summarizer: Summarizer
    mcp: McpToolRegistry
    memory: MemoryService
    uploads: UploadService
    for_tools: ToolServices
    tracing: Tracing
    schedules: ScheduleBackend | None
    usage: UsageRecorder
    guardrail_decisions: GuardrailDecisions | None

    async def fetch_files(self, config: RunnableConfig) -> None:
        """Update this node's copy of the files that a run may use, and upload shared files that changed here.

        Raises:
            StoreError: The files cannot be copied.
        """
        if not self.mirror.is_remote:
            return
        await self.mirror.store(SHARED_AREA)
        thread_id = (config.get("configurable") or {}).get("thread_id")
        if isinstance(thread_id, str) and thread_id:
            self.folders.folders(thread_id)
            await self.mirror.fetch(thread_area(thread_id))

    async def delete_files(self, thread_id: str) -> bool:
        """Delete the files of a thread. Return whether this node had any.

        Raises:
            ThreadIdInvalid: The ID cannot be a folder name.
            StoreError, OSError: The files cannot be deleted.
        """
        self.folders.folders(thread_id)
        await self.background.stop_all(thread_id)
        await self.mirror.remove(thread_area(thread_id))
        return await anyio.to_thread.run_sync(self.folders.delete, thread_id)


@asynccontextmanager
async def open_agent_services(setup: AgentSetup) -> AsyncIterator[AgentServices]:
    """Open the services that all runs share. Leaving the block closes them.

    Raises:
        AgentError: The configuration names something that cannot be used.
    """
    config = CurrentConfig(setup.config)
    folders = _thread_storage(setup, config)
    extensions = ExtensionsFile(*(setup.extensions or [setup.files / "extensions_config.json"]))
    skills = await _load_skills(setup, config, extensions)
    sandboxes = setup.sandboxes or await _sandbox_provider(setup, folders, skills)
    converter = DocumentConverter()
    uploads = UploadService(
        folders,
        setup.mirror,
        converts=lambda: config.get().uploads.auto_convert_documents,
        converter=converter,
    )
    http_client = ModelHttpClient()
    usage = UsageRecorder(setup.usage, config.get)
    models = AuxiliaryModels(config.get, http_client, usage)
    try:
        async with (
            maintained(sandboxes),
            open_background_commands(partial(_keep_files, sandboxes, setup.mirror)) as background,
            running_recorder(usage),
            background_tasks() as tasks,
            open_tracing(setup.tracing, setup.run_tracer) as tracing,
            _opened_memory(setup, config, models) as memory,
            open_subagent_executor() as subagents,
            open_summarizer(models.get) as summarizer,
            open_mcp(
                extensions,
                setup.environment,
                lambda: config.get().mcp,
                folders,
                lambda: [tool.name for tool in config.get().tools],
                models.get,
            ) as mcp,
        ):
            tasks.start_soon(anyio.to_thread.run_sync, uploads.sweep)
            yield AgentServices(
                config=config,
                home=setup.files,
                mirror=setup.mirror,
                folders=folders,
                sandboxes=sandboxes,
                background=background,
                model_http_client=http_client,
                auxiliary_models=models,
                circuit_breakers=CircuitBreakers(lambda: config.get().circuit_breaker),
                extensions=extensions,
                skills=skills,
                skill_installer=_skill_installer(skills, config, models),
                custom_agents=CustomAgentStore(setup.files),
                acp_agents=AcpAgentRunner(folders),
                subagents=subagents,
                summarizer=summarizer,
                mcp=mcp,
                memory=memory,
                uploads=uploads,
                for_tools=ToolServices(folders=folders, models=models.get, converter=converter),
                tracing=tracing,
                schedules=setup.schedules,
                usage=usage,
                guardrail_decisions=setup.guardrail_decisions,
            )
    finally:
        await http_client.aclose()
        await sandboxes.aclose()


async def _keep_files(sandboxes: SandboxProvider, mirror: FileMirror, thread_id: str) -> None:
    await sandboxes.acquire(thread_id)  # fetches the files if they are elsewhere
    await mirror.store(thread_area(thread_id))


def _opened_memory(
    setup: AgentSetup, config: CurrentConfig, models: AuxiliaryModels
) -> AbstractAsyncContextManager[MemoryService]:
    if setup.learns:
        return open_memory(
            setup.files,
            config.get,
            models.get,
            setup.mirror,
            setup.past_messages,
            on_change=setup.on_memory_change,
        )
    return nullcontext(
        MemoryService(
            setup.files,
            config.get,
            models.get,
            mirror=setup.mirror,
            past_messages=setup.past_messages,
            on_change=setup.on_memory_change,
        )
    )


def _thread_storage(setup: AgentSetup, config: CurrentConfig) -> ThreadStorage:
    return ThreadStorage(
        setup.files, lambda folder: DiskMeter(folder, disk_limits(config.get().sandbox))
    )


async def _sandbox_provider(
    setup: AgentSetup, folders: ThreadStorage, skills: SkillRegistry
) -> SandboxProvider:
    return await anyio.to_thread.run_sync(
        build_sandbox_provider, setup.config.sandbox, folders, skills.mounts
    )


def _skill_installer(
    skills: SkillRegistry, config: CurrentConfig, models: AuxiliaryModels
) -> SkillInstaller:
    scanner = SkillScanner(lambda: config.get().skills, models.get)
    return SkillInstaller(skills, skills.custom_folder, scanner)


async def _load_skills(
    setup: AgentSetup, config: CurrentConfig, extensions: ExtensionsFile
) -> SkillRegistry:
    await setup.mirror.fetch(SHARED_AREA)
    skills = SkillRegistry(
        lambda: config.get().skills, extensions, home=setup.files, base=setup.base_dir
    )
    await skills.load()
    return skills
