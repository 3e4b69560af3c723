"""Event filters of the newer streaming protocol: channels, namespaces and depth."""

from dataclasses import dataclass
from typing import Any

from fastapi import HTTPException

from gateway.runtime.protocol import GAP_METHOD, ProtocolEvent

CHANNELS = (
    "values",
    "updates",
    "messages",
    "tools",
    "custom",
    "lifecycle",
    "input",
    "tasks",
    "checkpoints",
)
MAX_ENTRIES = 100
"""Maximum number of a filter's channels, and of its namespaces. Each event is compared with each of them."""

Json = dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class EventFilter:
    """Selects the events of one connection or subscription.

    Attributes:
        namespaces: Prefixes; an event must be below one of them.
        depth: Maximum number of levels below the prefix; None = unlimited.
    """

    channels: frozenset[str]
    namespaces: tuple[tuple[str, ...], ...] = ((),)
    depth: int | None = None

    def matches(self, event: ProtocolEvent) -> bool:
        """Return whether an event passes the filter. A gap always passes."""
        if event.method == GAP_METHOD:
            return True
        named = event.name is not None and f"custom:{event.name}" in self.channels
        if event.channel not in self.channels and not named:
            return False
        place = event.namespace
        return any(
            place[: len(prefix)] == prefix
            and (self.depth is None or len(place) - len(prefix) <= self.depth)
            for prefix in self.namespaces
        )


def parse_since(body: Json) -> int:
    """Return `since`, the number of the last event that the client has. Raises HTTPException (400)."""
    since = body.get("since") or 0
    if isinstance(since, bool) or not isinstance(since, int) or since < 0:
        raise HTTPException(400, "since must be a sequence number.")
    return since


def _check_length(name: str, entries: list[Any]) -> None:
    if len(entries) > MAX_ENTRIES:
        raise HTTPException(400, f"{name} can have at most {MAX_ENTRIES} entries")


def parse_event_filter(body: Json) -> EventFilter:
    """Return the filter of a request. Raises HTTPException (400)."""
    channels = body.get("channels")
    if not isinstance(channels, list) or not channels:
        raise HTTPException(400, "channels is required and must be a non-empty array")
    _check_length("channels", channels)
    unknown = [
        str(one) for one in channels if one not in CHANNELS and not str(one).startswith("custom:")
    ]
    if unknown:
        raise HTTPException(
            400,
            f"channels contains unsupported entries: {', '.join(unknown)[:200]}. "
            f"Allowed: {', '.join(CHANNELS)}, or any `custom:<name>`.",
        )
    namespaces = body.get("namespaces") or [[]]
    depth = body.get("depth")
    if not isinstance(namespaces, list) or not all(isinstance(one, list) for one in namespaces):
        raise HTTPException(400, "namespaces must be a list of lists")
    for entries in (namespaces, *namespaces):
        _check_length("namespaces", entries)
    if depth is not None and (not isinstance(depth, int) or depth < 0):
        raise HTTPException(400, "depth must be 0 or greater")
    return EventFilter(
        channels=frozenset(channels),
        namespaces=tuple(tuple(str(step) for step in one) for one in namespaces),
        depth=depth,
    )
