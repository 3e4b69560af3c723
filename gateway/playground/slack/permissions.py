"""The bot's permissions: where it may read and write, and which objects it owns."""

from collections.abc import Callable, Mapping
from typing import Any

from gateway.playground.slack.state import SlackMessage, SlackWorkspace


class SlackApiError(Exception):
    """A method responds `ok: false` with this error."""


class SlackPermissions:
    """Finds channels and messages. Raises Refusal for actions that the bot may not do.

    Args:
        workspace: Their workspace.
        violation: Receives a violation.
        posted: Called with every new message of the bot.
    """

    def __init__(
        self,
        workspace: SlackWorkspace,
        *,
        violation: Callable[[str], None],
        posted: Callable[[SlackMessage], None],
    ) -> None:
        self.workspace = workspace
        self.violation = violation
        self._posted = posted

    def add(self, message: SlackMessage) -> None:
        """Add a new message of the bot."""
        self.workspace.posted.append(message)
        self._posted(message)

    def readable(self, channel: str) -> None:
        """Refuse channels that the bot cannot see."""
        if channel not in self.workspace.channels:
            raise SlackApiError("channel_not_found")
        if self.workspace.bot_user not in self.workspace.channels[channel].members:
            raise SlackApiError("not_in_channel")

    def writable(self, channel: str) -> str:
        """Refuse channels that no one can write to."""
        self.readable(channel)
        if self.workspace.channels[channel].archived:
            raise SlackApiError("is_archived")
        return channel

    def root(self, channel: str, thread_ts: str) -> str:
        """Return a thread's root."""
        if not thread_ts:
            return ""
        root = self.workspace.find(channel, thread_ts)
        if root is None:
            raise SlackApiError("thread_not_found")
        if root.thread_ts not in {"", root.ts}:
            self.violation("thread_ts is a reply's, not the thread's")
        return thread_ts

    def target(self, given: Mapping[str, Any]) -> SlackMessage:
        """Return the message of a reaction."""
        self.readable(given["channel"])
        return self._found(given["channel"], str(given.get("timestamp")))

    def own(self, given: Mapping[str, Any]) -> SlackMessage:
        """Return a message of the bot."""
        message = self._found(given["channel"], str(given["ts"]))
        if message.bot_id != self.workspace.bot_id:
            raise SlackApiError("cant_update_message")
        return message

    def _found(self, channel: str, ts: str) -> SlackMessage:
        message = self.workspace.find(channel, ts)
        if message is None:
            raise SlackApiError("message_not_found")
        return message
