"""The outbox pump: a row before every send, a state after every attempt, in order within a conversation."""

import logging
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import assert_never

import anyio
import anyio.lowlevel
import httpx
from anyio.abc import TaskGroup, TaskStatus

from bus.errors import DeliveryError
from bus.messages import (
    MessageId,
    OutboundEdit,
    OutboundRemoval,
    OutboundText,
    decode_outbound,
    platform_message_id,
)
from bus.messages import OutboundMessage as Body
from bus.outbound.indicators import IndicatorUpdater
from bus.outbound.pacing import SendRateLimiter
from bus.outbound.sending import RowSender
from bus.platform import Adapter, Clock, SupportsEditing, SupportsMessageLookup, SupportsStreaming
from bus.retry import Backoff, GiveUp, OutcomeUnknown, RetryLater, decide_retry
from store.conversations import ChatMigration, ConversationKey
from store.outbox import MessageTopicStore, NewOutboxRow, OutboxRow, OutboxStore

log = logging.getLogger(__name__)

SEND_DEADLINE_S = 60.0
"""One attempt may take this long; what takes longer is in doubt."""

STOP_GRACE_S = 3.0
"""How long an attempt that is under way may go on when Parley stops; what takes longer is in doubt."""

MAX_INTERNAL_ERRORS = 3
"""Attempts at a delivery that fails for a reason of our own."""

GIVE_UP_AFTER_S = 24 * 3600.0
"""A delivery that a platform kept refusing for a day is left to the admin."""

