"""Delivery worker: sends outbox rows, in order within a conversation, and records each outcome.

The effect of each failure here (bus/errors.py has the whole policy):

- StoreError: The row does not change. Its task waits and continues. If an outcome cannot be recorded, it is kept in
  memory until the store works again, so that a sent message is not sent twice.
- DeliveryError: Its flags decide: retry, uncertain or failed (retry_policy.py).
- Any other exception of an adapter: The attempt's outcome is unknown. It is logged with its traceback, at most
  `attempts.MAX_UNEXPECTED_ERRORS` times.
- A row that cannot be decoded, or that causes an internal error: It is marked failed or uncertain. The next rows
  follow.
- Cancellation: An attempt in progress gets `attempts.STOP_GRACE_S`. A row that stays in `sending` has an unknown
  outcome.
"""

import logging
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence

import anyio
from anyio.abc import TaskGroup, TaskStatus

from bus.bounded import BoundedDict
from bus.errors import is_repeatable, unwrapped
from bus.messages import OutboundIndicator, ReplyTarget, chat_of, decode_outbound
from bus.outbound.delivery_attempts import ClosedRow, DeliveryAttempts
from bus.outbound.indicators import IndicatorUpdater, is_answered, list_repeated
from bus.outbound.retry_policy import RetryTimings
from bus.outbound.rows import indicator_row
from bus.outbound.send_rate_limiter import SendRateLimiter
from bus.platform import Adapter, Clock
from bus.retry import StoreRetry
from bus.runs.port import ThreadFiles
from bus.tracing import NO_TRACER, MessageTracer
from store.conversations import ChatMigration, ConversationKey
from store.errors import StoreError
from store.inbox import InboxRow
from store.outbox import NewOutboxRow, OutboxRow, OutboxStore, UnreadMessage

log = logging.getLogger(__name__)

OWNER_POLL_S = 0.1
"""How often to check whether this process owns the database again, seconds."""

MAX_SENT = 50_000
"""Maximum number of conversations whose sent messages are remembered."""

TASK_PAUSE_S = 1.0
"""How long a task waits after an error that does not come from the store, seconds."""


