"""Edited and deleted messages: of the many changes Slack reports, those that a person made. Pure.

The forms: docs.slack.dev/reference/events/message, subtypes message_changed and message_deleted.
"""

from collections.abc import Mapping
from typing import Any, Final, TypeAlias

from bots.slack.payload import as_list, as_mapping, as_str

MessageChange: TypeAlias = tuple[Mapping[str, Any], bool]
"""The message as it now is, with the channel it stands in; and whether it is gone."""

_PASSED_ON: Final = ("channel", "channel_type")
_TOMBSTONE: Final = "tombstone"
"""What is left of a deleted message that has answers: Slack calls that a change."""


def parse_edit(event: Mapping[str, Any]) -> MessageChange | None:
    """Return a message whose text or files changed; None for previews of links, counters, pins and the like."""
    now, before = as_mapping(event.get("message")), as_mapping(event.get("previous_message"))
    if as_str(now.get("subtype")) == _TOMBSTONE:
        return _within(event, before or now), True
    if before and _content(now) == _content(before):
        return None
    if not before and not as_mapping(now.get("edited")):
        return None
    return _within(event, now), False


def parse_deletion(event: Mapping[str, Any]) -> MessageChange:
    """Return a message that is gone, as it was."""
    was = dict(as_mapping(event.get("previous_message")))
    was["ts"] = as_str(event.get("deleted_ts")) or was.get("ts")
    return _within(event, was), True


def _within(event: Mapping[str, Any], message: Mapping[str, Any]) -> Mapping[str, Any]:
    return {**message, **{name: event[name] for name in _PASSED_ON if name in event}}


def _content(message: Mapping[str, Any]) -> tuple[str, tuple[str, ...]]:
    files = tuple(as_str(as_mapping(file).get("id")) for file in as_list(message.get("files")))
    return as_str(message.get("text")), files
