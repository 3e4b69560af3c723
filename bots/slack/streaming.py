"""Streaming messages: Slack's native streams, with message updates as fallback.

A stream is append-only, so the unrendered text is streamed in a harmless form. When the answer is complete, the message
is replaced with its rendered form if that differs. Methods: docs.slack.dev/reference/methods, chat.startStream,
chat.appendStream, chat.stopStream.
"""

import logging
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import anyio

from bots.common.call_limits import RateLimiter, ReservingRateLimiter, rate_limited
from bots.slack.api import SlackApi
from bots.slack.errors import SlackError
from bots.slack.format import ROOM, render
from bots.slack.outbound import SlackMessages, message_id
from bots.slack.payload import is_private, split_recipient
from bots.slack.stream_text import escape_stream_text, strip_progress_lines
from bots.text.markdown import close_open
from bots.text.worker import process_text
from bus.bounded import BoundedDict
from bus.messages import Button, MessageId, ReplyTarget

log = logging.getLogger(__name__)

_MINUTE_S = 60.0

_KEPT = 1_000
"""Maximum number of messages to remember. The most recently updated ones are kept."""

_CHANNEL_ERRORS = frozenset({"channel_not_found", "is_archived", "not_in_channel"})
"""Errors that would affect a plain message as well as a stream."""

_APP_ERRORS = frozenset({
    "method_deprecated", "missing_scope", "not_subscribed_to_message_stream_stopped", "unknown_method",
})  # fmt: skip
"""Errors after which every stream is refused until the app is changed and Parley is restarted."""

_ALL_CHANNELS = ""

_STREAM_ENDED_CODES = frozenset({"message_not_in_streaming_state", "stopped_by_user"})

_TRANSIENT_CODES = frozenset(
    {"invalid_thread_ts", "restricted_action_thread_locked", "user_not_found"}
)
"""Errors of a stream that do not affect the next stream."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamingLimits:
    """Rate limits of streams.

    Attributes:
        max_stream_s: How long to stream a message before updating it instead, seconds. Slack ends a stream after about
            5 minutes.
        update_interval_s: Minimum time between two updates of a message that is not streaming, seconds.
        starts_per_minute: Maximum number of calls of chat.startStream for a workspace. Slack's tier 2 permits 20, and
            the rest is reserved for the ends of answers.
        appends_per_minute: Maximum number of calls of chat.appendStream. Tier 4 permits 100.
        updates_per_minute: Maximum number of calls of chat.update. Tier 3 permits 50.
        ends_per_minute: Maximum number of calls of chat.update that end answers. Beyond that, answers do not grow. They
            are sent when they are complete, for which Slack's only limit is one message per second in each channel.
    """

    max_stream_s: float = 240.0
    update_interval_s: float = 3.0
    starts_per_minute: int = 18
    appends_per_minute: int = 90
    updates_per_minute: int = 30
    ends_per_minute: int = 20


@dataclass(slots=True, kw_only=True)
class _StreamingMessage:
    """A growing message.

    Attributes:
        target: Where the message is.
        id: Its timestamp.
        key: Its idempotency key; "" = unknown.
        stop_token: The token of its stop button.
        is_streaming: Whether it is streamed. Otherwise it is updated.
        streamed_text: The streamed text.
        is_uncertain: Whether a call's outcome is unknown, so that nothing may be appended.
        is_stopped: Whether a person stopped it.
        started_at, updated_at: When it began, and when it was last updated (monotonic seconds).
    """

    target: ReplyTarget
    id: MessageId
    key: str = ""
    stop_token: str = ""
    is_streaming: bool = False
    streamed_text: str = ""
    is_uncertain: bool = False
    is_stopped: bool = False
    started_at: float = field(default_factory=anyio.current_time)
    updated_at: float | None = None

    def remaining(self, markdown: str, *, is_complete: bool = False) -> str | None:
        """Return the text to append; None if the text does not begin with the streamed text."""
        text = escape_stream_text(markdown, is_complete=is_complete)
        # Only code can be too long for a message. It will be sent as a file.
        text = text[:ROOM]
        if self.is_uncertain:
            return None
        if not is_complete and text.rstrip() == self.streamed_text.rstrip():
            return ""  # Only line ends differ, because lines below were added or removed.
        return (
            text.removeprefix(self.streamed_text) if text.startswith(self.streamed_text) else None
        )

    def shows(self, markdown: str) -> bool:
        """Return whether the streamed text is this text."""
        forms = (escape_stream_text(markdown), escape_stream_text(markdown, is_complete=True))
        return not self.is_uncertain and self.streamed_text in forms


StreamStoppedCallback = Callable[[ReplyTarget, MessageId, str], Awaitable[None]]
"""Called when a person stops a stream with Slack's own button. Gets the message and the token of its stop button."""


