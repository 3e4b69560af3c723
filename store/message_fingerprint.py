"""Fingerprints of messages: detect whether a message changed in place since it was serialized.

Comparing the fields as JSON takes a fiftieth of the time of serializing again (0.1 ms for 800 short messages).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Self

import orjson
from langchain_core.messages import BaseMessage

_STRICT = (
    orjson.OPT_PASSTHROUGH_SUBCLASS
    | orjson.OPT_PASSTHROUGH_DATACLASS
    | orjson.OPT_PASSTHROUGH_DATETIME
)
"""Refuse everything except plain JSON: the JSON of other values might hide a change."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MessageFingerprint:
    """The classes and fields of some messages, in their order."""

    classes: tuple[type, ...]
    fields: bytes

    @classmethod
    def from_messages(cls, messages: Sequence[object]) -> Self | None:
        """Return the fingerprint; None if an item is not a message or JSON cannot represent it."""
        if not all(isinstance(message, BaseMessage) for message in messages):
            return None
        try:
            # Copy it, because orjson's result may take ten times its length in memory, and the fingerprint is kept.
            fields = bytes(memoryview(_fields(messages)))
            return cls(classes=tuple(map(type, messages)), fields=fields)
        except TypeError:
            return None

    def matches(self, messages: Sequence[object]) -> bool:
        """Return whether `messages` have these classes and fields."""
        try:
            return tuple(map(type, messages)) == self.classes and _fields(messages) == self.fields
        except TypeError:
            return False


def _fields(messages: Sequence[Any]) -> bytes:
    """Return the fields as JSON. Raises TypeError for values that JSON cannot represent."""
    return orjson.dumps(
        [(message.__dict__, message.__pydantic_extra__) for message in messages], option=_STRICT
    )
