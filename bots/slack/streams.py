"""Answers that grow while the agent writes: Slack's native streams, and messages that are changed where those fail.

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

from bots.slack.api import Api
from bots.slack.budget import Budget
from bots.slack.errors import SlackError
from bots.slack.format import ROOM, render
from bots.slack.outbound import Outbound
from bots.slack.payload import is_private
from bots.slack.streamtext import harmless, said
from bots.text.markdown import close_open
from bus.messages import Button, MessageId, ReplyTarget

_log: Final = logging.getLogger(__name__)

_KEPT: Final = 1_000
"""Messages that are remembered; those that grew last are kept."""

_ELSEWHERE: Final = frozenset({"channel_not_found", "is_archived", "not_in_channel"})
"""Refusals of a stream that a message would meet as well."""

_NOWHERE: Final = frozenset({
    "method_deprecated", "missing_scope", "not_subscribed_to_message_stream_stopped", "unknown_method",
})  # fmt: skip
"""Refusals that every further stream would meet until the app is changed and Parley started again."""

_EVERYWHERE: Final = ""

_ENDED: Final = frozenset({"message_not_in_streaming_state", "stopped_by_user"})

_ONCE: Final = frozenset({"invalid_thread_ts", "restricted_action_thread_locked", "user_not_found"})
"""Refusals of a stream that say nothing about the next one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamPace:
    """How streams are paced.

    Attributes:
        life_s: A stream is ended after this and the message changed instead: Slack ends it at about 5 minutes.
        change_s: Least time between two changes of a message that does not stream.
        starts, appends, changes: Calls a minute, all messages of a workspace together. Slack's tiers 2, 4 and 3
            grant 20, 100 and 50; what is left is for the ends of answers.
    """

    life_s: float = 240.0
    change_s: float = 3.0
    starts: float = 18.0
    appends: float = 90.0
    changes: float = 30.0


@dataclass(slots=True, kw_only=True)
class _Growing:
    """A message that grows.

    Attributes:
        live: Whether it streams.
        sent: What was streamed.
        doubt: Whether a call's outcome is unknown, so that nothing may be added.
        halted: Whether a person stopped it.
        token: What the stop button under it would send.
    """

    key: str = ""
    token: str = ""
    live: bool = False
    sent: str = ""
    doubt: bool = False
    halted: bool = False
    began_at: float = field(default_factory=anyio.current_time)
    changed_at: float | None = None


Halted = Callable[[ReplyTarget, MessageId, str], Awaitable[None]]
"""Called when a person stopped a stream by Slack's own button: the message, and its stop button's token."""