class SlackStreamingMessages:
    """Starts, extends and finishes streaming messages. Every method raises SlackError."""

    def __init__(
        self,
        api: SlackApi,
        outbound: SlackMessages,
        limits: StreamingLimits,
        on_stopped: StreamStoppedCallback,
    ) -> None:
        self._api = api
        self._outbound = outbound
        self._limits = limits
        self._on_stopped = on_stopped
        self._messages = BoundedDict[tuple[str, str], _StreamingMessage](_KEPT)
        self._unsupported_channels = BoundedDict[str, None](_KEPT)
        self._starts = RateLimiter({_MINUTE_S: limits.starts_per_minute})
        self._appends = _with_burst(limits.appends_per_minute)
        self._updates = _with_burst(limits.updates_per_minute)
        self._ends = ReservingRateLimiter({_MINUTE_S: limits.ends_per_minute})

    async def start(
        self, target: ReplyTarget, markdown: str, *, key: str, buttons: Sequence[Button] = ()
    ) -> MessageId:
        """Start an answer.

        Return "" if the answer cannot grow: after a command, because only its author sees the answer, or while so many
        answers grow that the rate limit would delay their last updates.
        """
        if target.response_url or not self._ends.has_room:
            return MessageId("")
        ts = await self._start_stream(target)
        is_streaming = bool(ts)
        if not is_streaming:
            ts = await self._outbound.send(target, markdown, key=key, buttons=buttons)
        self._ends.reserve((target.chat, ts))
        self._messages[target.chat, ts] = _StreamingMessage(
            target=target, id=ts, key=key, stop_token=_token(buttons), is_streaming=is_streaming
        )
        return ts

    async def update(
        self, target: ReplyTarget, message: MessageId, markdown: str, buttons: Sequence[Button] = ()
    ) -> None:
        """Show the text of an answer so far. Only a message that is still growing has a button."""
        growing = self._messages.get((target.chat, message))
        if growing is None:
            growing = _StreamingMessage(target=target, id=message, stop_token=_token(buttons))
            self._messages[target.chat, message] = growing
        if growing.is_stopped:
            raise SlackError("A person stopped this answer.")
        text = strip_progress_lines(markdown) if growing.is_streaming else markdown
        is_old = anyio.current_time() - growing.started_at >= self._limits.max_stream_s
        if growing.is_streaming and (is_old or not buttons):
            rest = growing.remaining(text, is_complete=True)
            if await self._stop_stream(growing, rest or "") and rest is not None:
                return
        elif growing.is_streaming and await self._append(growing, text):
            return
        if growing.updated_at is not None or not growing.shows(text):
            await self._update_message(growing, markdown, buttons)

    async def finish(
        self, target: ReplyTarget, message: MessageId, markdown: str, buttons: Sequence[Button] = ()
    ) -> None:
        """Show the complete answer exactly."""
        growing = self._messages.get((target.chat, message))
        if growing is None or not await self._finish_stream(growing, markdown, buttons):
            await self._outbound.edit(target, message, markdown, buttons)
            self._ends.record()
        self._ends.release((target.chat, message))
        self._messages.pop((target.chat, message), None)

    async def end_stream(self, target: ReplyTarget, message: MessageId) -> None:
        """End a stream before its message is edited or deleted."""
        self._ends.release((target.chat, message))
        growing = self._messages.get((target.chat, message))
        if growing is not None and growing.is_streaming:
            await self._stop_stream(growing)

    def mark_stopped(self, chat: str, message: str) -> str | None:
        """Record that Slack stopped a stream. Return its stop button's token; None = there is nothing to stop."""
        growing = self._messages.get((chat, message))
        if growing is None or growing.is_stopped:
            return None
        growing.is_stopped, growing.is_streaming = True, False
        return growing.stop_token

    async def _finish_stream(
        self, growing: _StreamingMessage, markdown: str, buttons: Sequence[Button]
    ) -> bool:
        """End a stream with the rest of an answer. Return whether the message is now complete."""
        rest = growing.remaining(markdown, is_complete=True)
        is_complete = rest is not None and not buttons and await process_text(_is_plain, markdown)
        if not growing.is_streaming:
            return is_complete and not rest and growing.updated_at is None
        has_ended = await self._stop_stream(growing, rest if is_complete and rest else "")
        return has_ended and is_complete

    async def _start_stream(self, target: ReplyTarget) -> MessageId:
        """Start a stream. Return "" if a plain message must be used."""
        _, team, user = split_recipient(target.user)
        if not is_private(target.chat) and not (target.thread and user):
            return MessageId("")
        if {_ALL_CHANNELS, target.chat} & self._unsupported_channels.keys():
            return MessageId("")
        if self._starts.try_acquire():
            return MessageId("")
        given: dict[str, Any] = {"channel": target.chat, "thread_ts": target.thread or None}
        if user:
            given["recipient_user_id"] = user
            # After a restart, an answer may continue before the connection has signed in.
            given["recipient_team_id"] = team or (await self._api.identity()).team_id
        try:
            answer = await self._api.call(lambda web: web.chat_startStream(**given))
        except SlackError as error:
            self._on_start_refused(error, target.chat)
            return MessageId("")
        return message_id(answer)

    def _on_start_refused(self, error: SlackError, chat: str) -> None:
        """Remember until the next start that streams are unavailable. Raise errors that would also affect a message."""
        if error.code == "ratelimited":
            self._starts.pause(error.retry_after_s or 0.0)
        elif error.retryable or error.token_refused or error.code in _CHANNEL_ERRORS:
            raise error
        elif error.code not in _TRANSIENT_CODES:
            self._unsupported_channels[_ALL_CHANNELS if error.code in _APP_ERRORS else chat] = None
            text = "%s: streams are not available; updating messages instead: %s"
            log.info(text, self._api.channel, error.user_message)

    async def _append(self, growing: _StreamingMessage, markdown: str) -> bool:
        """Append new text. Return False if the message must be updated instead."""
        rest = growing.remaining(markdown)
        if rest is None:
            await self._stop_stream(growing)
            return False
        if not rest:
            return True
        if wait_s := self._appends.try_acquire():
            raise rate_limited(wait_s)
        growing.is_uncertain = True
        try:
            await self._api.call(
                lambda web: web.chat_appendStream(
                    channel=growing.target.chat, ts=str(growing.id), markdown_text=rest
                )
            )
        except SlackError as error:
            growing.is_uncertain = error.ambiguous
            await self._on_append_refused(growing, error)
            return False
        growing.streamed_text, growing.is_uncertain = growing.streamed_text + rest, False
        return True

    async def _on_append_refused(self, growing: _StreamingMessage, error: SlackError) -> None:
        """Handle a refused append. Raise the error unless the message can be updated instead."""
        if error.code == "ratelimited":
            self._appends.pause(error.retry_after_s or 0.0)
        if error.code not in _STREAM_ENDED_CODES:
            raise error
        growing.is_streaming = False
        if error.code == "stopped_by_user":
            if not growing.is_stopped:
                growing.is_stopped = True
                await self._on_stopped(growing.target, growing.id, growing.stop_token)
            raise error

    async def _stop_stream(self, growing: _StreamingMessage, rest: str = "") -> bool:
        """End a stream. Return whether it was still running, so that `rest` was appended."""
        was_uncertain, growing.is_uncertain = growing.is_uncertain, True
        ran = await self._outbound.stop_stream(
            growing.target, growing.id, rest=rest, key=growing.key
        )
        growing.is_streaming, growing.is_uncertain = False, was_uncertain
        growing.streamed_text += rest if ran else ""
        return ran

    async def _update_message(
        self, growing: _StreamingMessage, markdown: str, buttons: Sequence[Button]
    ) -> None:
        now, wait_s = anyio.current_time(), 0.0
        if growing.updated_at is not None:
            wait_s = growing.updated_at + self._limits.update_interval_s - now
        if wait_s <= 0:
            wait_s = self._updates.try_acquire()
        if wait_s > 0:
            raise rate_limited(wait_s)
        growing.updated_at = now
        text = await process_text(close_open, markdown)
        await self._outbound.update(growing.target, growing.id, text, buttons)


def _token(buttons: Sequence[Button]) -> str:
    return buttons[0].token if buttons else ""


def _with_burst(per_minute: int) -> RateLimiter:
    """Return a limiter that spreads a minute's calls, so that at most half of them are made within 15 s."""
    return RateLimiter({_MINUTE_S: per_minute, _MINUTE_S / 4: max(1, per_minute // 2)})


def _is_plain(markdown: str) -> bool:
    """Return whether a rendered message looks like its streamed text, so that it need not be replaced."""
    text = escape_stream_text(markdown, is_complete=True)
    blocks = render(markdown).blocks
    return len(blocks) == 1 and blocks[0].get("text") == text and len(text) <= ROOM
