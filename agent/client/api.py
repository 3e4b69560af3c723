"""ClientApi: base class of the client's groups of methods."""

from typing import Any

from agent.services import AgentServices

JsonObject = dict[str, Any]
"""A result in the form of the HTTP API's response."""


class ClientApi:
    """A group of client methods.

    Args:
        services: The agent's services.
    """

    def __init__(self, services: AgentServices) -> None:
        self._services = services
