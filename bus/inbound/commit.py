"""Stage: stores a message in the journal, then hands it to the dispatcher. The last stage."""

from contextlib import nullcontext
from dataclasses import replace
from typing import assert_never

import anyio
from typing_extensions import override

from bus.context import BusContext
from bus.errors import ConversationFull
from bus.inbound.dispatcher import InboundDispatcher
from bus.inbound.gesture_collector import GestureCollector
from bus.inbound.gestures import MAX_PARTS, is_incomplete
from bus.inbound.notices import IntakeNotices
from bus.inbound.pipeline import InboundContext, Stage
from bus.inbound.rate_limits import SharedRateLimiter, format_wait
from bus.messages import HOOK, ConversationKey, InboundMessage, encode_inbound
from bus.platform import Disposition
from store.errors import StoreUnavailable, TakenOver
from store.inbox import DuplicateMessage, InboxRow, NewInboxRow, QueueFull
from store.outbox import NewOutboxRow
from store.work_group import working_for_command

COMMIT_S = 10.0
"""How long a commit may take. If the caller gives up earlier, a stored message is still dispatched."""


class CommitStage(Stage):
    """Commits messages. When it returns, the platform's event may be acknowledged.

    It refuses a message if its sender exceeds the rate limit or its conversation's queue is full. The refusal is stored
    with its notice, so that the message does not run if the platform sends it again. An event of another system does
    not count toward a rate limit, and is not stored if the queue is full, because that system repeats it.
    """

    def __init__(
        self,
        bus: BusContext,
        *,
        notices: IntakeNotices,
        dispatcher: InboundDispatcher,
        gestures: GestureCollector,
    ) -> None:
        self._bus = bus
        self._rate_limiter = SharedRateLimiter(bus)
        self._notices = notices
        self._dispatcher = dispatcher
        self._gestures = gestures

    @override
    async def __call__(self, context: InboundContext) -> Disposition:
        """Commit a message and dispatch it, even if the caller is canceled meanwhile.

        Raises:
            StoreError: Nothing was stored.
            ConversationFull: An event was not stored, because its conversation's queue is full.
        """
        group = nullcontext() if context.command is None else working_for_command()
        try:
            arriving = self._dispatcher.held_rows.arriving()
            with anyio.fail_after(COMMIT_S, shield=True), arriving, group:
                return await self._commit(context)
        except TimeoutError:
            raise StoreUnavailable("The journal did not take the message in time.") from None

    async def _commit(self, context: InboundContext) -> Disposition:
        message = context.message
        new = NewInboxRow(
            key=message.key,
            event_id=message.event_id,
            message_id=message.message_id,
            replies_to=message.replies_to,
            remember=message.track_replies,
            kind=context.kind,
            may_start=context.command is None and not is_incomplete(message),
            body=encode_inbound(message),
            received_at=self._bus.now(),
            # The workspace of its chat may be unknown until someone writes there.
            is_event_global=message.origin_kind == HOOK,
            needs_agent=_needs_agent(message),
        )
        if wait_s := self._rate_limiter.acquire(context):
            return await self._refuse(message, new, retry_after_s=wait_s)
        return await self._accept(context, new)

    async def _refuse(
        self, message: InboundMessage, new: NewInboxRow, *, retry_after_s: float
    ) -> Disposition:
        """Refuse a message because its sender exceeds the rate limit."""
        texts = message.reply_target.texts
        text = texts.rate_limited.format(wait=format_wait(retry_after_s, texts))

        def notice(key: ConversationKey) -> NewOutboxRow:
            return self._notices.refusal_notice(message, key, "fast", text, now=new.received_at)

        refused = await self._bus.stores.inbox.refuse(new, notice=notice)
        if isinstance(refused, DuplicateMessage):
            return Disposition.DUPLICATE
        self._notices.deliver_refusal(message, refused)
        return Disposition.RATE_LIMITED

    async def _accept(self, context: InboundContext, new: NewInboxRow) -> Disposition:
        """Accept a counted message, unless it is a duplicate or the conversation's queue is full."""
        message = context.message

        def notice(full: QueueFull) -> NewOutboxRow:
            if message.origin_kind == HOOK:
                raise ConversationFull  # The transaction stores nothing.
            text = message.reply_target.texts.queue_full.format(count=full.pending)
            now = new.received_at
            return self._notices.refusal_notice(message, full.key, "full", text, now=now)

        result: InboxRow | QueueFull | DuplicateMessage | None = None
        try:
            result = await self._bus.stores.inbox.accept(
                new, cap=self._queue_cap(context), notice=notice
            )
        except TakenOver:
            return Disposition.TAKEN_OVER  # The transaction stored nothing.
        finally:
            if not isinstance(result, InboxRow):
                self._rate_limiter.release(context)
        match result:
            case DuplicateMessage():
                return Disposition.DUPLICATE
            case QueueFull():
                self._notices.deliver_refusal(message, result.key)
                return Disposition.QUEUE_FULL
            case InboxRow():
                self._rate_limiter.announce(context)
                self._pass_on(context, result)
                return Disposition.ACCEPTED
            case _:
                assert_never(result)

    def _pass_on(self, context: InboundContext, row: InboxRow) -> None:
        """Dispatch an accepted message, unless a person answers it."""
        now, tracer = self._bus.now(), self._bus.tracer
        started_at = context.received_at or row.received_at
        tracer.record_intake(row, started_at=started_at, ended_at=now)
        if row.outcome is not None:
            tracer.record_end(row, outcome=row.outcome, ended_at=now)
            return
        message = context.message
        moved = message if row.key == message.key else replace(message, key=row.key)
        self._dispatcher.dispatch_accepted(row, moved, context.command)

    def _queue_cap(self, context: InboundContext) -> int:
        """Return how many messages may be queued in the conversation, including this one."""
        # A part of a gesture leaves the queue when it is joined to the first part. A refusal would split the gesture.
        return (
            self._bus.config.max_queue
            + self._gestures.joining_count
            + (MAX_PARTS if context.joins else 0)
        )


def _needs_agent(message: InboundMessage) -> bool:
    """Return whether only the agent can act on a message: a button press, a repeated message, or a due schedule."""
    is_schedule = bool(message.origin) and message.origin_kind != HOOK
    return bool(message.answers_row) or message.rewind_point is not None or is_schedule
