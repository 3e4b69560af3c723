"""Describes errors of MCP servers without addresses, secrets or paths. Pure."""

from collections.abc import Iterator, Mapping

import anyio
import httpx

from agent.errors import AgentError
from agent.redaction import redact_error

MAX_MESSAGE_CHARS = 500
ENDED = "it ended before it responded"

_SDK: Mapping[str, str] = {
    "Connection closed": ENDED,
    "Session terminated": "there is no MCP server at its address (404)",
}
"""Messages of the SDK itself."""

_SENTENCES: tuple[tuple[type[BaseException], str], ...] = (
    (FileNotFoundError, "its command is not installed"),
    (PermissionError, "its command is not executable"),
    (TimeoutError, "it did not respond in time"),
    (httpx.TimeoutException, "it did not respond in time"),
    (httpx.ConnectError, "it cannot be reached"),
    (httpx.InvalidURL, "its address is not valid"),
    (httpx.UnsupportedProtocol, "its address is not valid"),
    (httpx.HTTPError, "the connection failed"),
    (anyio.BrokenResourceError, ENDED),
    (anyio.ClosedResourceError, ENDED),
    (BrokenPipeError, ENDED),
    (ConnectionError, "the connection failed"),
)


def describe_error(error: BaseException) -> str:
    """Describe an error. For a group, describe its first error that has a description.

    >>> describe_error(ExceptionGroup("", [ValueError("/etc/x"), FileNotFoundError("/usr/bin/x")]))
    'its command is not installed'
    """
    leaves = list(_leaves(error))
    found = next((text for leaf in leaves if (text := _sentence(leaf)) is not None), None)
    return found or f"unexpected error ({type(leaves[0] if leaves else error).__name__})"


def is_refusal(error: BaseException) -> bool:
    """Return whether a server's HTTP status says that it refused a request without processing it."""
    return any(
        isinstance(leaf, httpx.HTTPStatusError) and leaf.response.is_client_error
        for leaf in _leaves(error)
    )


def _sentence(error: BaseException) -> str | None:
    if isinstance(error, AgentError):
        return error.user_message
    if isinstance(error, httpx.HTTPStatusError):
        return f"it responded with HTTP {error.response.status_code}"
    # The SDK's error has the server's own message. Match the class by name to avoid importing the SDK.
    if type(error).__name__ == "McpError":
        message = " ".join(str(error).split())
        return _SDK.get(message) or f"it reported: {redact_error(message)[:MAX_MESSAGE_CHARS]}"
    return next((text for kind, text in _SENTENCES if isinstance(error, kind)), None)


def _leaves(error: BaseException) -> Iterator[BaseException]:
    if isinstance(error, BaseExceptionGroup):
        for inner in error.exceptions:
            yield from _leaves(inner)
    else:
        yield error
