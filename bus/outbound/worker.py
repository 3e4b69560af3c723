"""Delivery worker: sends outbox rows, in order within a conversation, and records every outcome.

What each failure does here (the policy is in bus/errors.py):

- StoreError: the row stays as it was; its task waits and goes on. An outcome that cannot be recorded is kept in
  memory and recorded when the store is back, so a message that was sent is not sent again.
- DeliveryError: retry, uncertain or failed, by its flags (retry_policy.py).
- Any other exception of an adapter: an attempt of unknown outcome, logged with its traceback, at most
  `attempts.MAX_UNEXPECTED_ERRORS` times.
- A row that cannot be decoded, or that a bug breaks, is marked failed or uncertain; the rows behind it go on.
- Cancellation: an attempt in progress gets `attempts.STOP_GRACE_S`. A row left in `sending` has an unknown outcome.
"""

import logging
import time
from collections.abc import Mapping, Sequence
from contextlib import AbstractAsyncContextManager

import anyio
import httpx
from anyio.abc import TaskGroup, TaskStatus

from bus.bounded import BoundedDict
from bus.errors import unwrapped
from bus.messages import OutboundIndicator, ReplyTarget, chat_of, decode_outbound
from bus.outbound.attempts import ClosedRow, DeliveryAttempts
from bus.outbound.indicators import IndicatorUpdater, is_answered, list_repeated
from bus.outbound.migrated_chats import MigratedChats
from bus.outbound.pacing import SendRateLimiter
from bus.outbound.retry_policy import RetryTimings
from bus.outbound.rows import indicator_row
from bus.platform import Adapter, Clock
from bus.retry import StoreRetry
from bus.tracing import NO_TRACER, MessageTracer
from store.conversations import ChatMigration, ConversationKey
from store.errors import StoreError
from store.outbox import NewOutboxRow, OutboxRow, OutboxStore

log = logging.getLogger(__name__)

OWNER_POLL_S = 0.1
"""How often it is looked whether this process is the owner of the database again, seconds."""

MAX_SENT = 50_000
"""Conversations whose sent messages are remembered."""

TASK_PAUSE_S = 1.0
"""How long a task waits after an error that is not the store's, seconds."""


