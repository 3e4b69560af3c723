"""Edited and deleted messages. Ignores changes that people do not notice. Pure.

The forms: docs.slack.dev/reference/events/message, subtypes message_changed and message_deleted.
"""

from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

from bots.slack.attachments import split_ref
from bots.slack.message_reader import read_message
from bots.slack.payload import SlackIdentity, as_mapping, as_str

MessageChange: TypeAlias = tuple[Mapping[str, Any], bool]
"""A message with its current content and its channel, and whether it was deleted."""

_PASSED_ON = ("channel", "channel_type")
_TOMBSTONE = "tombstone"
"""Subtype of a deleted message that has replies. Slack reports its deletion as a change."""


def parse_edit(event: Mapping[str, Any], me: SlackIdentity) -> MessageChange | None:
    """Return an edited message; None for link previews, counters, pins and other changes."""
    now, before = as_mapping(event.get("message")), as_mapping(event.get("previous_message"))
    if is_tombstone(now):
        return _within(event, before or now), True
    if before and _noticed(now, me) == _noticed(before, me):
        return None
    if not before and not as_mapping(now.get("edited")):
        return None
    return _within(event, now), False


def parse_deletion(event: Mapping[str, Any]) -> MessageChange:
    """Return a deleted message with its last content."""
    was = dict(as_mapping(event.get("previous_message")))
    was["ts"] = as_str(event.get("deleted_ts")) or was.get("ts")
    return _within(event, was), True


def _within(event: Mapping[str, Any], message: Mapping[str, Any]) -> Mapping[str, Any]:
    return {**message, **{name: event[name] for name in _PASSED_ON if name in event}}


def is_tombstone(message: Mapping[str, Any]) -> bool:
    """Return whether a message is the placeholder for a deleted message that has replies."""
    return as_str(message.get("subtype")) == _TOMBSTONE


def _noticed(message: Mapping[str, Any], me: SlackIdentity) -> Sequence[object]:
    """Return the parts of a message that people notice: its text, its mention of the bot, its quotations, its files."""
    content = read_message(message, me)
    files = [split_ref(file.ref)[0] for file in content.files]
    return content.text, content.mentions_bot, content.quoted, files
