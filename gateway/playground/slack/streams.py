"""Slack's streamed messages.

They are append-only and at most as long as a message. The bot, a person or a timeout ends them.
"""

import time
from collections.abc import Callable, Mapping
from typing import Any

from gateway.playground.slack.checks import text_findings
from gateway.playground.slack.permissions import SlackApiError, SlackPermissions
from gateway.playground.slack.state import SlackMessage, SlackStream

MAX_ADDED = 12_000
"""Maximum number of characters in one call, and in a message."""

LIFE_S = 300.0

Given = Mapping[str, Any]


class SlackStreamMethods:
    """The methods for streams."""

    def __init__(self, permissions: SlackPermissions) -> None:
        self._permissions = permissions
        self.table: dict[str, Callable[[Given], dict[str, Any]]] = {
            "chat.startStream": self._start,
            "chat.appendStream": self._append,
            "chat.stopStream": self._stop,
        }

    def _start(self, given: Given) -> dict[str, Any]:
        workspace = self._permissions.workspace
        channel, thread = (
            self._permissions.writable(given["channel"]),
            str(given.get("thread_ts") or ""),
        )
        user, team = (str(given.get(f"recipient_{name}_id") or "") for name in ("user", "team"))
        if channel[0] != "D" and not (user and team and thread):
            missing = "missing_recipient_user_id" if thread else "invalid_thread_ts"
            raise SlackApiError("missing_recipient_team_id" if user and thread else missing)
        message = SlackMessage(
            channel=channel,
            ts=workspace.ts(),
            user=workspace.bot_user,
            bot_id=workspace.bot_id,
            text="",
            thread_ts=self._permissions.root(channel, thread),
            stream=SlackStream(recipient=f"{team}/{user}", began_at=time.time()),
        )
        self._permissions.add(message)
        self._put(message, str(given.get("markdown_text") or ""))
        return {"channel": channel, "ts": message.ts}

    def _append(self, given: Given) -> dict[str, Any]:
        if not given["markdown_text"]:
            raise SlackApiError("no_text")
        message = self._live(given)
        self._put(message, str(given["markdown_text"]))
        return {"channel": message.channel, "ts": message.ts}

    def _stop(self, given: Given) -> dict[str, Any]:
        message = self._live(given)
        if not (message.text or given.get("markdown_text")):
            raise SlackApiError("no_text")
        self._put(message, str(given.get("markdown_text") or ""))
        if message.stream is not None:
            message.stream.ended = "bot"
        message.metadata = given.get("metadata") or message.metadata
        return {"channel": message.channel, "ts": message.ts}

    def _put(self, message: SlackMessage, text: str) -> None:
        if len(text) > MAX_ADDED or len(message.text) + len(text) > MAX_ADDED:
            raise SlackApiError("msg_too_long")
        if not text or message.stream is None:
            return
        message.stream.added.append(text)
        message.text += text
        for finding in text_findings(message.text, []):
            self._permissions.violation(f"stream: {finding}")
        if "://" in message.text:
            self._permissions.violation("stream: an address would be fetched for a preview")

    def _live(self, given: Given) -> SlackMessage:
        message = self._permissions.own(given)
        stream = message.stream
        if stream is not None and time.time() - stream.began_at > LIFE_S:
            stream.ended = stream.ended or "too old"
        if stream is not None and stream.ended == "person":
            raise SlackApiError("stopped_by_user")
        if not message.streams:
            raise SlackApiError("message_not_in_streaming_state")
        return message
