"""The agent for programs of one's own: no server, no HTTP. See docs/howto/embed.md."""

from agent.client.blocking import ParleyClient
from agent.client.events import StreamEvent
from agent.client.opening import AsyncParleyClient, open_client

__all__ = ["AsyncParleyClient", "ParleyClient", "StreamEvent", "open_client"]
