"""The HTTP client that models share: created on first use, closed with the agent."""

import threading
from typing import Protocol, cast

import anyio

from agent.importer import import_class

CLIENT_CLASS = "agent.models.openai_client:OpenAIHttpClient"
CLOSE_S = 2.0


class ClosableClient(Protocol):
    """The only method of the HTTP client that this module calls."""

    async def aclose(self) -> None:
        """Close all connections."""
        ...


class ModelHttpClient:
    """Owns the HTTP client for all model classes that accept one.

    Without it, these classes cache clients for the whole process and never close them.
    """

    def __init__(self) -> None:
        self._client: ClosableClient | None = None
        self._lock = threading.Lock()  # worker threads may build models concurrently

    def client(self) -> ClosableClient:
        """Return the client. The first call blocks for about 20 ms to load certificates.

        Raises:
            ObjectNotImportable: The OpenAI package is not installed.
        """
        with self._lock:
            if self._client is None:
                self._client = cast("ClosableClient", import_class(CLIENT_CLASS, object)())
            return self._client

    async def aclose(self) -> None:
        """Close all connections, within `CLOSE_S` seconds."""
        client, self._client = self._client, None
        if client is not None:
            with anyio.move_on_after(CLOSE_S, shield=True):
                await client.aclose()
