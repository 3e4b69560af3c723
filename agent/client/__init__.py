"""The agent as a Python library: no server, no HTTP. See docs/howto/embed.md."""

from agent.client.async_client import AsyncParleyClient, open_client
from agent.client.events import StreamEvent
from agent.client.sync_client import ParleyClient

__all__ = ["AsyncParleyClient", "ParleyClient", "StreamEvent", "open_client"]
