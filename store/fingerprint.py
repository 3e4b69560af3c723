"""What messages looked like once, to tell cheaply and surely whether they still do.

Whoever keeps the bytes of a message must notice that somebody changed the message in place. Comparing its
fields as JSON does, and takes a fiftieth of what saving it again takes (0.1 ms for 800 short messages).
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
"""Refuse whatever is not plain JSON: of other values the JSON might not show a change."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MessageFingerprint:
    """The classes and fields of some messages, in their order."""

    classes: tuple[type, ...]
    fields: bytes

    @classmethod
    def from_messages(cls, messages: Sequence[object]) -> Self | None:
        """Return the imprint; None when something is no message, or holds what JSON cannot say."""
        if not all(isinstance(message, BaseMessage) for message in messages):
            return None
        try:
            return cls(classes=tuple(map(type, messages)), fields=_fields(messages))
        except TypeError:
            return None

    def matches(self, messages: Sequence[object]) -> bool:
        """Return whether `messages` have these classes and fields."""
        try:
            return tuple(map(type, messages)) == self.classes and _fields(messages) == self.fields
        except TypeError:
            return False


def _fields(messages: Sequence[Any]) -> bytes:
    """Return the fields as JSON. Raises TypeError for what JSON cannot say."""
    return orjson.dumps(
        [(message.__dict__, message.__pydantic_extra__) for message in messages], option=_STRICT
    )
