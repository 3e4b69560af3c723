"""Streaming messages: Slack's native streams, with message updates as fallback.

A stream can only be added to. So what is streamed is the text as it is (made harmless), and when the answer is
complete the message is replaced by its rendered form wherever that differs. Methods: docs.slack.dev/reference/methods,
chat.startStream, chat.appendStream, chat.stopStream.
"""

import logging
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import anyio

from bots.common.limits import RateLimiter
from bots.slack.api import SlackApi
from bots.slack.errors import SlackError
from bots.slack.format import ROOM, render
from bots.slack.outbound import SlackMessages, message_id
from bots.slack.payload import is_private, split_recipient
from bots.slack.stream_text import escape_stream_text, strip_progress_lines
from bots.text.markdown import close_open
from bus.messages import Button, MessageId, ReplyTarget

_log: Final = logging.getLogger(__name__)

_MINUTE_S: Final = 60.0

_KEPT: Final = 1_000
"""Messages that are remembered; those that grew last are kept."""

_CHANNEL_ERRORS: Final = frozenset({"channel_not_found", "is_archived", "not_in_channel"})
"""Refusals of a stream that a message would meet as well."""

_APP_ERRORS: Final = frozenset({
    "method_deprecated", "missing_scope", "not_subscribed_to_message_stream_stopped", "unknown_method",
})  # fmt: skip
"""Refusals that every further stream would meet until the app is changed and Parley started again."""

_ALL_CHANNELS: Final = ""

_STREAM_ENDED_CODES: Final = frozenset({"message_not_in_streaming_state", "stopped_by_user"})