REPEATED = "in doubt: repeated once"
"""Marks, in `error`, a row whose second send is the last."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RetryTimings:
    """How the pump waits, seconds.

    Attributes:
        backoff: Between attempts where the platform names no time.
        lookup_after_s: How long a send of unknown outcome is left alone before it is looked up: it may
            still be on its way.
        repeat_after_s: How long before it is repeated where nothing can be looked up (SPEC 2.8).
    """

    backoff: Backoff = field(default_factory=Backoff)
    lookup_after_s: float = 2.0
    repeat_after_s: float = 10.0


class DeliveryWorker:
    """Everything owed to the platforms.

    Args:
        adapters: The platforms by channel name.
        gateway: The gateway's REST API, for the files that the agent presents.
        now: The wall clock.
        patience: The pump's waits.
    """

    def __init__(
        self,
        *,
        adapters: Mapping[str, Adapter],
        outbox: OutboxStore,
        origins: MessageTopicStore,
        gateway: httpx.AsyncClient,
        now: Clock = time.time,
        patience: RetryTimings | None = None,
    ) -> None:
        self.adapters = adapters
        self.outbox = outbox
        self.pacer = SendRateLimiter()
        self.presence = IndicatorUpdater()
        self._origins = origins
        self._sending = RowSender(outbox, gateway)
        self._now = now
        self._patience = patience or RetryTimings()
        self._lanes: dict[ConversationKey, anyio.Event] = {}
        self._settled: dict[str, anyio.Event] = {}
        self._attempts: set[anyio.CancelScope] = set()
        self._in_flight: dict[anyio.Event, tuple[str, str]] = {}
        self._tasks: TaskGroup | None = None
        self._moves: dict[tuple[str, str, str], ChatMigration] = {}

    async def run(self, *, task_status: TaskStatus[None] = anyio.TASK_STATUS_IGNORED) -> None:
        """Send what is owed, first what an earlier process left, until cancelled."""
        async with anyio.create_task_group() as tasks:
            self._tasks = tasks
            try:
                for row in await self.outbox.list_open():
                    self.notify(row.conversation)
                task_status.started()
                await anyio.sleep_forever()
            finally:
                self._tasks = None
                for attempt in self._attempts:
                    attempt.deadline = min(attempt.deadline, anyio.current_time() + STOP_GRACE_S)

    def add_migration(self, move: ChatMigration) -> None:
        """Learn of a move that was carried out before anything was sent."""
        self._moves[move.channel, move.workspace, move.old_chat] = move

    async def migrate_chat(self, move: ChatMigration) -> None:
        """Send from now on in the lanes of a chat's new id what is owed under the old one. Raises StoreError."""
        self.add_migration(move)
        for row in await self.outbox.list_open():
            if row.conversation.chat == move.new_chat and row.state == "pending":
                self.notify(row.conversation)

    def current_key(self, key: ConversationKey) -> ConversationKey:
        """Return the key under which a conversation is kept now."""
        while move := self._moves.get((key.channel, key.workspace, key.chat)):
            key = move.apply(key)
        return key

    def notify(self, key: ConversationKey) -> None:
        """Say that rows of this conversation may be due. Cheap; call it after every commit of deliveries."""
        key = self.current_key(key)
        if self._tasks is None or key.channel not in self.adapters:
            return  # rows of a channel that is off wait until it is on again
        lane = self._lanes.get(key)
        if lane is not None:
            lane.set()
            return
        self._lanes[key] = anyio.Event()
        self._tasks.start_soon(self._drain_lane, key)

    async def wait_idle(self) -> None:
        """Wait until no lane has anything due (used when stopping; bounded by the caller)."""
        while self._lanes:  # noqa: ASYNC110 - only at shutdown, where 20 ms do not matter
            await anyio.sleep(0.02)

    async def wait_recorded(self, channel: str, chat: str, *, within_s: float) -> None:
        """Wait until what is being sent to a chat now is recorded: a reply to it may be here before that."""
        moves = self._moves.values()
        chats = {chat, *(move.old_chat for move in moves if move.new_chat == chat)}
        under_way = [
            done
            for done, (where, which) in self._in_flight.items()
            if where == channel and which in chats
        ]
        with anyio.move_on_after(within_s):
            for done in under_way:
                await done.wait()

    async def enqueue(self, key: ConversationKey, deliveries: Sequence[NewOutboxRow]) -> None:
        """Commit deliveries that do not belong to an inbox row's end, and start on them."""
        await self.outbox.enqueue(deliveries)
        self.notify(key)

    async def wait_closed(self, delivery_key: str) -> OutboxRow | None:
        """Wait until a row is no longer pending or being sent, and return it."""
        event = self._settled.setdefault(delivery_key, anyio.Event())
        try:
            row = await self.outbox.find(delivery_key)
            if row is not None and row.state in ("pending", "sending"):
                await event.wait()
                row = await self.outbox.find(delivery_key)
            return row
        finally:
            self._settled.pop(delivery_key, None)

    async def _drain_lane(self, key: ConversationKey) -> None:
        """Send one conversation's rows in order; end when nothing is owed there."""
        more = self._lanes[key]
        try:
            while True:
                rows = await self.outbox.list_open(key)
                if not rows:
                    if not more.is_set():
                        return
                    more = self._lanes[key] = anyio.Event()
                    continue
                await self._advance(rows[0])
        finally:
            self._lanes.pop(key, None)
            if self.current_key(key) != key:
                self.notify(key)  # it moved while this lane was at work

    async def _advance(self, row: OutboxRow) -> None:
        """Bring the first open row of a lane one step further."""
        body = decode_outbound(row.body)
        adapter = self.adapters[row.conversation.channel]
        if (wait := row.not_before - self._now()) > 0:
            await anyio.sleep(wait)
        try:
            if row.state == "sending" and not await self._settle_doubt(row, body, adapter):
                return
            await self._attempt(row, body, adapter)
        except DeliveryError as error:
            await self._judge(row, body, error)
        except Exception:
            log.exception("delivery %s failed unexpectedly", row.key)
            again = row.attempts < MAX_INTERNAL_ERRORS
            await self._judge(row, body, DeliveryError("internal error", retryable=again))

    async def _attempt(self, row: OutboxRow, body: Body, adapter: Adapter) -> None:
        chat = (body.channel, body.reply_target.chat)
        numbers = adapter.capabilities
        await self.pacer.acquire(chat, numbers.send_interval_s, burst=numbers.send_burst)
        if not await self.outbox.mark_sending(row.id, now=self._now()):
            return
        # Shielded: what the platform has taken must be recorded, also while Parley stops.
        deadline = anyio.current_time() + SEND_DEADLINE_S
        with anyio.CancelScope(shield=True, deadline=deadline) as scope:
            self._attempts.add(scope)
            done = anyio.Event()
            self._in_flight[done] = chat
            try:
                message = await self._sending.send(row, body, adapter)
                await self._record(row, message, uncertain=row.error == REPEATED)
            finally:
                self._attempts.discard(scope)
                del self._in_flight[done]
                done.set()
        if scope.cancelled_caught:
            raise DeliveryError("no answer in time", retryable=True, ambiguous=True)
        await self._close(row, body)

    async def _settle_doubt(self, row: OutboxRow, body: Body, adapter: Adapter) -> bool:
        """Settle a send whose outcome is unknown; return whether it must be made (again).

        By the platform's own key where it has one, by looking it up where it can, else repeated once
        after a while and marked uncertain.
        """
        age = self._now() - row.updated_at
        harmless = isinstance(body, OutboundRemoval | OutboundEdit) or (
            isinstance(body, OutboundText)
            and bool(body.replaces)
            and isinstance(adapter, SupportsStreaming | SupportsEditing)
        )
        if harmless or 0 <= age < adapter.capabilities.idempotent_send_s:
            return True
        if isinstance(adapter, SupportsMessageLookup):
            return await self._look_up(row, body, adapter)
        await self._repeat_once(row, body)
        return False

    async def _look_up(self, row: OutboxRow, body: Body, adapter: SupportsMessageLookup) -> bool:
        """Look for the message at the platform; return whether it is not there."""
        await anyio.sleep(max(0.0, self._patience.lookup_after_s - (self._now() - row.updated_at)))
        try:
            with anyio.fail_after(SEND_DEADLINE_S):
                found = await adapter.find_message(
                    body.reply_target, key=row.key, since=row.created_at - 60
                )
        except DeliveryError as error:
            log.warning("delivery %s cannot be looked up: %s", row.key, error.user_message)
            if error.retryable:  # the row stays in doubt
                await anyio.sleep(error.retry_after_s or self._patience.backoff.cap_s)
            else:
                await self._repeat_once(row, body)
            return False
        except TimeoutError:
            return False
        if found is not None:
            await self._record(row, found, uncertain=False)
            await self._close(row, body)
        return found is None

    async def _repeat_once(self, row: OutboxRow, body: Body) -> None:
        """Have a row sent a second time; one that was already is closed as uncertain."""
        if row.error == REPEATED:
            await self._record(row, None, uncertain=True)
            await self._close(row, body)
            return
        moment = row.updated_at + self._patience.repeat_after_s
        await self.outbox.reschedule(row.id, not_before=moment, error=REPEATED, now=self._now())

    async def _judge(self, row: OutboxRow, body: Body, error: DeliveryError) -> None:
        """Act on a failed attempt."""
        now = self._now()
        verdict = decide_retry(
            error,
            attempt=row.attempts + 1,
            age_s=now - row.created_at,
            backoff=self._patience.backoff,
            limit_s=GIVE_UP_AFTER_S,
        )
        log.warning(
            "delivery %s to %s: %s (%s)", row.key, body.channel, error.user_message, verdict
        )
        match verdict:
            case OutcomeUnknown():
                # The row stays `sending`: the lane's next look settles it.
                await anyio.lowlevel.checkpoint()
            case RetryLater(wait_s=wait_s):
                if error.retry_after_s is not None:
                    self.pacer.pause((body.channel, body.reply_target.chat), wait_s)
                note = REPEATED if row.error == REPEATED else error.user_message
                await self.outbox.reschedule(row.id, not_before=now + wait_s, error=note, now=now)
            case GiveUp():
                await self._fail(row, body, error.user_message)
            case _:
                assert_never(verdict)

    async def _record(self, row: OutboxRow, message: MessageId | None, *, uncertain: bool) -> None:
        await self.outbox.mark_delivered(row.id, message, now=self._now(), uncertain=uncertain)
        if message and row.conversation.topic:
            await self._origins.set_topic(
                self.current_key(row.conversation), platform_message_id(message)
            )

    async def _fail(self, row: OutboxRow, body: Body, error: str) -> None:
        await self.outbox.mark_failed(row.id, error=error, now=self._now())
        await self._sending.show_failure(body, self.adapters[body.channel])
        await self._close(row, body)

    async def _close(self, row: OutboxRow, body: Body) -> None:
        if (event := self._settled.get(row.key)) is not None:
            event.set()
        adapter = self.adapters.get(body.channel)
        if body.final_status and adapter is not None:
            await self.presence.finished(adapter, body.reply_target, ok=body.final_status == "ok")
