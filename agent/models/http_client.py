"""The HTTP client that models share: created on first use, closed with the agent."""

from typing import Protocol, cast

import anyio

from agent.importer import import_class

CLIENT_CLASS = "openai:DefaultAsyncHttpxClient"
"""The client of the OpenAI package, with its deadlines (connect 5 s, read 600 s) and limits.

It is the one that the package's classes are made for; httpx's own was seen to leave requests open when their
task was cancelled by a scope.
"""

CLOSE_S = 2.0


class ClosableClient(Protocol):
    """What is asked of the client here; the model's class knows the rest."""

    async def aclose(self) -> None:
        """Close all connections."""
        ...


class ModelHttpClient:
    """Owns the HTTP client that model classes are given where they take one.

    Left to themselves they keep clients in process-wide caches that nobody closes.
    """

    def __init__(self) -> None:
        self._client: ClosableClient | None = None

    def client(self) -> ClosableClient:
        """Return the one client. Blocking the first time, some 20 ms for the certificates.

        Raises:
            ObjectNotImportable: The OpenAI package is not installed.
        """
        if self._client is None:
            self._client = cast("ClosableClient", import_class(CLIENT_CLASS, object)())
        return self._client

    async def aclose(self) -> None:
        """Close all connections, within `CLOSE_S` seconds."""
        client, self._client = self._client, None
        if client is not None:
            with anyio.move_on_after(CLOSE_S, shield=True):
                await client.aclose()
