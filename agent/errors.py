"""The agent's errors. Each says whether to retry, and has a message for users and the model.

AgentError
├── ModelNotFound      no entry of `models` has this name
├── ModelUnusable      the entry's class cannot be built or called with these options
├── ExtensionsError    the extensions file cannot be changed
│   ├── ExtensionsInvalid      it is not a JSON object
│   └── ExtensionsWriteFailed  a disk error
├── ObjectNotImportable  a `module:attribute` of the configuration cannot be imported
├── SkillError         an operation on skills failed
│   ├── SkillNotFound     no skill has this name, or its history has no such entry
│   ├── SkillExists       a skill has this name already
│   ├── SkillInvalid      a SKILL.md or archive is invalid
│   ├── SkillBlocked      the security scan rejected it
│   └── SkillWriteFailed  a disk error
├── CustomAgentError   an operation on custom agents failed
│   ├── AgentNotFound     no agent has this name
│   ├── AgentExists       an agent has this name already
│   ├── AgentInvalid      its name or files are invalid
│   └── AgentWriteFailed  a disk error
├── GuardrailUnusable  the `guardrails` section names no usable provider
├── McpError           an operation on MCP servers failed
│   ├── McpServerUnusable   its entry is invalid, or it cannot be reached
│   ├── McpCallFailed       a tool call failed
│   ├── McpServerNotFound   no server has this name
│   └── McpSettingsInvalid  a change of the settings is not allowed
├── MemoryServiceError  an operation on memory failed
│   ├── MemoryInvalid     a scope, fact or document is invalid
│   ├── FactNotFound      no fact has this id
│   └── MemoryUnavailable  a disk error
├── TracingMisconfigured  tracing is enabled, but cannot be used
├── ClientClosed       the client is not open
├── ThreadIdMissing    a run has no thread id
├── ThreadIdInvalid    a thread id cannot be used as a folder name
├── WebError           a web page or service cannot be used now
│   └── UrlNotAllowed     a URL is not allowed
│       └── UnknownHost      its host name cannot be resolved
├── AcpAgentError      an external agent cannot be called, or does not answer
├── UploadError        uploaded files could not be accepted
│   ├── UploadTooLarge    too many or too large; nothing of the request is kept
│   ├── UploadNotAllowed  the file name is invalid, or its path cannot be written
│   ├── UploadNotFound    no uploaded file has this name
│   └── ConversionFailed  a document could not be converted to text
├── ArchiveMemberTooLarge  a file in an archive is too large to show
├── SandboxUnusable    the configured sandbox does not work on this machine
└── SandboxError       an operation in the sandbox failed
    ├── SandboxLost       it no longer responds
    ├── CommandsDisabled  commands are disabled
    ├── PathNotAllowed    the agent may not use this path like this
    └── SearchTimeout     a search took too long
"""

from typing_extensions import override


class AgentError(Exception):
    """Something inside the agent failed.

    Attributes:
        retryable: Whether the same call may succeed later without any change.
        retry_after_s: Delay before a retry, seconds; None = unknown.
        user_message: One sentence for users and the model: no secrets, host paths or tracebacks.
    """

    retryable = False
    retry_after_s: float | None = None

    @property
    def user_message(self) -> str:
        """Return the message for people and the model."""
        return str(self)

    @override
    def __str__(self) -> str:
        return super().__str__() or (self.__doc__ or "").strip()


class ModelNotFound(AgentError):
    """There is no model with this name in the configuration."""


class ModelUnusable(AgentError):
    """The model's configuration entry cannot be used."""


class ExtensionsError(AgentError):
    """The extensions file cannot be changed."""


class ExtensionsInvalid(ExtensionsError):
    """The extensions file is not a JSON object. Nothing was changed."""


class ExtensionsWriteFailed(ExtensionsError):
    """The extensions file could not be written. Nothing was changed."""

    retryable = True


class ObjectNotImportable(AgentError):
    """A `module:attribute` in the configuration cannot be imported."""


class GuardrailUnusable(AgentError):
    """The configured guardrail cannot be used."""


class McpError(AgentError):
    """The MCP operation failed."""


class McpServerUnusable(McpError):
    """The MCP server cannot be used."""


class McpCallFailed(McpError):
    """The MCP tool call failed."""


class McpServerNotFound(McpError):
    """There is no MCP server with this name."""


class McpSettingsInvalid(McpError):
    """This change of the MCP settings is not allowed."""


class MemoryServiceError(AgentError):
    """The memory operation failed."""


class MemoryInvalid(MemoryServiceError):
    """The memory document, fact or scope is invalid."""


class FactNotFound(MemoryServiceError):
    """There is no fact with this id."""


class MemoryUnavailable(MemoryServiceError):
    """Memory is temporarily unavailable; see the log."""

    retryable = True


class TracingMisconfigured(AgentError):
    """Tracing is enabled, but cannot be used."""


class ClientClosed(AgentError):
    """The client is not open: use it inside `with ParleyClient() as client:`."""


class ThreadIdMissing(AgentError):
    """Thread ID is required in runtime context or config.configurable."""


class ThreadIdInvalid(AgentError):
    """A thread id must have 1 to 64 letters, digits, `_` or `-`."""


class WebError(AgentError):
    """The web page or service is currently unavailable."""


class UrlNotAllowed(WebError):
    """This URL is not allowed."""


class UnknownHost(UrlNotAllowed):
    """The host name cannot be resolved."""


class AcpAgentError(AgentError):
    """The external agent cannot be called."""


class ArchiveMemberTooLarge(AgentError):
    """This file in the archive is too large to show."""


class SandboxUnusable(AgentError):
    """The configured sandbox does not work on this machine."""


class SandboxError(AgentError):
    """The sandbox cannot do this."""


class SandboxLost(SandboxError):
    """The sandbox no longer responds. Files from finished commands are kept: try again."""


class CommandsDisabled(SandboxError):
    """Commands are disabled: set sandbox.use to bubblewrap or docker, or sandbox.allow_host_bash to true."""


class PathNotAllowed(SandboxError):
    """The path is not allowed."""


class SearchTimeout(SandboxError):
    """The search took too long: narrow the path or simplify the pattern."""


class SkillError(AgentError):
    """The skill operation failed."""


class SkillNotFound(SkillError):
    """There is no skill with this name."""


class SkillExists(SkillError):
    """A skill with this name already exists."""


class SkillInvalid(SkillError):
    """The skill is invalid."""


class SkillBlocked(SkillError):
    """The security scan rejected the skill."""


class SkillWriteFailed(SkillError):
    """The skills folder cannot be written. Nothing was changed."""

    retryable = True


class CustomAgentError(AgentError):
    """The custom agent operation failed."""


class AgentNotFound(CustomAgentError):
    """There is no agent with this name."""


class AgentExists(CustomAgentError):
    """An agent with this name already exists."""


class AgentInvalid(CustomAgentError):
    """The agent is invalid."""


class AgentWriteFailed(CustomAgentError):
    """The agents folder cannot be written. Nothing was changed."""

    retryable = True


class UploadError(AgentError):
    """The uploaded files could not be accepted."""


class UploadTooLarge(UploadError):
    """Too many files were uploaded at once, or the files are too large."""


class UploadNotAllowed(UploadError):
    """A file with this name cannot be written here."""


class UploadNotFound(UploadError):
    """There is no uploaded file with this name."""


class ConversionFailed(UploadError):
    """The document could not be converted to text."""
