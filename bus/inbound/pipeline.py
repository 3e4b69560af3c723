"""The way in: the stages that every inbound message passes, in order, and the context that they share."""

import logging
from dataclasses import dataclass
from typing import Protocol

from bus.access.intake_stats import IntakeStats
from bus.commands import ParsedCommand
from bus.errors import IntakeClosed, IntakeFull
from bus.messages import InboundMessage
from bus.platform import Clock, Disposition
from store.inbox import InboxKind

log = logging.getLogger(__name__)


@dataclass(slots=True)
class InboundContext:
    """One message on its way in.

    Attributes:
        message: As the stages so far left it. Stages replace it; it is frozen.
        command: The command that it is; None = chat.
        joins: Whether it is a further part of its sender's last message, and counts against no limit.
        is_known_reply: Whether it replies to a message of a conversation that the bot takes part in.
        received_at: When its way in began, Unix seconds.
    """

    message: InboundMessage
    command: ParsedCommand | None = None
    joins: bool = False
    is_known_reply: bool = False
    received_at: float = 0.0

    @property
    def kind(self) -> InboxKind:
        """The kind of its inbox row, which the rate limit counts separately: chat or command."""
        return "chat" if self.command is None else "command"


class Stage(Protocol):
    """One step of the way in."""

    async def __call__(self, context: InboundContext) -> Disposition | None:
        """Process a message: None passes it on to the next stage, a disposition ends its way here.

        Raises:
            StoreError: nothing was stored, and the platform is not acknowledged.
        """
        ...


class IntakeCapacity:
    """Bounds the messages that are being accepted at once.

    Args:
        limit: How many; further ones are refused, so that the platform sends them again.
    """

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._in_progress = 0
        self._closed = False

    @property
    def in_progress(self) -> int:
        """How many messages are being accepted."""
        return self._in_progress

    def close(self) -> None:
        """Refuse everything from now on."""
        self._closed = True

    def check(self) -> None:
        """Raise IntakeClosed or IntakeFull if nothing can be accepted now."""
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
    """Passes messages through the stages, and counts and logs what became of them.

    Args:
        stages: In order; the last one ends the way of every message.
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
        """Decide on one message and commit it. Raises IntakeFull, IntakeClosed, StoreError: nothing was stored."""
        context = InboundContext(inbound, received_at=self._now())
        with self._capacity:
            disposition = await self._run(context)
        message = context.message
        self._stats.record(message, disposition, at=self._now())
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
