"""What went wrong with an MCP server, as a sentence without addresses, secrets and paths. Pure."""

from collections.abc import Iterator, Mapping
from typing import Final

import anyio
import httpx

from agent.errors import AgentError

SAID_CHARS: Final = 500
ENDED: Final = "it ended before it answered"

_SDK: Final[Mapping[str, str]] = {
    "Connection closed": ENDED,
    "Session terminated": "there is no MCP server at its address (404)",
}
"""What the SDK itself says, put plainly."""

_SENTENCES: Final[tuple[tuple[type[BaseException], str], ...]] = (
    (FileNotFoundError, "its command is not installed"),
    (PermissionError, "its command may not be run"),
    (TimeoutError, "it did not answer in time"),
    (httpx.TimeoutException, "it did not answer in time"),
    (httpx.ConnectError, "it cannot be reached"),
    (httpx.InvalidURL, "its address is not valid"),
    (httpx.UnsupportedProtocol, "its address is not valid"),
    (httpx.HTTPError, "the connection broke"),
    (anyio.BrokenResourceError, ENDED),
    (anyio.ClosedResourceError, ENDED),
    (BrokenPipeError, ENDED),
    (ConnectionError, "the connection broke"),
)


def describe_error(error: BaseException) -> str:
    """Return what happened. Of a group, the first of its errors that has a sentence here.

    >>> describe_error(ExceptionGroup("", [ValueError("/etc/x"), FileNotFoundError("/usr/bin/x")]))
    'its command is not installed'
    """
    leaves = list(_leaves(error))
    found = next((said for leaf in leaves if (said := _sentence(leaf)) is not None), None)
    return found or f"it failed ({type(leaves[0] if leaves else error).__name__})"


def _sentence(error: BaseException) -> str | None:
    if isinstance(error, AgentError):
        return error.user_message
    if isinstance(error, httpx.HTTPStatusError):
        return f"it answered {error.response.status_code}"
    # The SDK's own error, known by name so that nothing has to be imported: what the server itself said.
    if type(error).__name__ == "McpError":
        said = " ".join(str(error).split())
        return _SDK.get(said) or f"it said: {said[:SAID_CHARS]}"
    return next((said for kind, said in _SENTENCES if isinstance(error, kind)), None)


def _leaves(error: BaseException) -> Iterator[BaseException]:
    if isinstance(error, BaseExceptionGroup):
        for inner in error.exceptions:
            yield from _leaves(inner)
    else:
        yield error
