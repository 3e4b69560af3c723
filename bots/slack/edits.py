"""Edited and deleted messages: of the many changes Slack reports, those that a person notices. Pure.

The forms: docs.slack.dev/reference/events/message, subtypes message_changed and message_deleted.
"""

from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

from bots.slack.attachments import split_ref
from bots.slack.message_reader import read_message
from bots.slack.payload import SlackIdentity, as_mapping, as_str

MessageChange: TypeAlias = tuple[Mapping[str, Any], bool]
"""The message as it now is, with the channel it stands in; and whether it is gone."""

_PASSED_ON = ("channel", "channel_type")
_TOMBSTONE = "tombstone"
"""What is left of a deleted message that has answers: Slack calls that a change."""


def parse_edit(event: Mapping[str, Any], me: SlackIdentity) -> MessageChange | None:
    """Return a message that reads otherwise now; None for previews of links, counters, pins and the like."""
    now, before = as_mapping(event.get("message")), as_mapping(event.get("previous_message"))
    if is_tombstone(now):
        return _within(event, before or now), True
    if before and _noticed(now, me) == _noticed(before, me):
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


def is_tombstone(message: Mapping[str, Any]) -> bool:
    """Return whether a message is what Slack leaves of a deleted one that has answers."""
    return as_str(message.get("subtype")) == _TOMBSTONE


def _noticed(message: Mapping[str, Any], me: SlackIdentity) -> Sequence[object]:
    """Return what people notice of a message: its words, whom it is for, what it forwards, which files it has."""
    content = read_message(message, me)
    files = [split_ref(file.ref)[0] for file in content.files]
    return content.text, content.mentions_bot, content.quoted, files