_TRANSIENT_CODES: Final = frozenset(
    {"invalid_thread_ts", "restricted_action_thread_locked", "user_not_found"}
)
"""Refusals of a stream that say nothing about the next one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamingLimits:
    """How streams are paced.

    Attributes:
        max_stream_s: A stream is ended after this and the message changed instead: Slack ends it at about 5 minutes.
        update_interval_s: Least time between two changes of a message that does not stream.
        starts_per_minute: Calls of chat.startStream, over all messages of a workspace. Slack's tier 2 grants 20;
            the rest is kept for the ends of answers.
        appends_per_minute: Calls of chat.appendStream, likewise. Tier 4 grants 100.
        updates_per_minute: Calls of chat.update, likewise. Tier 3 grants 50.
    """

    max_stream_s: float = 240.0
    update_interval_s: float = 3.0
    starts_per_minute: int = 18
    appends_per_minute: int = 90
    updates_per_minute: int = 30


@dataclass(slots=True, kw_only=True)
class _StreamingMessage:
    """A message that grows.

    Attributes:
        is_streaming: Whether it streams.
        streamed_text: What was streamed.
        is_uncertain: Whether a call's outcome is unknown, so that nothing may be added.
        is_stopped: Whether a person stopped it.
        stop_token: What the stop button under it would send.
    """

    key: str = ""
    stop_token: str = ""
    is_streaming: bool = False
    streamed_text: str = ""
    is_uncertain: bool = False
    is_stopped: bool = False
    started_at: float = field(default_factory=anyio.current_time)
    updated_at: float | None = None


StreamStoppedCallback = Callable[[ReplyTarget, MessageId, str], Awaitable[None]]
"""Called when a person stopped a stream by Slack's own button: the message, and its stop button's token."""


class SlackStreamingMessages:
    """Opens, grows and ends answers. Every method raises SlackError."""

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
        self._messages: OrderedDict[tuple[str, str], _StreamingMessage] = OrderedDict()
        self._unsupported_channels: OrderedDict[str, None] = OrderedDict()
        self._starts = RateLimiter({_MINUTE_S: limits.starts_per_minute})
        self._appends = _with_burst(limits.appends_per_minute)
        self._updates = _with_burst(limits.updates_per_minute)

    async def start(
        self, target: ReplyTarget, markdown: str, *, key: str, buttons: Sequence[Button] = ()
    ) -> MessageId:
        """Begin an answer; return "" where none can grow: behind a command, which only its author sees."""
        if target.response_url:
            return MessageId("")
        token = buttons[0].token if buttons else ""
        ts = await self._start_stream(target)
        live = bool(ts)
        if not live:
            ts = await self._outbound.send(target, markdown, key=key, buttons=buttons)
        self._remember(target, ts, _StreamingMessage(key=key, stop_token=token, is_streaming=live))
        return ts

    async def update(
        self, target: ReplyTarget, message: MessageId, markdown: str, buttons: Sequence[Button] = ()
    ) -> None:
        """Show an answer so far; the message that still grows is the one with a button."""
        growing = self._messages.get((target.chat, message))
        if growing is None:
            growing = _StreamingMessage(stop_token=buttons[0].token if buttons else "")
            self._remember(target, message, growing)
        if growing.is_stopped:
            raise SlackError("A person stopped this answer.")
        whole, markdown = (
            markdown,
            strip_progress_lines(markdown) if growing.is_streaming else markdown,
        )
        old = anyio.current_time() - growing.started_at >= self._limits.max_stream_s
        if growing.is_streaming and (old or not buttons):
            rest = self._rest(growing, markdown, whole=True)
            if await self._stop_stream(target, message, growing, rest or "") and rest is not None:
                return
        elif growing.is_streaming and await self._append(target, message, growing, markdown):
            return
        there = growing.streamed_text in {
            escape_stream_text(markdown),
            escape_stream_text(markdown, whole=True),
        }
        if growing.is_uncertain or not there or growing.updated_at is not None:
            await self._update_message(target, message, growing, whole, buttons)

    async def finish(
        self, target: ReplyTarget, message: MessageId, markdown: str, buttons: Sequence[Button] = ()
    ) -> None:
        """Show the whole answer, exactly."""
        growing = self._messages.get((target.chat, message))
        if growing is None or not await self._finish_stream(
            target, message, growing, markdown, buttons
        ):
            await self._outbound.edit(target, message, markdown, buttons)
        self._messages.pop((target.chat, message), None)

    async def end_stream(self, target: ReplyTarget, message: MessageId) -> None:
        """End a stream before its message is changed or taken away by others."""
        growing = self._messages.get((target.chat, message))
        if growing is not None and growing.is_streaming:
            await self._stop_stream(target, message, growing)

    def mark_stopped(self, chat: str, message: str) -> str | None:
        """Note that Slack stopped a stream; return its stop button's token, None if nothing is left to stop."""
        growing = self._messages.get((chat, message))
        if growing is None or growing.is_stopped:
            return None
        growing.is_stopped, growing.is_streaming = True, False
        return growing.stop_token

    async def _finish_stream(
        self,
        target: ReplyTarget,
        message: MessageId,
        growing: _StreamingMessage,
        markdown: str,
        buttons: Sequence[Button],
    ) -> bool:
        """End a stream with the rest of an answer; return whether it now stands there as it shall."""
        rest = self._rest(growing, markdown, whole=True)
        as_is = rest is not None and not buttons and _is_plain(markdown)
        if not growing.is_streaming:
            return as_is and not rest and growing.updated_at is None
        return (
            await self._stop_stream(target, message, growing, rest if as_is and rest else "")
            and as_is
        )

    async def _start_stream(self, target: ReplyTarget) -> MessageId:
        """Start a stream; return "" where a plain message has to do."""
        _, team, user = split_recipient(target.user)
        if not is_private(target.chat) and not (target.thread and user):
            return MessageId("")
        if {
            _ALL_CHANNELS,
            target.chat,
        } & self._unsupported_channels.keys() or self._starts.try_acquire():
            return MessageId("")
        given: dict[str, Any] = {"channel": target.chat, "thread_ts": target.thread or None}
        if user:
            given["recipient_user_id"] = user
            # After a restart answers may go on before the connection signed in.
            given["recipient_team_id"] = team or (await self._api.identity()).team_id
        try:
            answer = await self._api.call(lambda web: web.chat_startStream(**given))
        except SlackError as error:
            self._on_start_refused(error, target.chat)
            return MessageId("")
        return message_id(answer)

    def _on_start_refused(self, error: SlackError, chat: str) -> None:
        """Note where there are no streams, until Parley starts again; raise what a message would meet as well."""
        if error.code == "ratelimited":
            self._starts.pause(error.retry_after_s or 0.0)
        elif error.retryable or error.token_refused or error.code in _CHANNEL_ERRORS:
            raise error
        elif error.code not in _TRANSIENT_CODES:
            where = _ALL_CHANNELS if error.code in _APP_ERRORS else chat
            self._unsupported_channels[where] = None
            while len(self._unsupported_channels) > _KEPT:
                self._unsupported_channels.popitem(last=False)
            _log.info(
                "%s: streams are not available, messages are updated instead: %s",
                self._api.channel,
                error.user_message,
            )

    async def _append(
        self, target: ReplyTarget, message: MessageId, growing: _StreamingMessage, markdown: str
    ) -> bool:
        """Add what is new; return False if the message has to be changed instead."""
        rest = self._rest(growing, markdown)
        if rest is None:
            await self._stop_stream(target, message, growing)
            return False
        if not rest:
            return True
        if wait_s := self._appends.try_acquire():
            raise SlackError(
                "The rate limit of streams in this workspace is used up.",
                retryable=True,
                retry_after_s=wait_s,
            )
        growing.is_uncertain = True
        try:
            await self._api.call(
                lambda web: web.chat_appendStream(
                    channel=target.chat, ts=str(message), markdown_text=rest
                )
            )
        except SlackError as error:
            growing.is_uncertain = error.ambiguous
            return await self._on_append_refused(target, message, growing, error)
        growing.streamed_text, growing.is_uncertain = growing.streamed_text + rest, False
        return True

    async def _on_append_refused(
        self, target: ReplyTarget, message: MessageId, growing: _StreamingMessage, error: SlackError
    ) -> bool:
        """Act on a refused addition; return False if the message has to be changed instead."""
        if error.code == "ratelimited":
            self._appends.pause(error.retry_after_s or 0.0)
        if error.code not in _STREAM_ENDED_CODES:
            raise error
        growing.is_streaming = False
        if error.code == "stopped_by_user":
            if not growing.is_stopped:
                growing.is_stopped = True
                await self._on_stopped(target, message, growing.stop_token)
            raise error
        return False

    def _rest(
        self, growing: _StreamingMessage, markdown: str, *, whole: bool = False
    ) -> str | None:
        """Return what is to be added; None if the text does not begin with what stands there."""
        text = escape_stream_text(markdown, whole=whole)
        # More than a message holds is code that goes as a file in the end.
        text = text if len(text) <= ROOM else text[:ROOM]
        if (
            not whole
            and not growing.is_uncertain
            and text.rstrip() == growing.streamed_text.rstrip()
        ):
            return ""  # Line ends that went again, as lines below came.
        if growing.is_uncertain or not text.startswith(growing.streamed_text):
            return None
        return text[len(growing.streamed_text) :]

    async def _stop_stream(
        self, target: ReplyTarget, message: MessageId, growing: _StreamingMessage, rest: str = ""
    ) -> bool:
        """End a stream; return whether it still ran, so that `rest` stands there."""
        doubt, growing.is_uncertain = growing.is_uncertain, True
        ran = await self._outbound.stop_stream(target, message, rest=rest, key=growing.key)
        growing.is_streaming, growing.is_uncertain = False, doubt
        growing.streamed_text += rest if ran else ""
        return ran

    async def _update_message(
        self,
        target: ReplyTarget,
        message: MessageId,
        growing: _StreamingMessage,
        markdown: str,
        buttons: Sequence[Button],
    ) -> None:
        since_s = (
            self._limits.update_interval_s
            if growing.updated_at is None
            else anyio.current_time() - growing.updated_at
        )
        wait_s = self._limits.update_interval_s - since_s
        if wait_s <= 0:
            wait_s = self._updates.try_acquire()
        if wait_s > 0:
            raise SlackError(
                "The message was updated too recently.", retryable=True, retry_after_s=wait_s
            )
        growing.updated_at = anyio.current_time()
        await self._outbound.update(target, message, close_open(markdown), buttons)

    def _remember(
        self, target: ReplyTarget, message: MessageId, growing: _StreamingMessage
    ) -> None:
        self._messages[(target.chat, message)] = growing
        while len(self._messages) > _KEPT:
            self._messages.popitem(last=False)


def _with_burst(per_minute: int) -> RateLimiter:
    """Return a limiter that spreads a minute's calls: at most half of them within 15 s."""
    return RateLimiter({_MINUTE_S: per_minute, _MINUTE_S / 4: max(1, per_minute // 2)})


def _is_plain(markdown: str) -> bool:
    """Tell whether a rendered message is its text and nothing else, so that it need not be replaced."""
    text = escape_stream_text(markdown, whole=True)
    blocks = render(markdown).blocks
    return len(blocks) == 1 and blocks[0].get("text") == text and len(text) <= ROOM
