"""Resolves a person's time zone: chosen, reported by the platform, or the host's."""

import os
from functools import lru_cache
from pathlib import Path

from bus.config import BusConfig
from bus.messages import InboundMessage
from bus.recurrence import InvalidTimes, find_zone
from bus.settings.language import person_key
from bus.settings.resolver import Setting, SettingsResolver

FALLBACK_ZONE = "UTC"

_LOCALTIME, _NAME_FILE = Path("/etc/localtime"), Path("/etc/timezone")


class TimezoneResolver:
    """Resolves time zones.

    Args:
        config: The zone for people with an unknown time zone.
        settings: The choices made with /timezone, or by the agent for the person.
    """

    def __init__(self, config: BusConfig, settings: SettingsResolver) -> None:
        self._config = config
        self._settings = settings

    def known(self, message: InboundMessage) -> str:
        """Return the zone that the sender chose or that the platform reports; "" = unknown."""
        found = self._known(message)
        return "" if found is None else str(found.value)

    def resolve(self, message: InboundMessage) -> str:
        """Return the sender's zone, or else the configured one, or the host's. May read files."""
        return str(self.explain(message).value)

    def explain(self, message: InboundMessage) -> Setting:
        """Return the sender's zone with its source. May read files."""
        if (found := self._known(message)) is not None:
            return found
        if self._config.timezone:
            key = "channels.timezone"
            return Setting(value=self._config.timezone, source="service", key=key)
        return Setting(value=host_zone(), source="host")

    def _known(self, message: InboundMessage) -> Setting | None:
        key = person_key(message.key, message.sender.user_id)
        if chosen := self._settings.get(key).timezone:
            return Setting(value=chosen, source="command", place=key)
        return Setting(value=message.timezone, source="platform") if message.timezone else None

    async def choose(self, message: InboundMessage, name: str) -> None:
        """Store the sender's zone. `name` must be valid. Raises StoreError."""
        await self._settings.update(
            person_key(message.key, message.sender.user_id), timezone=name or None
        )


@lru_cache(maxsize=1)
def host_zone() -> str:
    """Return the name of the host's time zone; UTC if it has none. Reads files the first time."""
    link = os.path.realpath(_LOCALTIME).partition("zoneinfo/")[2]
    return next((name for name in (link, _read_name()) if _is_zone(name)), FALLBACK_ZONE)


def _read_name() -> str:
    try:
        return _NAME_FILE.read_text().strip()
    except OSError:
        return ""


def _is_zone(name: str) -> bool:
    try:
        return bool(name) and bool(find_zone(name))
    except InvalidTimes:
        return False
