"""The agent's sections of config.yaml. Secrets are plain strings: the gateway has already substituted `$NAME`."""

from pydantic import Field, ValidationInfo, model_validator

from agent.config.acp import AcpAgentConfig
from agent.config.agents import AgentsApiConfig
from agent.config.guardrails import GuardrailProviderConfig, GuardrailsConfig
from agent.config.mcp import McpConfig
from agent.config.memory import MemoryConfig
from agent.config.middleware import (
    CircuitBreakerConfig,
    LlmRetryConfig,
    LoopDetectionConfig,
    SafetyFinishReasonConfig,
    SummarizationConfig,
    ThreadSize,
    ToolOutputConfig,
)
from agent.config.models import DEMO_MODEL, DEMO_MODEL_CLASS, DEMO_MODEL_NAME, ModelConfig
from agent.config.sandbox import MountConfig, SandboxConfig
from agent.config.section import Section
from agent.config.skills import SkillsConfig
from agent.config.subagents import SubagentsConfig
from agent.config.title import TitleConfig
from agent.config.tools import ToolConfig, ToolGroupConfig
from agent.config.uploads import UploadsConfig
from agent.config.usage import UsageConfig

__all__ = [
    "DEMO_MODEL",
    "DEMO_MODEL_CLASS",
    "DEMO_MODEL_NAME",
    "PARTIAL",
    "AcpAgentConfig",
    "AgentConfig",
    "AgentsApiConfig",
    "CircuitBreakerConfig",
    "GuardrailProviderConfig",
    "GuardrailsConfig",
    "LlmRetryConfig",
    "LoopDetectionConfig",
    "McpConfig",
    "MemoryConfig",
    "ModelConfig",
    "MountConfig",
    "SafetyFinishReasonConfig",
    "SandboxConfig",
    "Section",
    "SkillsConfig",
    "SubagentsConfig",
    "SummarizationConfig",
    "ThreadSize",
    "TitleConfig",
    "ToolConfig",
    "ToolGroupConfig",
    "ToolOutputConfig",
    "UploadsConfig",
    "UsageConfig",
]


PARTIAL = "partial"
"""Validation context for an incomplete configuration. Skips the check of references."""


class AgentConfig(Section):
    """The agent's part of config.yaml: flat sections at its top level."""

    models: list[ModelConfig] = Field(default_factory=list)
    tool_groups: list[ToolGroupConfig] = Field(default_factory=list)
    tools: list[ToolConfig] = Field(default_factory=list)
    sandbox: SandboxConfig = Field(default_factory=SandboxConfig)
    skills: SkillsConfig = Field(default_factory=SkillsConfig)
    acp_agents: dict[str, AcpAgentConfig] = Field(default_factory=dict)
    agents_api: AgentsApiConfig = Field(default_factory=AgentsApiConfig)
    title: TitleConfig = Field(default_factory=TitleConfig)
    summarization: SummarizationConfig = Field(default_factory=SummarizationConfig)
    llm_retry: LlmRetryConfig = Field(default_factory=LlmRetryConfig)
    circuit_breaker: CircuitBreakerConfig = Field(default_factory=CircuitBreakerConfig)
    loop_detection: LoopDetectionConfig = Field(default_factory=LoopDetectionConfig)
    tool_output: ToolOutputConfig = Field(default_factory=ToolOutputConfig)
    safety_finish_reason: SafetyFinishReasonConfig = Field(default_factory=SafetyFinishReasonConfig)
    subagents: SubagentsConfig = Field(default_factory=SubagentsConfig)
    memory: MemoryConfig = Field(default_factory=MemoryConfig)
    mcp: McpConfig = Field(default_factory=McpConfig)
    guardrails: GuardrailsConfig = Field(default_factory=GuardrailsConfig)
    uploads: UploadsConfig = Field(default_factory=UploadsConfig)
    usage: UsageConfig = Field(default_factory=UsageConfig)

    @model_validator(mode="after")
    def _names_make_sense(self, info: ValidationInfo) -> "AgentConfig":
        if info.context == PARTIAL:
            return self
        names = [model.name for model in self.models]
        twice = sorted({name for name in names if names.count(name) > 1})
        problems = [f"models: the name {name!r} is used twice" for name in twice]
        problems += [
            f"{key}: there is no model named {name!r}"
            for key, name in (
                ("title.model_name", self.title.model_name),
                ("memory.model_name", self.memory.model_name),
                ("skills.scan_model_name", self.skills.scan_model_name),
                ("summarization.model_name", self.summarization.model_name),
                *(("subagents", name) for name in self.subagents.models_named),
            )
            if name is not None and self.model_named(name) is None
        ]
        if problems:
            raise ValueError("\n".join(problems))
        return self

    @property
    def chat_models(self) -> tuple[ModelConfig, ...]:
        """The configured models, the default first; the demo model if none is configured. Never empty."""
        return tuple(self.models) or (ModelConfig.model_validate(DEMO_MODEL),)

    def model_named(self, name: str) -> ModelConfig | None:
        """Return the entry of `chat_models` with this name, or None."""
        return next((model for model in self.chat_models if model.name == name), None)
