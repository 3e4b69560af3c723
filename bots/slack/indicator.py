"""Working indicator: Slack's agent status if the app is an agent, otherwise a reaction.

An agent's thread has one status, which two methods can set: `agents.sessions.setStatus` shows Slack's stop button, and
`assistant.threads.setStatus` a line of text. The first one that works is used.
"""

import logging
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Protocol

from bots.common.call_limits import RateLimiter, ReservingRateLimiter
from bots.slack.api import SlackApi
from bots.slack.capabilities import REACTIONS_ADDED_A_MINUTE, REACTIONS_REMOVED_A_MINUTE
from bots.slack.errors import SlackError
from bots.slack.payload import is_private
from bus.bounded import BoundedDict
from bus.locales.en import Messages
from bus.messages import InboundMessage, ReplyTarget
from bus.platform import WorkShown

log = logging.getLogger(__name__)

WORKING, DONE, FAILED = "eyes", "white_check_mark", "x"

TITLE_CHARS = 60
"""Maximum length of a thread's title, characters. Slack accepts 200 but shows fewer."""

_SESSION, _STATUS, _REACTION = "session", "status", "reaction"

_KEPT = 1_000
"""Maximum number of messages, threads and chats to remember."""

_THREAD_ERRORS = frozenset({
    "channel_not_found", "invalid_thread_ts", "thread_ts_not_allowed", "thread_ts_required", "user_not_found",
})  # fmt: skip
"""Refusals that concern one thread, not the app."""


_MINUTE_S = 60.0


class ReactionLimits:
    """Rate limits of an app's reactions in one workspace. A working reaction reserves the call that removes it.

    Args:
        clock: A monotonic clock, seconds.

    Attributes:
        additions: Calls of `reactions.add`.
        removals: Calls of `reactions.remove`.
    """

    def __init__(self, clock: Callable[[], float] | None = None) -> None:
        self.additions = RateLimiter({_MINUTE_S: REACTIONS_ADDED_A_MINUTE}, clock=clock)
        self.removals = ReservingRateLimiter({_MINUTE_S: REACTIONS_REMOVED_A_MINUTE}, clock=clock)

    def reserve(self, target: ReplyTarget) -> bool:
        """Return whether a working reaction may be added. If so, count it and reserve its removal."""
        if not self.removals.has_room or self.additions.try_acquire():
            return False
        self.removals.reserve(target)
        return True