class DeliveryWorker:
    """Sends the rows of the outbox, with one task for each conversation with open rows.

    Args:
        adapters: The adapters by channel name.
        outbox: The rows.
        files: The files of threads, which the agent presents.
        now: The wall clock.
        timings: The worker's waits.
    """

    def __init__(
        self,
        adapters: Mapping[str, Adapter],
        outbox: OutboxStore,
        files: ThreadFiles,
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
            files=files,
            limiter=self._limiter,
            store=self._store,
            timings=timings,
            now=now,
            tracer=tracer,
        )
        self._tasks: TaskGroup | None = None
        # The event that wakes each conversation's task.
        self._running: dict[ConversationKey, anyio.Event] = {}
        self._idle: set[ConversationKey] = set()  # Conversations whose rows are all due later.
        # By conversation: no row with a lower ID was open when its last task ended.
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
        """Return the adapter of a channel. Raises KeyError if the channel is not running."""
        return self._adapters[channel]

    async def enqueue(self, key: ConversationKey, rows: Sequence[NewOutboxRow]) -> None:
        """Commit rows of a conversation, and send them in the background. Raises StoreError."""
        await self._outbox.enqueue(rows)
        self.notify(key)

    def notify(self, key: ConversationKey, *, are_new: bool = True) -> None:
        """Announce that a conversation may have open rows. Call it after every commit of rows. Cheap.

        `are_new`: whether all these rows were stored after all other rows of the conversation.
        """
        key = self._migrated.current_key(key)
        if not are_new:
            self._next_ids.pop(key, None)
        if self._tasks is None or key.channel not in self._adapters:
            return  # Rows of a disabled channel wait until it is enabled again.
        if key in self._running:
            self._running[key].set()
        else:
            self._running[key] = anyio.Event()
            self._tasks.start_soon(self._send_rows, key)

    async def send_own(self, after_id: int = 0) -> set[ConversationKey]:
        """Send open rows of this node's chats that are not being sent. Return these chats. Raises StoreError.

        `after_id`: only chats with such rows after this ID.
        """
        found = await self._outbox.find_own_open(after_id)
        for key, first_id in found.items():
            if key not in self._running:
                # Do not search from the first row, because most rows have been sent since they were found.
                self._next_ids[key] = min(first_id, self._next_ids.get(key, 0))
                self.notify(key)
        return {chat_of(key) for key in found}

    async def find_row(self, row_key: str) -> OutboxRow | None:
        """Return the row with this key. Raises StoreError."""
        return await self._outbox.find(row_key)

    async def list_unread(self, row: InboxRow, person: str, *, limit: int) -> list[UnreadMessage]:
        """Return the messages that the agent missed before a message. See `OutboxStore`."""
        return await self._outbox.list_unread(
            row.key,
            conversation_id=row.conversation_id,
            thread_id=row.thread_id or "",
            person=person,
            seq=row.seq,
            before=row.received_at,
            limit=limit,
        )

    async def resend(self, row_ids: Sequence[int]) -> list[OutboxRow]:
        """Send the failed and uncertain rows among these again now, and return them. Raises StoreError."""
        rows = await self._outbox.resend(row_ids, now=self._now())
        for row in rows:
            self.notify(row.conversation, are_new=False)
        return rows

    def notify_gone(self, row: OutboxRow) -> None:
        """Announce that a row has left the outbox. Call it after the commit. Cheap."""
        self._wake_waiters(row.key)
        self.notify(row.conversation)

    async def wait_closed(self, row_key: str) -> OutboxRow | None:
        """Wait until a row is neither pending nor being sent. Return it. Raises StoreError."""
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
        """Wait until the current sends to a chat are recorded, because a reply to one may arrive first."""
        with anyio.move_on_after(within_s):
            await self._attempts.wait_recorded(channel, self._migrated.list_ids(channel, chat))

    async def wait_idle(self) -> None:
        """Wait until no conversation has rows to send now. Used when stopping. Has no time limit."""
        while self._running.keys() - self._idle:  # noqa: ASYNC110 - only at shutdown, where 20 ms do not matter
            await anyio.sleep(0.02)

    def add_migration(self, migration: ChatMigration) -> None:
        """Remember a migration that is in the store already."""
        self._migrated.add(migration)

    async def migrate_chat(self, migration: ChatMigration) -> None:
        """From now on, send the rows of a migrated chat in the tasks of its new ID."""
        self.add_migration(migration)
        for key in await self._store.call(self._outbox.list_open_conversations):
            if key.channel == migration.channel and key.chat == migration.new_chat:
                self.notify(key, are_new=False)

    def show_working(
        self,
        channel: str,
        target: ReplyTarget,
        *,
        is_first: bool = False,
        on_shown: Callable[[], None] = lambda: None,
    ) -> Callable[[], Awaitable[None]] | None:
        """Return a function that shows the working indicator (see `IndicatorUpdater.working`). It raises nothing."""
        adapter = self._adapters[channel]
        return self._indicators.working(adapter, target, is_first=is_first, on_shown=on_shown)

    async def show_finished(self, key: ConversationKey, target: ReplyTarget, *, ok: bool) -> None:
        """Replace the working indicator with a done or failure indicator. Raises nothing.

        If the platform refuses it temporarily, it is stored and retried, by the next process too.
        """
        adapter = self._adapters.get(key.channel)
        if adapter is None:
            return
        wait_s = await self._indicators.finished(adapter, target, ok=ok)
        if wait_s is not None:
            later = indicator_row(key, target, ok=ok, not_before=self._now() + wait_s)
            await self._store.call(lambda: self.enqueue(key, [later]))

    async def show_refused(self, channel: str, target: ReplyTarget) -> None:
        """Mark a message as not accepted, if the platform can show that. Raises nothing."""
        if channel in self._adapters:
            await self._indicators.refused(self._adapters[channel], target)

    async def wait_for_slot(self, key: tuple[str, str], interval_s: float) -> None:
        """Wait until the rate limit of a key (channel and purpose, ID) allows the next call."""
        await self._limiter.acquire(key, interval_s)

    async def wait_until_owner(self) -> None:
        """Wait while this chat may have failed over to another process.

        That process may have sent the answer, which must no longer change.
        """
        while not self._outbox.is_owner:  # noqa: ASYNC110 - time and another thread change it
            await anyio.sleep(OWNER_POLL_S)

    async def _send_rows(self, key: ConversationKey) -> None:
        """Send a conversation's rows in order until none is open. If another node owns the chat, tell that node."""
        next_id = 0
        try:
            while True:
                wake = self._running[key] = anyio.Event()
                try:
                    if not await self._is_own(key):
                        return
                    from_id = self._next_ids.get(key, 0)
                    row = await self._outbox.next_open(key, now=self._now(), from_id=from_id)
                    # The chat may have moved to another node while the row was read.
                    if row is not None and self._owners.is_own(row.conversation):
                        next_id = max(next_id, row.id + 1)
                        await self._advance(row, wake)
                except StoreError as error:
                    await self._store.wait(error)
                    continue
                except Exception:
                    log.exception("the deliveries of %s failed and will continue", key)
                    await anyio.sleep(TASK_PAUSE_S)
                    continue
                if row is None and not wake.is_set():
                    # Rows of one conversation are committed in the order of their IDs, so search from the last known
                    # one. On PostgreSQL, an open snapshot keeps the index entries of sent rows, which would slow a
                    # search from the first row.
                    self._next_ids[key] = max(next_id, from_id)
                    return
        finally:
            self._running.pop(key, None)
            if self._migrated.current_key(key) != key:
                self.notify(key)  # The chat migrated while this task was running.

    async def _is_own(self, key: ConversationKey) -> bool:
        """Return whether this node sends to a chat. If not, tell the node that does. Raises StoreError."""
        if self._owners.is_own(key):
            return True
        owner = await self._owners.claim(key)
        if owner != self._owners.number:
            self._owners.signal(owner, key, is_delivery=True)
        return owner == self._owners.number

    async def _advance(self, row: OutboxRow, wake: anyio.Event) -> None:
        """Advance the first open row of a conversation by one step. Raises StoreError."""
        now = self._now()
        if row.state == "pending" and row.not_before > now:
            if row.updated_at > now:
                # The clock was set back, so the waits of all such rows start again, at the same time.
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
        except Exception as error:
            if is_repeatable(error):
                raise
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
        """Notify the waiters for a closed row, and update the indicator."""
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
        """Show a stored indicator. The row stays while the platform refuses it. Raises StoreError."""
        age_s = self._now() - row.created_at
        wait_s = await self._indicators.finished(
            adapter, body.reply_target, ok=body.ok, age_s=age_s
        )
        if wait_s is None:
            await self._outbox.delete(row.id)
            return
        now = self._now()
        await self._outbox.reschedule(row.id, not_before=now + wait_s, error="refused", now=now)

    async def repeat_indicators(self) -> None:
        """Store indicators of the most recently closed rows of this node or of no node.

        A process that was killed may not have shown them.
        """
        repeated = await self._store.call(lambda: list_repeated(self._outbox, self._now()))
        await self._store.call(lambda: self._outbox.enqueue(repeated))

    def _wake_waiters(self, row_key: str) -> None:
        for waiter in self._waiters.get(row_key, ()):
            waiter.set()


class MigratedChats:
    """Chats whose ID changed while they may have open rows. Raises nothing."""

    def __init__(self) -> None:
        self._by_old_chat: dict[tuple[str, str, str], ChatMigration] = {}

    def add(self, migration: ChatMigration) -> None:
        """Remember a migration. A repetition has no effect."""
        chat = (migration.channel, migration.workspace, migration.old_chat)
        self._by_old_chat[chat] = migration

    def current_key(self, key: ConversationKey) -> ConversationKey:
        """Return the key under which a conversation is stored now."""
        while migration := self._by_old_chat.get((key.channel, key.workspace, key.chat)):
            key = migration.apply(key)
        return key

    def list_ids(self, channel: str, chat: str) -> set[str]:
        """Return a chat's ID and the IDs that migrated directly to it."""
        migrations = self._by_old_chat.values()
        return {
            chat,
            *(one.old_chat for one in migrations if (one.channel, one.new_chat) == (channel, chat)),
        }
