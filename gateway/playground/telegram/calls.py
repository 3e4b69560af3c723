"""A received call of the Bot API."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from gateway.playground.telegram.chats import TelegramUpload, Wire


@dataclass(slots=True, kw_only=True)
class TelegramCall:
    """A call's arguments, with typed access."""

    arguments: Mapping[str, Any]
    files: Mapping[str, TelegramUpload] = field(default_factory=dict)

    def text(self, name: str) -> str:
        return str(self.arguments.get(name, ""))

    def number(self, name: str) -> int | None:
        try:
            return int(self.arguments[name])
        except (KeyError, ValueError):
            return None

    def data(self, name: str) -> Wire:
        """Return a JSON argument, or None."""
        value = self.arguments.get(name)
        return json.loads(value) if isinstance(value, str) else value
