"""What can go wrong inside the agent; every error carries the decision it asks for.

AgentError
├── ModelNotFound      no entry of `models` has this name
├── ModelUnusable      the entry exists, but its class cannot be built or asked like this
├── ExtensionsError    the extensions file cannot be changed
│   ├── ExtensionsBroken      it holds something else than the JSON object that it should
│   └── ExtensionsNotWritten  the disk refused
├── Unresolvable       a `module:attribute` of the configuration names nothing usable
├── ThreadIdMissing    a run without a thread id
├── ThreadIdInvalid    a thread id that must not become a folder's name
└── SandboxError       a file operation that cannot be done
    ├── PathRefused    the path is not one that the agent may use like this
    └── SearchTooSlow  a search was stopped at its deadline
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


class ExtensionsBroken(ExtensionsError):
    """The extensions file is not the JSON object that it should be; nothing was changed."""


class ExtensionsNotWritten(ExtensionsError):
    """The extensions file could not be written; nothing was changed."""

    retryable = True


class Unresolvable(AgentError):
    """A `module:attribute` of the configuration names nothing usable."""


class ThreadIdMissing(AgentError):
    """Thread ID is required in runtime context or config.configurable."""


class ThreadIdInvalid(AgentError):
    """A thread id has 1 to 64 letters, digits, `_` or `-`."""


class SandboxError(AgentError):
    """The file operation cannot be done."""


class PathRefused(SandboxError):
    """The path is not one that may be used like this."""


class SearchTooSlow(SandboxError):
    """The search took too long and was stopped; narrow the path or simplify the pattern."""