class DeliveryWorker:
    """Sends what is in the outbox. One task per conversation with open rows.

    Args:
        adapters: The adapters by channel name.
        outbox: The rows.
        gateway: The gateway's REST API, for the files that the agent presents.
        now: The wall clock.
        timings: The worker's waits.
    """

    def __init__(
        self,
        adapters: Mapping[str, Adapter],
        outbox: OutboxStore,
        gateway: httpx.AsyncClient,
        *,
        now: Clock = time.time,
        timings: RetryTimings | None = None,
        tracer: MessageTracer = NO_TRACER,
    ) -> None:
        self._adapters = adapters
        self._outbox = outbox
        self._owners = outbox.owners
        self._limiter = SendRateLimiter()
        timings = timings or RetryTimings()
        self._indicators = IndicatorUpdater(credentials_after_s=timings.credentials_after_s)
        self._now = now
        self._store = StoreRetry("delivery")
        self._attempts = DeliveryAttempts(
            outbox=outbox,
            gateway=gateway,
            limiter=self._limiter,
            store=self._store,
            timings=timings,
            now=now,
            tracer=tracer,
        )
        self._tasks: TaskGroup | None = None
        # By conversation that has a task: what wakes it.
        self._running: dict[ConversationKey, anyio.Event] = {}
        self._idle: set[ConversationKey] = set()  # those with only rows that are due later
        # The ID before which no row was open when a task ended.
        self._next_ids = BoundedDict[ConversationKey, int](MAX_SENT)
        self._waiters: dict[str, set[anyio.Event]] = {}
        self._migrated = MigratedChats()

    async def run(self, *, task_status: TaskStatus[None] = anyio.TASK_STATUS_IGNORED) -> None:
        """Send open rows until canceled, starting with an earlier process's rows."""
        with unwrapped():
            async with anyio.create_task_group() as tasks:
                self._tasks = tasks
                try:
                    await self.repeat_indicators()
                    await self._store.call(self.send_own)
                    task_status.started()
                    await anyio.sleep_forever()
                finally:
                    self._tasks = None
                    self._attempts.stop()

    def adapter(self, channel: str) -> Adapter:
        """Return the adapter of a channel. Raises KeyError: the channel is not running."""
        return self._adapters[channel]

    async def enqueue(self, key: ConversationKey, rows: Sequence[NewOutboxRow]) -> None:
        """Commit rows of a conversation and send them. Raises StoreError."""
        await self._outbox.enqueue(rows)
        self.notify(key)

    def notify(self, key: ConversationKey, *, are_new: bool = True) -> None:
        """Tell that a conversation may have open rows. Cheap; call it after every commit of rows.

        `are_new`: False = not only rows that were stored after all others of the conversation.
        """
        key = self._migrated.current_key(key)
        if not are_new:
            self._next_ids.pop(key, None)
        if self._tasks is None or key.channel not in self._adapters:
            return  # rows of a disabled channel wait until it is enabled again
        if key in self._running:
            self._running[key].set()
        else:
            self._running[key] = anyio.Event()
            self._tasks.start_soon(self._send_rows, key)

    async def send_own(self, after_id: int = 0) -> set[ConversationKey]:
        """Send what is open in the chats of this node and is not being sent; return those chats. Raises StoreError.

        `after_id`: only chats with such rows after this one.
        """
        found = await self._outbox.find_own_open(after_id)
        for key, first_id in found.items():
            if key not in self._running:
                # Not from the beginning: most were sent since they were found.
                self._next_ids[key] = min(first_id, self._next_ids.get(key, 0))
                self.notify(key)
        return {chat_of(key) for key in found}

    async def find_row(self, row_key: str) -> OutboxRow | None:
        """Return the row with this key. Raises StoreError."""
        return await self._outbox.find(row_key)

    async def resend(self, row_id: int) -> OutboxRow:
        """Send a failed or uncertain row again, now. Raises RowNotFound, RowConflict."""
        row = await self._outbox.resend(row_id, now=self._now())
        self.notify(row.conversation, are_new=False)
        return row

    async def discard(self, row_id: int) -> None:
        """Delete a row that is not being sent. Raises RowNotFound, RowConflict."""
        row = await self._outbox.discard(row_id)
        self._wake_waiters(row.key)
        self.notify(row.conversation)

    async def wait_closed(self, row_key: str) -> OutboxRow | None:
        """Wait until a row is neither pending nor being sent; return it. Raises StoreError."""
        closed = anyio.Event()
        waiters = self._waiters.setdefault(row_key, set())
        waiters.add(closed)
        try:
            row = await self._outbox.find(row_key)
            if row is not None and row.state in ("pending", "sending"):
                await closed.wait()
                row = await self._outbox.find(row_key)
            return row
        finally:
            waiters.discard(closed)
            if not waiters:
                self._waiters.pop(row_key, None)

    async def wait_recorded(self, channel: str, chat: str, *, within_s: float) -> None:
        """Wait until the current sends to a chat are recorded: a reply to one may arrive before that."""
        with anyio.move_on_after(within_s):
            await self._attempts.wait_recorded(channel, self._migrated.list_ids(channel, chat))

    async def wait_idle(self) -> None:
        """Wait until no conversation has rows to send now (when stopping; bound it)."""
        while self._running.keys() - self._idle:  # noqa: ASYNC110 - only at shutdown, where 20 ms do not matter
            await anyio.sleep(0.02)

    def add_migration(self, migration: ChatMigration) -> None:
        """Learn of a migration that is in the store already."""
        self._migrated.add(migration)

    async def migrate_chat(self, migration: ChatMigration) -> None:
        """Send the rows of a migrated chat in the tasks of its new id from now on."""
        self.add_migration(migration)
        for key in await self._store.call(self._outbox.list_open_conversations):
            if key.channel == migration.channel and key.chat == migration.new_chat:
                self.notify(key, are_new=False)

    def show_working(
        self, channel: str, target: ReplyTarget, *, is_first: bool = False
    ) -> AbstractAsyncContextManager[None]:
        """Show the working indicator inside the block (see `IndicatorUpdater.working`). Raises nothing of its own."""
        return self._indicators.working(self._adapters[channel], target, is_first=is_first)

    async def show_finished(self, key: ConversationKey, target: ReplyTarget, *, ok: bool) -> None:
        """Replace the working indicator with a done or failure indicator. Raises nothing.

        If the platform refuses that for a while, it is stored, and tried again from then on, by the next process too.
        """
        adapter = self._adapters.get(key.channel)
        if adapter is None:
            return
        wait_s = await self._indicators.finished(adapter, target, ok=ok)
        if wait_s is not None:
            later = indicator_row(key, target, ok=ok, not_before=self._now() + wait_s)
            await self._store.call(lambda: self.enqueue(key, [later]))

    async def show_refused(self, channel: str, target: ReplyTarget) -> None:
        """Show on a message that it was not accepted, where the platform can. Raises nothing."""
        if channel in self._adapters:
            await self._indicators.refused(self._adapters[channel], target)

    async def wait_for_slot(self, key: tuple[str, str], interval_s: float) -> None:
        """Wait for the next call that the rate limit of a key (channel and purpose, id) allows."""
        await self._limiter.acquire(key, interval_s)

    async def wait_until_owner(self) -> None:
        """Wait while another process may have taken over: it may have sent the answer, which must stay as it is."""
        while not self._outbox.is_owner:  # noqa: ASYNC110 - time and another thread change it
            await anyio.sleep(OWNER_POLL_S)

    async def _send_rows(self, key: ConversationKey) -> None:
        """Send a conversation's rows in order; end when none is open. Another node's chat: tell that node."""
        next_id = 0
        try:
            while True:
                wake = self._running[key] = anyio.Event()
                try:
                    if not await self._is_own(key):
                        return
                    from_id = self._next_ids.get(key, 0)
                    row = await self._outbox.next_open(key, now=self._now(), from_id=from_id)
                    # Given up while the row was read, a chat may be another node's.
                    if row is not None and self._owners.is_own(row.conversation):
                        next_id = max(next_id, row.id + 1)
                        await self._advance(row, wake)
                except StoreError as error:
                    await self._store.wait(error)
                    continue
                except Exception:
                    log.exception("the deliveries of %s failed; they go on", key)
                    await anyio.sleep(TASK_PAUSE_S)
                    continue
                if row is None and not wake.is_set():
                    # Rows of one conversation are committed in the order of their IDs. A snapshot that somebody holds
                    # open on PostgreSQL keeps the index entries of all sent since: a search from the first one on.
                    self._next_ids[key] = max(next_id, from_id)
                    return
        finally:
            self._running.pop(key, None)
            if self._migrated.current_key(key) != key:
                self.notify(key)  # it migrated while this task was at work

    async def _is_own(self, key: ConversationKey) -> bool:
        """Return whether this node sends to a chat; if not, tell the node that does. Raises StoreError."""
        if self._owners.is_own(key):
            return True
        owner = await self._owners.claim(key)
        if owner != self._owners.number:
            self._owners.signal(owner, key, is_delivery=True)
        return owner == self._owners.number

    async def _advance(self, row: OutboxRow, wake: anyio.Event) -> None:
        """Take the first open row of a conversation one step further. Raises StoreError."""
        now = self._now()
        if row.state == "pending" and row.not_before > now:
            if row.updated_at > now:
                # The clock was set back: the waits of all such rows start again, at the same time.
                await self._outbox.rebase_waits(row.conversation, now=now)
                return
            if not row.attempts:
                self._idle.add(row.conversation)
            with anyio.move_on_after(row.not_before - now):
                await wake.wait()
            self._idle.discard(row.conversation)
            return
        adapter = self._adapters[row.conversation.channel]
        try:
            body = decode_outbound(row.body)
            if isinstance(body, OutboundIndicator):
                await self._advance_indicator(row, body, adapter)
                return
            closed = await self._attempts.advance(row, body, adapter)
        except StoreError:
            raise
        except Exception as error:
            log.exception("outbox row %s (%s) cannot be sent", row.id, row.key)
            is_undecodable = isinstance(error, ValueError)
            reason = (
                "The row cannot be decoded." if is_undecodable else "Internal error, see the log."
            )
            await self._outbox.mark_failed(
                row.id, error=reason, now=self._now(), uncertain=not is_undecodable
            )
            self._wake_waiters(row.key)
            return
        if closed is not None:
            await self._close(closed)

    async def _close(self, closed: ClosedRow) -> None:
        """Tell who waits for a row that it is closed, and update what people see."""
        decoded = closed.decoded
        self._wake_waiters(decoded.row.key)
        if not closed.is_sent:
            await self._attempts.show_failure(closed)
        row, body = decoded.row, decoded.body
        if body.final_status:
            sent = row.key if closed.is_sent else ""
            ok = await self._store.call(lambda: is_answered(self._outbox, row, body, sent))
            await self.show_finished(row.conversation, body.reply_target, ok=ok)

    async def _advance_indicator(
        self, row: OutboxRow, body: OutboundIndicator, adapter: Adapter
    ) -> None:
        """Show a stored indicator; the row stays while the platform refuses it. Raises StoreError."""
        age_s = self._now() - row.created_at
        wait_s = await self._indicators.finished(
            adapter, body.reply_target, ok=body.ok, age_s=age_s
        )
        if wait_s is None:
            await self._outbox.discard(row.id)
            return
        now = self._now()
        await self._outbox.reschedule(row.id, not_before=now + wait_s, error="refused", now=now)

    async def repeat_indicators(self) -> None:
        """Store indicators of the rows closed last, this node's or nobody's: a kill may have come before them."""
        repeated = await self._store.call(lambda: list_repeated(self._outbox, self._now()))
        await self._store.call(lambda: self._outbox.enqueue(repeated))

    def _wake_waiters(self, row_key: str) -> None:
        for waiter in self._waiters.get(row_key, ()):
            waiter.set()
