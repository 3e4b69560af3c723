"""The IDs of a message's versions in its thread, one for each edit, and which versions the thread contains. Pure."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from bus.messages import InboundMessage
from bus.runs.stream import is_steering, messages_in


def message_ids(inbound: InboundMessage) -> tuple[str, ...]:
    """Return the IDs of a message's versions in the thread, oldest first. The last one is the current version."""
    first = f"{inbound.key.channel}:{inbound.event_id}"
    return (first, *(f"{first}#{edit}" for edit in range(1, inbound.edit_count + 1)))


@dataclass(frozen=True, slots=True)
class MessageTrace:
    """The versions of a message that a thread contains; "" = none.

    Attributes:
        own: ID of the newest version with its own run.
        injected: ID of the newest version that was injected into a run.
    """

    own: str = ""
    injected: str = ""

    @property
    def was_injected_only(self) -> bool:
        """Whether another message's run took it, and so answers it."""
        return bool(self.injected) and not self.own


def trace_message(values: Mapping[str, Any], ids: Sequence[str]) -> MessageTrace:
    """Return which versions of a message with these IDs a thread's state contains.

    >>> held = [{"id": "m"}, {"id": "m#1", "additional_kwargs": {"steering": True}}]
    >>> trace_message({"messages": held}, ("m", "m#1", "m#2"))
    MessageTrace(own='m', injected='m#1')
    """
    held = {str(message.get("id")): message for message in messages_in(values)}
    there = [one for one in ids if one in held]
    own = [one for one in there if not is_steering(held[one])]
    injected = [one for one in there if is_steering(held[one])]
    return MessageTrace(own[-1] if own else "", injected[-1] if injected else "")