class SlackIndicator:
    """Shows work in progress and its outcome. Methods raise SlackError if nothing could be shown.

    Args:
        api: Slack's Web API.
        words: The messages to use if the language is unknown.
    """

    def __init__(self, api: SlackApi, words: Messages) -> None:
        self._api = api
        self._texts = words
        self._unsupported: set[str] = set()
        self._active = BoundedDict[ReplyTarget, tuple[str, ...]](_KEPT)
        # Messages whose outcome is shown next to the working reaction.
        self._concluded = BoundedDict[ReplyTarget, bool](_KEPT)
        self._outcomes = BoundedDict[ReplyTarget, bool](_KEPT)
        self._limits: dict[str, ReactionLimits] = {}  # By workspace.
        self._titles = BoundedDict[tuple[str, str], str](_KEPT)
        self._greeted = BoundedDict[tuple[str, str], None](_KEPT)

    async def working(self, target: ReplyTarget) -> None:
        """Show, or refresh, that a message is being answered."""
        if not target.reply_to:
            return
        before = self._active.get(target)
        agents = await self._set_agent_status(target) if before is None or before[0] else ""
        has_reaction = before is not None and _REACTION in before
        self._active[target] = (agents, _REACTION) if has_reaction else (agents,)
        # In a channel, people see the message, not its thread.
        needs_reaction = not agents or not is_private(target.chat)
        if needs_reaction and not has_reaction and await self._react_working(target):
            self._active[target] = (agents, _REACTION)

    async def finished(
        self, target: ReplyTarget, *, ok: bool, was_shown: WorkShown = WorkShown.UNKNOWN
    ) -> None:
        """Remove the indicator, and show the outcome as a reaction unless there were too many in the last minute.

        A thread keeps its status while another of its messages is being answered.

        Args:
            target: The message.
            ok: Whether it was answered.
            was_shown: Whether any process may have shown the working indicator.
        """
        if not target.reply_to:
            return
        shown = self._active.pop(target, None)
        may_be_shown = was_shown is not WorkShown.NO
        if shown is None and may_be_shown:
            # After a restart, this may run before the connection has signed in.
            await self._api.identity()
        way = shown[0] if shown else next(iter(self._status_methods(target)), "")
        try:
            if way and may_be_shown and not self._is_busy(target):
                await self._status_methods(target)[way](target, over=True)
        except (KeyError, SlackError) as error:
            log.info("%s: a status could not be cleared; it expires: %s", self._api.channel, error)
            way = way if shown else ""  # An earlier process may have shown a reaction.
        if way and is_private(target.chat):
            return
        # Add the outcome first, because Slack permits fewer removals than additions, and the outcome matters more.
        if target not in self._concluded and not self._reactions.additions.try_acquire():
            await self._react(target, DONE if ok else FAILED)
            self._concluded[target] = ok
        # If there is no room for a removal, this process added no reaction, but an earlier process may have.
        has_reaction = may_be_shown if shown is None else _REACTION in shown
        may_have_reaction = has_reaction or was_shown is WorkShown.UNKNOWN
        if may_have_reaction or self._reactions.removals.has_reserved(target):
            await self._unreact_working(target)
        self._concluded.pop(target, None)
        await self._replace_outcome(target, ok=ok)

    async def _replace_outcome(self, target: ReplyTarget, *, ok: bool) -> None:
        """Remove the outcome of an earlier attempt, if this process has shown it and the rate limit permits."""
        before = self._outcomes.get(target, ok)
        self._outcomes[target] = ok
        if before is ok or self._reactions.removals.try_acquire_reserved((target, before)):
            return
        try:
            await self._unreact(target, DONE if before else FAILED)
        except SlackError as error:
            log.info("%s: an earlier outcome stays: %s", self._api.channel, error)

    async def refused(self, target: ReplyTarget) -> None:
        """Mark a message as not accepted. Keeps its thread's status, which may belong to another message."""
        if target.reply_to and not self._reactions.additions.try_acquire():
            await self._react(target, FAILED)

    def remember_title(self, inbound: InboundMessage) -> None:
        """Remember a thread's first message, which becomes its title."""
        root = (inbound.reply_target.chat, inbound.reply_target.thread or inbound.message_id)
        if root not in self._titles and inbound.text:
            self._titles[root] = " ".join(inbound.text.split())[:TITLE_CHARS]

    async def suggest_prompts(self, chat: str, thread: str) -> None:
        """Suggest prompts to a person who opened an agent's chat, once."""
        if not self._api.known_identity.is_agent or (chat, thread) in self._greeted:
            return
        self._greeted[chat, thread] = None
        words = self._texts
        offers = (words.prompt_abilities, words.prompt_document, words.prompt_search)
        await self._api.call(
            lambda web: web.assistant_threads_setSuggestedPrompts(
                channel_id=chat,
                thread_ts=thread or None,
                title=words.prompts_title,
                prompts=[{"title": offer, "message": offer} for offer in offers],
            )
        )

    def _status_methods(self, target: ReplyTarget) -> Mapping[str, "_StatusMethod"]:
        """Return the methods that can show an agent's status here, best first."""
        if not self._api.known_identity.is_agent or not _thread(target):
            return {}
        ways: dict[str, _StatusMethod] = {
            _SESSION: self._set_session_status,
            _STATUS: self._set_assistant_status,
        }
        return {name: way for name, way in ways.items() if name not in self._unsupported}

    def _is_busy(self, target: ReplyTarget) -> bool:
        """Return whether the status of a message's thread belongs to another message."""
        thread = (target.chat, _thread(target))
        return any(
            ways[0] and (other.chat, _thread(other)) == thread
            for other, ways in self._active.items()
        )

    async def _set_agent_status(self, target: ReplyTarget) -> str:
        """Show an agent's status. Return the method that was used; "" = none."""
        for name, way in self._status_methods(target).items():
            try:
                await way(target, over=False)
            except SlackError as error:
                if error.retryable:
                    raise
                if error.code not in _THREAD_ERRORS:
                    self._unsupported.add(name)
                    text = "%s: disabled %s until restart: %s"
                    log.info(text, self._api.channel, name, error.user_message)
            else:
                return name
        return ""

    async def _set_session_status(self, target: ReplyTarget, *, over: bool) -> None:
        title = "" if over else self._titles.get((target.chat, _thread(target)), "")
        await self._api.call(
            lambda web: web.agents_sessions_setStatus(
                channel_id=target.chat,
                thread_ts=_thread(target),
                status="active" if over else "processing",
                title=title or None,
            )
        )

    async def _set_assistant_status(self, target: ReplyTarget, *, over: bool) -> None:
        await self._api.call(
            lambda web: web.assistant_threads_setStatus(
                channel_id=target.chat,
                thread_ts=_thread(target),
                status="" if over else target.texts.presence_working,
            )
        )

    @property
    def _reactions(self) -> ReactionLimits:
        return self._limits.setdefault(self._api.workspace, ReactionLimits())

    async def _react_working(self, target: ReplyTarget) -> bool:
        """Add the working reaction if the rate limit lets it be removed soon. Return whether it is shown."""
        reactions = self._reactions
        if not reactions.removals.has_reserved(target) and not reactions.reserve(target):
            return False
        try:
            await self._react(target, WORKING)
        except SlackError as error:
            if not error.ambiguous:
                reactions.removals.release(target)
            raise
        return True

    async def _unreact_working(self, target: ReplyTarget) -> None:
        reactions = self._reactions
        if wait_s := reactions.removals.try_acquire_reserved(target):
            raise SlackError("Too many reactions.", retryable=True, retry_after_s=wait_s)
        try:
            await self._unreact(target, WORKING)
        except SlackError as error:
            if not error.retryable:
                reactions.removals.release(target)
            raise
        reactions.removals.release(target)

    async def _react(self, target: ReplyTarget, name: str) -> None:
        with _noting_limits(self._reactions.additions, "already_reacted"):
            await self._api.call(
                lambda web: web.reactions_add(
                    channel=target.chat, timestamp=target.reply_to, name=name
                )
            )

    async def _unreact(self, target: ReplyTarget, name: str) -> None:
        with _noting_limits(self._reactions.removals, "no_reaction"):
            await self._api.call(
                lambda web: web.reactions_remove(
                    channel=target.chat, timestamp=target.reply_to, name=name
                )
            )


class _StatusMethod(Protocol):
    """Shows or clears a status."""

    def __call__(self, target: ReplyTarget, *, over: bool) -> Awaitable[None]: ...


@contextmanager
def _noting_limits(limiter: RateLimiter, harmless: str) -> Iterator[None]:
    """Make a call inside the block. Pauses calls after a rate limit, and ignores a refusal with the code `harmless`."""
    try:
        yield
    except SlackError as error:
        if error.retry_after_s and not error.credentials_refused:
            limiter.pause(error.retry_after_s)
        if error.code != harmless:
            raise


def _thread(target: ReplyTarget) -> str:
    """Return the root of the thread in which an agent answers. In an agent's chat, every message begins a thread."""
    return target.thread or target.reply_to
