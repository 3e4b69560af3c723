"""Accepts events of other systems as messages in chats, each delivery once."""

import logging
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from enum import StrEnum
from functools import partial

from anyio import to_thread

from bus.errors import HookRejected, IntakeClosed
from bus.hooks.config import HookConfig
from bus.hooks.signature import verify_github, verify_standard
from bus.hooks.template import fill, read_payload
from bus.inbound.pipeline import InboundPipeline
from bus.messages import InboundMessage, Sender
from bus.notifications.chat_directory import ChatDirectory
from bus.platform import Clock, Disposition

log = logging.getLogger(__name__)

_LOG_S = 60.0
"""Minimum time between two logged rejections of a hook's requests, seconds."""

_PING = "ping"
"""GitHub's first event, which only checks that the hook answers."""


class HookOutcome(StrEnum):
    """Whether an event was accepted, repeats an accepted one, or is a ping, which becomes no message."""

    ACCEPTED = "accepted"
    DUPLICATE = "duplicate"
    PONG = "pong"


@dataclass(frozen=True, slots=True, kw_only=True)
class HookRequest:
    """A request to a hook. `headers`: by lower-case name."""

    headers: Mapping[str, str]
    body: bytes


class Hooks:
    """The configured hooks; none before `configure`.

    Args:
        pipeline: Accepts their messages.
        directory: Knows the chats.
        channels: The running channels.
    """

    def __init__(
        self,
        pipeline: InboundPipeline,
        directory: ChatDirectory,
        *,
        channels: Collection[str],
        now: Clock,
    ) -> None:
        self._pipeline = pipeline
        self._directory = directory
        self._hooks: Mapping[str, HookConfig] = {}
        self._channels = channels
        self._now = now
        self._logged_at: dict[str, float] = {}

    def configure(self, hooks: Mapping[str, HookConfig]) -> None:
        """From now on, use these hooks."""
        self._hooks = hooks

    async def receive(self, name: str, request: HookRequest) -> HookOutcome:
        """Verify an event and commit its message. When this returns, the event may be acknowledged.

        Raises:
            HookRejected: There is no hook with this name, or the signature is missing, wrong or too old.
            HookMalformed: The payload cannot be read.
            ConversationFull: Too many messages wait in the conversation. Nothing was stored.
            IntakeFull, IntakeClosed, StoreError: Nothing was stored. The sender repeats the event.
        """
        hook = self._find(name)
        try:
            delivery, event = await to_thread.run_sync(_verify, hook, request, self._now())
        except HookRejected as rejection:
            self._log_rejection(name, rejection)
            raise
        if hook.form == "github" and event == _PING:
            return HookOutcome.PONG
        if hook.channel not in self._channels:
            raise IntakeClosed(f"The channel {hook.channel} of this hook is not running.")
        text = await to_thread.run_sync(partial(_message_text, hook, request, event))
        disposition = await self._pipeline.receive(
            await self._message(name, hook, delivery, event, text)
        )
        is_repeat = disposition is Disposition.DUPLICATE
        return HookOutcome.DUPLICATE if is_repeat else HookOutcome.ACCEPTED

    def _find(self, name: str) -> HookConfig:
        """Return a hook. Raises HookRejected."""
        if name not in self._hooks:
            rejection = HookRejected("there is no hook with this name")
            self._log_rejection("", rejection)
            raise rejection
        return self._hooks[name]

    def _log_rejection(self, name: str, rejection: HookRejected) -> None:
        """Log a rejected request, at most one per hook ("" = unknown) and minute, because anyone can send them."""
        now = self._now()
        if not self._logged_at.get(name, 0.0) <= now < self._logged_at.get(name, 0.0) + _LOG_S:
            self._logged_at[name] = now
            log.warning("hook %s: a request was rejected: %s", name, rejection)

    async def _message(
        self, name: str, hook: HookConfig, delivery: str, event: str, text: str
    ) -> InboundMessage:
        place = await self._directory.find_recipient(hook.channel, hook.chat, topic=hook.topic)
        origin = f"hook:{name}"
        return InboundMessage(
            event_id=f"{origin}:{delivery}",
            message_id="",
            key=place.conversation,
            reply_target=place.target,
            sender=Sender(user_id=origin, name=name),
            text=text,
            is_private=place.is_private,
            is_addressed=True,
            sent_at=self._now(),
            origin=origin,
            hook_event=event,
        )


def _verify(hook: HookConfig, request: HookRequest, now: float) -> tuple[str, str]:
    """Return the delivery and the event ("" = unknown). Takes 1 ms per megabyte. Raises HookRejected."""
    if hook.form == "github":
        return verify_github(hook.secret, request.headers, request.body)
    return verify_standard(hook.secret, request.headers, request.body, now=now), ""


def _message_text(hook: HookConfig, request: HookRequest, event: str) -> str:
    """Return the text of the message. Raises HookMalformed."""
    payload = read_payload(request.headers.get("content-type", ""), request.body)
    return fill(hook.prompt, payload, event=event)
