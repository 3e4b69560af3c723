"""Stage: stores a message in the journal, then hands it to the dispatcher. The last stage."""

from contextlib import nullcontext
from dataclasses import replace
from typing import assert_never

import anyio
from typing_extensions import override

from bus.context import BusContext
from bus.inbound.deduplicate import DeduplicateStage
from bus.inbound.dispatcher import InboundDispatcher
from bus.inbound.gesture_collector import GestureCollector
from bus.inbound.gestures import MAX_PARTS, is_incomplete
from bus.inbound.limits import LimitStage
from bus.inbound.notices import IntakeNotices
from bus.inbound.pipeline import InboundContext, Stage
from bus.messages import encode_inbound
from bus.platform import Disposition
from store.errors import StoreUnavailable
from store.inbox import DuplicateMessage, InboxRow, NewInboxRow, QueueFull
from store.work_group import working_for_command

COMMIT_S = 10.0
"""How long a commit may take. A caller that gives up earlier does not undo it: a stored message is dispatched."""


class CommitStage(Stage):
    """Commits messages; when it returns, the platform may be acknowledged."""

    def __init__(
        self,
        bus: BusContext,
        *,
        deduplicate: DeduplicateStage,
        limits: LimitStage,
        notices: IntakeNotices,
        dispatcher: InboundDispatcher,
        gestures: GestureCollector,
    ) -> None:
        self._bus = bus
        self._deduplicate = deduplicate
        self._limits = limits
        self._notices = notices
        self._dispatcher = dispatcher
        self._gestures = gestures

    @override
    async def __call__(self, context: InboundContext) -> Disposition:
        """Commit a message and dispatch it, also if the caller goes away meanwhile. Raises StoreError."""
        group = nullcontext() if context.command is None else working_for_command()
        try:
            arriving = self._dispatcher.held_rows.arriving()
            with anyio.fail_after(COMMIT_S, shield=True), arriving, group:
                return await self._commit(context)
        except TimeoutError:
            raise StoreUnavailable("The journal did not take the message in time.") from None

    async def _commit(self, context: InboundContext) -> Disposition:
        message, is_too_fast = context.message, context.retry_after_s > 0
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
        )
        cap = 0 if is_too_fast else self._queue_cap(context)
        notice = self._notices.refusal_notice(context)
        result: InboxRow | QueueFull | DuplicateMessage | None = None
        try:
            result = await self._bus.stores.inbox.accept(new, cap=cap, notice=notice)
        finally:
            if not (is_too_fast or isinstance(result, InboxRow)):
                self._limits.release(context)
        self._deduplicate.remember(message)
        match result:
            case DuplicateMessage():
                return Disposition.DUPLICATE
            case QueueFull():
                self._notices.deliver_refusal(message, result)
                return Disposition.RATE_LIMITED if is_too_fast else Disposition.QUEUE_FULL
            case InboxRow():
                if not is_too_fast:
                    self._limits.announce(context)
                moved = message if result.key == message.key else replace(message, key=result.key)
                started_at = context.received_at or result.received_at
                self._bus.tracer.record_intake(
                    result, started_at=started_at, ended_at=self._bus.now()
                )
                self._dispatcher.dispatch_accepted(result, moved, context.command)
                return Disposition.ACCEPTED
            case _:
                assert_never(result)

    def _queue_cap(self, context: InboundContext) -> int:
        adapter, cap = (
            self._bus.adapters.get(context.message.key.channel),
            self._bus.config.max_queue,
        )
        if adapter is not None:
            cap = min(cap, adapter.capabilities.max_queue)
        # A part of a gesture leaves the queue when it is joined to the first one. A refusal would cut the gesture.
        return cap + self._gestures.joining_count + (MAX_PARTS if context.joins else 0)