class Streams:
    """Opens, grows and ends answers. Every method raises SlackError."""

    def __init__(self, api: Api, outbound: Outbound, pace: StreamPace, halted: Halted) -> None:
        self._api = api
        self._outbound = outbound
        self._pace = pace
        self._halted = halted
        self._growing: OrderedDict[tuple[str, str], _Growing] = OrderedDict()
        self._without: OrderedDict[str, None] = OrderedDict()
        self._starts = Budget(pace.starts, pace.starts)
        self._appends = Budget(pace.appends, pace.appends / 4)
        self._changes = Budget(pace.changes, pace.changes / 3)

    async def open(
        self, place: ReplyTarget, markdown: str, *, key: str, buttons: Sequence[Button] = ()
    ) -> MessageId:
        """Begin an answer; return "" where none can grow: behind a command, which only its author sees."""
        if place.callback:
            return MessageId("")
        token = buttons[0].token if buttons else ""
        ts = await self._start(place)
        live = bool(ts)
        if not live:
            ts = await self._outbound.send(place, markdown, key=key, buttons=buttons)
        self._keep(place, ts, _Growing(key=key, token=token, live=live))
        return ts

    async def grow(
        self, place: ReplyTarget, message: MessageId, markdown: str, buttons: Sequence[Button] = ()
    ) -> None:
        """Show an answer so far; the message that still grows is the one with a button."""
        growing = self._growing.get((place.chat, message))
        if growing is None:
            growing = _Growing(token=buttons[0].token if buttons else "")
            self._keep(place, message, growing)
        if growing.halted:
            raise SlackError("A person stopped this answer.")
        whole, markdown = markdown, said(markdown) if growing.live else markdown
        old = anyio.current_time() - growing.began_at >= self._pace.life_s
        if growing.live and (old or not buttons):
            rest = self._rest(growing, markdown, whole=True)
            if await self._end(place, message, growing, rest or "") and rest is not None:
                return
        elif growing.live and await self._append(place, message, growing, markdown):
            return
        there = growing.sent in {harmless(markdown), harmless(markdown, whole=True)}
        if growing.doubt or not there or growing.changed_at is not None:
            await self._change(place, message, growing, whole, buttons)

    async def finish(
        self, place: ReplyTarget, message: MessageId, markdown: str, buttons: Sequence[Button] = ()
    ) -> None:
        """Show the whole answer, exactly."""
        growing = self._growing.get((place.chat, message))
        if growing is None or not await self._is_said(place, message, growing, markdown, buttons):
            await self._outbound.edit(place, message, markdown, buttons)
        self._growing.pop((place.chat, message), None)

    async def settle(self, place: ReplyTarget, message: MessageId) -> None:
        """End a stream before its message is changed or taken away by others."""
        growing = self._growing.get((place.chat, message))
        if growing is not None and growing.live:
            await self._end(place, message, growing)

    def halt(self, chat: str, message: str) -> str | None:
        """Note that Slack stopped a stream; return its stop button's token, None if nothing is left to stop."""
        growing = self._growing.get((chat, message))
        if growing is None or growing.halted:
            return None
        growing.halted, growing.live = True, False
        return growing.token

    async def _is_said(
        self,
        place: ReplyTarget,
        message: MessageId,
        growing: _Growing,
        markdown: str,
        buttons: Sequence[Button],
    ) -> bool:
        """End a stream with the rest of an answer; return whether it now stands there as it shall."""
        rest = self._rest(growing, markdown, whole=True)
        as_is = rest is not None and not buttons and _is_plain(markdown)
        if not growing.live:
            return as_is and not rest and growing.changed_at is None
        return await self._end(place, message, growing, rest if as_is and rest else "") and as_is

    async def _start(self, place: ReplyTarget) -> MessageId:
        """Start a stream; return "" where a plain message has to do."""
        team, _, user = place.user.rpartition("/")
        if not is_private(place.chat) and not (place.thread and user):
            return MessageId("")
        if {_EVERYWHERE, place.chat} & self._without.keys() or self._starts.take():
            return MessageId("")
        given: dict[str, Any] = {"channel": place.chat, "thread_ts": place.thread or None}
        if user:
            given["recipient_user_id"] = user
            # After a restart answers may go on before the connection signed in.
            given["recipient_team_id"] = team or (await self._api.identity()).team_id
        try:
            answer = await self._api.call(lambda web: web.chat_startStream(**given))
        except SlackError as error:
            self._refused(error, place.chat)
            return MessageId("")
        return MessageId(answer.get("ts") or "")

    def _refused(self, error: SlackError, chat: str) -> None:
        """Note where there are no streams, until Parley starts again; raise what a message would meet as well."""
        if error.code == "ratelimited":
            self._starts.drain()
        elif error.retryable or error.token_refused or error.code in _ELSEWHERE:
            raise error
        elif error.code not in _ONCE:
            where = _EVERYWHERE if error.code in _NOWHERE else chat
            self._without[where] = None
            while len(self._without) > _KEPT:
                self._without.popitem(last=False)
            _log.info("slack: no stream, messages are changed instead: %s", error.user_message)

    async def _append(
        self, place: ReplyTarget, message: MessageId, growing: _Growing, markdown: str
    ) -> bool:
        """Add what is new; return False if the message has to be changed instead."""
        rest = self._rest(growing, markdown)
        if rest is None:
            await self._end(place, message, growing)
            return False
        if not rest:
            return True
        if wait_s := self._appends.take():
            raise SlackError(
                "All streams together are too fast.", retryable=True, retry_after_s=wait_s
            )
        growing.doubt = True
        try:
            await self._api.call(
                lambda web: web.chat_appendStream(
                    channel=place.chat, ts=str(message), markdown_text=rest
                )
            )
        except SlackError as error:
            growing.doubt = error.ambiguous
            return await self._not_added(place, message, growing, error)
        growing.sent, growing.doubt = growing.sent + rest, False
        return True

    async def _not_added(
        self, place: ReplyTarget, message: MessageId, growing: _Growing, error: SlackError
    ) -> bool:
        """Act on a refused addition; return False if the message has to be changed instead."""
        if error.code == "ratelimited":
            self._appends.drain()
        if error.code not in _ENDED:
            raise error
        growing.live = False
        if error.code == "stopped_by_user":
            if not growing.halted:
                growing.halted = True
                await self._halted(place, message, growing.token)
            raise error
        return False

    def _rest(self, growing: _Growing, markdown: str, *, whole: bool = False) -> str | None:
        """Return what is to be added; None if the text does not begin with what stands there."""
        text = harmless(markdown, whole=whole)
        # More than a message holds is code that goes as a file in the end.
        text = text if len(text) <= ROOM else text[:ROOM]
        if not whole and not growing.doubt and text.rstrip() == growing.sent.rstrip():
            return ""  # Line ends that went again, as lines below came.
        if growing.doubt or not text.startswith(growing.sent):
            return None
        return text[len(growing.sent) :]

    async def _end(
        self, place: ReplyTarget, message: MessageId, growing: _Growing, rest: str = ""
    ) -> bool:
        """End a stream; return whether it still ran, so that `rest` stands there."""
        doubt, growing.doubt = growing.doubt, True
        ran = await self._outbound.stop_stream(place, message, rest=rest, key=growing.key)
        growing.live, growing.doubt = False, doubt
        growing.sent += rest if ran else ""
        return ran

    async def _change(
        self,
        place: ReplyTarget,
        message: MessageId,
        growing: _Growing,
        markdown: str,
        buttons: Sequence[Button],
    ) -> None:
        since_s = (
            self._pace.change_s
            if growing.changed_at is None
            else anyio.current_time() - growing.changed_at
        )
        wait_s = self._pace.change_s - since_s
        if wait_s <= 0:
            wait_s = self._changes.take()
        if wait_s > 0:
            raise SlackError("Not yet.", retryable=True, retry_after_s=wait_s)
        growing.changed_at = anyio.current_time()
        await self._outbound.show(place, message, close_open(markdown), buttons)

    def _keep(self, place: ReplyTarget, message: MessageId, growing: _Growing) -> None:
        self._growing[(place.chat, message)] = growing
        while len(self._growing) > _KEPT:
            self._growing.popitem(last=False)


def _is_plain(markdown: str) -> bool:
    """Tell whether a rendered message is its text and nothing else, so that it need not be replaced."""
    text = harmless(markdown, whole=True)
    blocks = render(markdown).blocks
    return len(blocks) == 1 and blocks[0].get("text") == text and len(text) <= ROOM
