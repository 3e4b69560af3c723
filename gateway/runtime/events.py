"""RunEvent: one event of a run."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class RunEvent:
    """One numbered event of a run, encoded once for all readers.

    Attributes:
        id: 1, 2, 3 ... within the run, without gaps.
        name: The event's name on the wire: `values`, `messages`, `updates|child:<task id>` ...
        data: JSON.
    """

    id: int
    name: str
    data: bytes

    @property
    def mode(self) -> str:
        """The event's stream mode, without namespace and kind.

        >>> RunEvent(1, "messages/partial|child:1", b"[]").mode
        'messages'
        """
        return self.name.partition("|")[0].partition("/")[0]


CONTROL_EVENTS = frozenset({"metadata", "error", "end", "gap"})
"""Events that every reader gets, whatever modes it requested."""
