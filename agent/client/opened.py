"""What every part of a client is made of: the open systems."""

from typing import Any

from agent.systems import Systems

View = dict[str, Any]
"""An answer, in the form that the HTTP API gives it."""


class Opened:
    """A part of a client.

    Args:
        systems: The open parts of the agent.
    """

    def __init__(self, systems: Systems) -> None:
        self._systems = systems
