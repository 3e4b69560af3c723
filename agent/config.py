"""The agent's sections of the configuration. Secrets are strings here; the gateway resolves `$NAME` before."""

from typing import Any, ClassVar

from pydantic import BaseModel, ConfigDict, Field, model_validator
from typing_extensions import override

DEMO_MODEL_NAME = "demo"
DEMO_MODEL_CLASS = "agent.models.demo:DemoChatModel"


class Section(BaseModel):
    """One section. A key whose value is null means its default; unknown keys are kept, the gateway warns of them.

    Attributes:
        passes_extra_keys: Whether unknown keys are meant for the class that `use` names: no warning then.
    """

    model_config = ConfigDict(extra="allow", frozen=True)

    passes_extra_keys: ClassVar[bool] = False

    @model_validator(mode="before")
    @classmethod
    def _null_means_default(cls, data: object) -> object:
        if data is None:
            return {}
        if not isinstance(data, dict):
            return data
        return {
            key: value
            for key, value in data.items()
            if value is not None or key not in cls.model_fields
        }

    @override
    def __repr_args__(self) -> Any:
        # Unknown keys hold what classes are given, keys and tokens among them: never in a log.
        known = type(self).model_fields
        return [(key, value) for key, value in super().__repr_args__() if key in known]

    def extra_keys(self) -> dict[str, Any]:
        """Return the keys that this section does not know, for the class that `use` names."""
        return dict(self.model_extra or {})


class ModelConfig(Section):
    """One entry of `models`. Unknown keys go to the class as they are.

    Attributes:
        name: How sessions and `/model` call it.
        use: The LangChain chat model class, `module:Class`.
        model: The provider's name of the model.
        when_thinking_enabled: Keys merged into the class's arguments while the session thinks.
        when_thinking_disabled: The same while it does not; None = derived from the enabled form.
        thinking: Short form of `when_thinking_enabled: {thinking: ...}`.
    """

    passes_extra_keys: ClassVar[bool] = True

    name: str = Field(min_length=1)
    display_name: str | None = None
    description: str | None = None
    use: str = Field(min_length=1)
    model: str = Field(min_length=1)
    supports_thinking: bool = False
    supports_vision: bool = False
    supports_reasoning_effort: bool = False
    when_thinking_enabled: dict[str, Any] = Field(default_factory=dict)
    when_thinking_disabled: dict[str, Any] | None = None
    thinking: dict[str, Any] | None = None


DEMO_MODEL = {
    "name": DEMO_MODEL_NAME,
    "display_name": "Demo",
    "description": "The built-in demo: no model behind it. Set `models` in config.yaml to get a real one.",
    "use": DEMO_MODEL_CLASS,
    "model": DEMO_MODEL_NAME,
}


class ToolGroupConfig(Section):
    """One entry of `tool_groups`: a name under which custom agents may be given tools."""

    name: str = Field(min_length=1)


class ToolConfig(Section):
    """One entry of `tools`. `use` is `module:attribute`, a LangChain tool; unknown keys are for that tool."""

    passes_extra_keys: ClassVar[bool] = True

    name: str = Field(min_length=1)
    group: str = Field(min_length=1)
    use: str = Field(min_length=1)


class MountConfig(Section):
    """A folder of this machine that the agent sees. Both paths absolute."""

    host_path: str = Field(min_length=1)
    container_path: str = Field(min_length=1)
    read_only: bool = True


class SandboxConfig(Section):
    """Where the agent's files are and its commands run.

    Attributes:
        use: `auto`, `local`, or `module:Class`.
        allow_host_bash: Whether `bash` may run without confinement on this machine.
        mounts: Further folders that the agent sees.
        environment: Variables of its commands.
        ls_output_max_chars: Longest answer of ls, glob and grep; 0 = no limit.
        read_file_output_max_chars: Longest answer of read_file; 0 = no limit.
        write_file_max_bytes: Largest content of one write_file without append; 0 = no limit.
    """

    passes_extra_keys: ClassVar[bool] = True

    use: str = "auto"
    allow_host_bash: bool = False
    mounts: list[MountConfig] = Field(default_factory=list)
    environment: dict[str, str] = Field(default_factory=dict)
    ls_output_max_chars: int = Field(default=20_000, ge=0)
    read_file_output_max_chars: int = Field(default=50_000, ge=0)
    write_file_max_bytes: int = Field(default=80_000, ge=0)


class SkillsConfig(Section):
    """Where skills lie on this machine, and where the agent sees them."""

    path: str = "skills"
    container_path: str = Field(default="/mnt/skills", pattern=r"^/[^/].*$")


class TitleConfig(Section):
    """How threads get their names.

    Attributes:
        max_words: What a model is asked for.
        max_chars: Longest title, ellipsis included.
        model_name: An entry of `models` that writes titles; None = the first words of the user, no model is called.
    """

    enabled: bool = True
    max_words: int = Field(default=6, ge=1, le=20)
    max_chars: int = Field(default=60, ge=10, le=200)
    model_name: str | None = None


class SummarizationConfig(Section):
    """Whether long threads are summarised."""

    enabled: bool = False


class SubagentsConfig(Section):
    """How work is delegated."""

    enabled: bool = True
    max_concurrent: int = Field(default=3, ge=1, le=4)
    timeout_seconds: float = Field(default=900.0, gt=0)


class MemoryConfig(Section):
    """Whether the agent remembers, and whether what it remembers goes into its prompt."""

    enabled: bool = True
    injection_enabled: bool = True


class GuardrailsConfig(Section):
    """Whether tool calls are authorised before they run."""

    enabled: bool = False


class UploadsConfig(Section):
    """What happens to files that users send."""

    auto_convert_documents: bool = True


class AgentConfig(Section):
    """The agent's part of config.yaml: flat sections at its top level."""

    models: list[ModelConfig] = Field(default_factory=list)
    tool_groups: list[ToolGroupConfig] = Field(default_factory=list)
    tools: list[ToolConfig] = Field(default_factory=list)
    sandbox: SandboxConfig = Field(default_factory=SandboxConfig)
    skills: SkillsConfig = Field(default_factory=SkillsConfig)
    title: TitleConfig = Field(default_factory=TitleConfig)
    summarization: SummarizationConfig = Field(default_factory=SummarizationConfig)
    subagents: SubagentsConfig = Field(default_factory=SubagentsConfig)
    memory: MemoryConfig = Field(default_factory=MemoryConfig)
    guardrails: GuardrailsConfig = Field(default_factory=GuardrailsConfig)
    uploads: UploadsConfig = Field(default_factory=UploadsConfig)

    @model_validator(mode="after")
    def _names_make_sense(self) -> "AgentConfig":
        names = [model.name for model in self.models]
        twice = sorted({name for name in names if names.count(name) > 1})
        if twice:
            raise ValueError(f"models: the name {twice[0]!r} is given twice")
        wanted = self.title.model_name
        if wanted is not None and self.model_named(wanted) is None:
            raise ValueError(f"title.model_name: there is no model named {wanted!r}")
        return self

    @property
    def chat_models(self) -> tuple[ModelConfig, ...]:
        """The configured models, the default first; the demo model when none is configured. Never empty."""
        return tuple(self.models) or (ModelConfig.model_validate(DEMO_MODEL),)

    def model_named(self, name: str) -> ModelConfig | None:
        """Return the entry of `chat_models` with this name, or None."""
        return next((model for model in self.chat_models if model.name == name), None)
