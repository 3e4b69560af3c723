"""ClientApi: base class of the client's groups of methods."""

from typing import Any

from agent.services import AgentServices

JsonObject = dict[str, Any]
"""An answer, in the form that the HTTP API gives it."""


class ClientApi:
    """A part of a client.

    Args:
        systems: The open parts of the agent.
    """

    def __init__(self, systems: AgentServices) -> None:
        self._systems = systems
