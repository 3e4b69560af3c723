"""What can go wrong inside the agent; every error carries the decision it asks for.

AgentError
├── ModelNotFound      no entry of `models` has this name
├── ModelUnusable      the entry exists, but its class cannot be built or asked like this
├── ExtensionsError    the extensions file cannot be changed
│   ├── ExtensionsInvalid      it holds something else than the JSON object that it should
│   └── ExtensionsWriteFailed  the disk refused
├── ObjectNotImportable       a `module:attribute` of the configuration names nothing usable
├── SkillError         something about skills cannot be done
│   ├── SkillNotFound     there is no skill of this name, or no such entry in its history
│   ├── SkillExists       there is one already
│   ├── SkillInvalid      a SKILL.md or an archive breaks a rule
│   ├── SkillBlocked      the scan did not allow it
│   └── SkillWriteFailed   the disk refused
├── CustomAgentError   something about custom agents cannot be done
│   ├── AgentNotFound     there is no agent of this name
│   ├── AgentExists       there is one already
│   ├── AgentInvalid      its name or its files break a rule
│   └── AgentWriteFailed   the disk refused
├── GuardrailUnusable  the `guardrails` section names nobody who could decide
├── McpError           something with an MCP server
│   ├── McpServerUnusable   its entry cannot be used, or it cannot be reached
│   ├── McpCallFailed       a call of one of its tools came to nothing
│   ├── McpServerNotFound   there is none of this name
│   └── McpSettingsInvalid  a change of the entries that is not taken
├── MemoryServiceError        something about what is remembered cannot be done
│   ├── MemoryInvalid     a scope, a fact or a document that breaks a rule
│   ├── FactNotFound      there is no fact with this id
│   └── MemoryUnavailable  the disk refused
├── TracingMisconfigured  traces were asked for, and cannot be kept
├── ClientClosed       a client was used before it was opened, or after it was closed
├── ThreadIdMissing    a run without a thread id
├── ThreadIdInvalid    a thread id that must not become a folder's name
├── WebError           a page or a web service that cannot be used now
│   └── UrlNotAllowed     an address that may not be reached
│       └── UnknownHost  one whose name cannot be resolved
├── AcpAgentError  an agent of another maker that cannot be asked, or did not answer
├── UploadError        files that were sent could not be taken in
│   ├── UploadTooLarge    too many, or too large; nothing of the request is kept
│   ├── UploadNotAllowed     the name, or what stands in its place, cannot be written to
│   ├── UploadNotFound    there is no uploaded file of this name
│   └── ConversionFailed  a document has no text version; the text says why
├── ArchiveMemberTooLarge     a part of an archive is too large to be shown
├── SandboxUnusable    the sandbox that is configured does not work on this machine
└── SandboxError       something that the sandbox cannot do
    ├── CommandsDisabled    commands are not run here
    ├── PathNotAllowed    the path is not one that the agent may use like this
    └── SearchTimeout  a search was stopped at its deadline
"""

from typing_extensions import override


class AgentError(Exception):
    """Something inside the agent failed.

    Attributes:
        retryable: Whether the same call may succeed later without anybody changing anything.
        retry_after_s: After how many seconds, when that is known.
        user_message: One sentence for people and for the model: no secret, no host path, no stack.
    """

    retryable = False
    retry_after_s: float | None = None

    @property
    def user_message(self) -> str:
        """Return what people and the model may read."""
        return str(self)

    @override
    def __str__(self) -> str:
        return super().__str__() or (self.__doc__ or "").strip()


class ModelNotFound(AgentError):
    """There is no model of this name in the configuration."""


class ModelUnusable(AgentError):
    """The model's entry in the configuration cannot be used."""


class ExtensionsError(AgentError):
    """The extensions file cannot be changed."""


class ExtensionsInvalid(ExtensionsError):
    """The extensions file is not the JSON object that it should be; nothing was changed."""


class ExtensionsWriteFailed(ExtensionsError):
    """The extensions file could not be written; nothing was changed."""

    retryable = True


class ObjectNotImportable(AgentError):
    """A `module:attribute` of the configuration names nothing usable."""


class GuardrailUnusable(AgentError):
    """The guardrail that is configured cannot be used."""


class McpError(AgentError):
    """Something is wrong with an MCP server."""


class McpServerUnusable(McpError):
    """The MCP server cannot be used."""


class McpCallFailed(McpError):
    """The call of the MCP server's tool failed."""


class McpServerNotFound(McpError):
    """There is no MCP server of this name."""


class McpSettingsInvalid(McpError):
    """This change of the MCP servers is not allowed."""


class MemoryServiceError(AgentError):
    """Something about what is remembered cannot be done."""


class MemoryInvalid(MemoryServiceError):
    """This cannot be remembered like this."""


class FactNotFound(MemoryServiceError):
    """There is no fact with this id."""


class MemoryUnavailable(MemoryServiceError):
    """What is remembered cannot be read or written at the moment; see the log."""

    retryable = True


class TracingMisconfigured(AgentError):
    """Traces were asked for, and cannot be kept."""


class ClientClosed(AgentError):
    """The client is not open: use it inside `with ParleyClient() as client:`."""


class ThreadIdMissing(AgentError):
    """Thread ID is required in runtime context or config.configurable."""


class ThreadIdInvalid(AgentError):
    """A thread id has 1 to 64 letters, digits, `_` or `-`."""


class WebError(AgentError):
    """The web page or service cannot be used now."""


class UrlNotAllowed(WebError):
    """This address cannot be reached from here."""


class UnknownHost(UrlNotAllowed):
    """The host name cannot be resolved."""


class AcpAgentError(AgentError):
    """The other agent cannot be asked."""


class ArchiveMemberTooLarge(AgentError):
    """This part of the archive is too large to be shown."""


class SandboxUnusable(AgentError):
    """The sandbox that is configured does not work on this machine."""


class SandboxError(AgentError):
    """The sandbox cannot do this."""


class CommandsDisabled(SandboxError):
    """Commands cannot be run here: set sandbox.use to bubblewrap or docker, or sandbox.allow_host_bash to true."""


class PathNotAllowed(SandboxError):
    """The path is not one that may be used like this."""


class SearchTimeout(SandboxError):
    """The search took too long and was stopped; narrow the path or simplify the pattern."""


class SkillError(AgentError):
    """Something about skills cannot be done."""


class SkillNotFound(SkillError):
    """There is no skill of this name."""


class SkillExists(SkillError):
    """There is a skill of this name already."""


class SkillInvalid(SkillError):
    """The skill breaks a rule."""


class SkillBlocked(SkillError):
    """The security scan did not allow the skill."""


class SkillWriteFailed(SkillError):
    """The skills' folder cannot be written; nothing was changed."""

    retryable = True


class CustomAgentError(AgentError):
    """Something about custom agents cannot be done."""


class AgentNotFound(CustomAgentError):
    """There is no agent of this name."""


class AgentExists(CustomAgentError):
    """There is an agent of this name already."""


class AgentInvalid(CustomAgentError):
    """The agent breaks a rule."""


class AgentWriteFailed(CustomAgentError):
    """The agents' folder cannot be written; nothing was changed."""

    retryable = True


class UploadError(AgentError):
    """Files that were sent could not be taken in."""


class UploadTooLarge(UploadError):
    """Too many files were sent at once, or too large ones."""


class UploadNotAllowed(UploadError):
    """A file of this name cannot be written here."""


class UploadNotFound(UploadError):
    """There is no uploaded file of this name."""


class ConversionFailed(UploadError):
    """The document could not be turned into text."""
