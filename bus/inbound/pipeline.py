"""The stages that every inbound message passes, in order, and the context that they share."""

import logging
from dataclasses import dataclass
from typing import Protocol

from bus.access.intake_stats import IntakeStats
from bus.commands import ParsedCommand
from bus.errors import ConversationFull, IntakeClosed, IntakeFull
from bus.messages import HOOK, InboundMessage
from bus.platform import Clock, Disposition
from store.inbox import InboxKind

log = logging.getLogger(__name__)


@dataclass(slots=True)
class InboundContext:
    """One message in the pipeline.

    Attributes:
        message: The message as earlier stages left it. It is frozen, so stages replace it.
        command: The command in the message. None = chat.
        joins: Whether it is a further part of its sender's last message. Such a part does not count toward limits.
        is_known_reply: Whether it replies to a message in a conversation that the bot participates in.
        received_at: When it entered the pipeline, Unix seconds.
    """

    message: InboundMessage
    command: ParsedCommand | None = None
    joins: bool = False
    is_known_reply: bool = False
    received_at: float = 0.0

    @property
    def is_uncounted(self) -> bool:
        """Whether rate limits ignore it, because its sender did not send it, or sent it as part of a gesture."""
        message = self.message
        return self.joins or message.is_from_console or message.origin_kind == HOOK

    @property
    def kind(self) -> InboxKind:
        """The kind of its inbox row: chat or command. The rate limit counts each kind separately."""
        return "chat" if self.command is None else "command"


class Stage(Protocol):
    """One stage of the pipeline."""

    async def __call__(self, context: InboundContext) -> Disposition | None:
        """Process a message. Return None to pass it to the next stage, or a disposition to end the pipeline.

        Raises:
            StoreError: nothing was stored, and the event is not acknowledged.
        """
        ...


class IntakeCapacity:
    """Limits how many messages are accepted at the same time.

    Args:
        limit: Maximum number. Further messages are refused, so that the platform sends them again.
    """

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._in_progress = 0
        self._closed = False

    @property
    def in_progress(self) -> int:
        """Number of messages that are being accepted."""
        return self._in_progress

    def close(self) -> None:
        """Refuse all messages from now on."""
        self._closed = True

    def check(self) -> None:
        """Raise IntakeClosed or IntakeFull if no message can be accepted now."""
        if self._closed:
            raise IntakeClosed
        if self._in_progress >= self._limit:
            raise IntakeFull

    def __enter__(self) -> None:
        """Count one message inside the block. Raises IntakeClosed, IntakeFull."""
        self.check()
        self._in_progress += 1

    def __exit__(self, *_: object) -> None:
        self._in_progress -= 1


class InboundPipeline:
    """Passes messages through the stages, and counts and logs the results.

    Args:
        stages: The stages in order. The last one ends the pipeline for every message.
    """

    def __init__(
        self,
        stages: tuple[Stage, ...],
        *,
        capacity: IntakeCapacity,
        stats: IntakeStats,
        now: Clock,
    ) -> None:
        self._stages = stages
        self._capacity = capacity
        self._stats = stats
        self._now = now

    async def receive(self, inbound: InboundMessage) -> Disposition:
        """Decide on one message and commit it.

        Raises:
            IntakeFull, IntakeClosed, ConversationFull, StoreError: Nothing was stored.
        """
        context = InboundContext(inbound, received_at=self._now())
        try:
            with self._capacity:
                disposition = await self._run(context)
        except ConversationFull:
            self._stats.record(context.message, Disposition.QUEUE_FULL)
            raise
        message = context.message
        self._stats.record(message, disposition)
        log.info(
            "message of %s in %s %r: %s (event %r, sender %r)",
            message.key.channel,
            "private chat" if message.is_private else "group",
            message.key.chat,
            disposition,
            message.event_id,
            message.sender.user_id,
        )
        return disposition

    async def _run(self, context: InboundContext) -> Disposition:
        for stage in self._stages:
            disposition = await stage(context)
            if disposition is not None:
                return disposition
        raise RuntimeError("the last stage passed a message on")
