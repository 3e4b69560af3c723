"""Conversations: each answers its messages one by one, in order, independently of other conversations.

A conversation has a queue and a task while messages wait or run. `/new` replaces the queue: the old one finishes its
messages in the old thread, and new messages get a new queue and thread. Stops, edits and deletions find their turn
here.
"""

import logging
import time
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace

import anyio
from anyio.abc import TaskGroup

from bus.access.intake_stats import IntakeStats
from bus.config import SessionConfig
from bus.conversation.control import CancelReason, QueuedMessage
from bus.conversation.queue import ConversationQueue
from bus.conversation.steps import TurnSteps
from bus.conversation.turn import Turn
from bus.log_context import bind_conversation
from bus.messages import ConversationKey, InboundMessage, ReplyTarget, Sender, encode_inbound
from bus.outbound.rows import operator_stop_rows
from bus.platform import Clock, Disposition
from bus.settings.sessions import InvalidSession, SessionResolver
from bus.tracing import NO_TRACER, MessageTracer
from store.conversations import ConversationStore
from store.errors import StoreError
from store.inbox import InboxRow, InboxStore, TurnEnd
from store.work_group import leave_commands

log = logging.getLogger(__name__)


class Conversations:
    """All conversations with waiting or running messages.

    Args:
        tasks: Owns the queues' tasks.
        steps: The steps of turns.
        stats: Counts the messages that the agent does not answer.
    """

    def __init__(
        self,
        *,
        tasks: TaskGroup,
        steps: TurnSteps,
        sessions: SessionResolver,
        inbox: InboxStore,
        conversations: ConversationStore,
        stats: IntakeStats,
        tracer: MessageTracer = NO_TRACER,
        now: Clock = time.time,
    ) -> None:
        self._tasks = tasks
        self._tracer, self._now = tracer, now
        self._steps = steps
        self._sessions = sessions
        self._inbox = inbox
        self._conversations = conversations
        self._stats = stats
        self._present: dict[ConversationKey, ConversationQueue] = {}
        self._former: dict[tuple[ConversationKey, str], ConversationQueue] = {}
        self._active: set[ConversationQueue] = set()
        self._row_ids: set[int] = set()
        self._closed = False

    @property
    def row_ids(self) -> frozenset[int]:
        """IDs of the rows that wait or run here."""
        return frozenset(self._row_ids)

    @property
    def load(self) -> tuple[int, int]:
        """Number of conversations with a running turn, and number of messages that wait behind these turns."""
        return len(self._active), sum(len(queue.waiting) for queue in self._active)

    def enqueue(
        self, row: InboxRow, inbound: InboundMessage, *, former_thread: str | None = None
    ) -> None:
        """Put a message into its conversation's queue. Returns at once.

        `former_thread`: the thread that the message belongs to, if the conversation has left it.
        """
        message = QueuedMessage(row=row, inbound=inbound, text=inbound.text)
        if former_thread is None:
            self._enqueue(self._queue_at(row), message)
            return
        former = (row.key, former_thread)
        if former not in self._former:
            self._former[former] = ConversationQueue(row.key, former_thread)
        self._enqueue(self._former[former], message)

    def give_up(self, row: InboxRow, target: ReplyTarget) -> None:
        """Queue a message that cannot be decoded. Its turn fails with a reply to `target`."""
        inbound = InboundMessage(
            event_id=row.event_id,
            message_id="",
            key=row.key,
            reply_target=target,
            sender=Sender(user_id=""),
            text="",
            is_private=True,
            is_addressed=True,
        )
        failed = QueuedMessage(row=row, inbound=inbound, text="", failure_text=target.texts.failed)
        self._enqueue(self._queue_of(row.key), failed)

    def stop(self, row: InboxRow, inbound: InboundMessage) -> list[Turn]:
        """Cancel the running turns in the conversation of a command and return them.

        In a group, a command outside any conversation (a slash command, or a message that starts a topic) cancels its
        sender's turns in the chat. In a topic or thread, a command cancels only turns there.
        """
        running = [queue.turn for queue in self._active if queue.turn is not None]
        here = [turn for turn in running if turn.row.key == row.key]
        is_outside = row.key.topic in ("", inbound.message_id)
        if not here and is_outside and not inbound.is_private:
            here = [turn for turn in running if _is_near(turn, row.key, inbound)]
        for turn in here:
            turn.control.stop(before=row.seq if turn.row.key == row.key else None)
        return here

    def edit(self, row_id: int, inbound: InboundMessage, *, may_steer: bool = True) -> None:
        """Replace a message with its edited version.

        If its turn is running, the edit is injected into the run (if `may_steer`), or the message is run again.
        """
        if (found := self._find(row_id)) is not None:
            queue, message = found
            steers = may_steer and self._sessions.busy_mode(inbound) == "steer"
            queue.edit(replace(message, inbound=inbound, text=inbound.text), steers=steers)

    def takes_parts(self, row_id: int) -> bool:
        """Return whether further parts can join a message that waits, or whose answer people have seen no words of."""
        found = self._find(row_id)
        if found is None:
            return False
        turn = found[0].turn
        if turn is None or turn.row.id != row_id:
            return turn is None or not turn.control.has_injected(row_id)
        return turn.takes_parts

    def delete(self, row_id: int, inbound: InboundMessage) -> bool:
        """Cancel the turn of a deleted message, or keep it from starting. Return whether the message was waiting."""
        found = self._find(row_id)
        if found is None:
            return False
        queue, message = found
        return queue.delete(replace(message, inbound=inbound))

    async def stop_message(self, row_id: int, *, by_operator: bool = False) -> bool:
        """Cancel the running or waiting turn of a message. Return whether there was one. Raises StoreError.

        `by_operator`: notify the chat, because no one there requested the stop.
        """
        found = self._find(row_id)
        if found is None:
            return False
        # Store the stop first, so that a restart does not run the message.
        stopped = replace(found[1].inbound, is_stopped=True, is_stopped_by_operator=by_operator)
        if not await self._inbox.update_body(row_id, encode_inbound(stopped)):
            return False
        found = self._find(row_id)
        if found is None:
            return False
        queue, message = found
        if queue.turn is not None and queue.is_running(row_id):
            queue.turn.control.stop(by_operator=by_operator)
        else:
            stopped = replace(message.inbound, is_stopped=True, is_stopped_by_operator=by_operator)
            queue.delete(replace(message, inbound=stopped))
            rows = operator_stop_rows(message.row, stopped) if by_operator else []
            await self._inbox.finish(row_id, rows, end=TurnEnd("stopped"))
            self._steps.notify(message.row)
        return True

    def leave_to_people(self, taken: Mapping[ConversationKey, float]) -> None:
        """Cancel the running turns of conversations that people have taken over.

        `taken`: the time of each takeover, Unix seconds. Messages that were accepted later are left alone, because the
        conversation was handed back before that.
        """
        for queue in self._active:
            turn = queue.turn
            if turn is not None and turn.row.received_at <= taken.get(turn.row.key, 0.0):
                turn.control.cancel(CancelReason.TAKEN_OVER)

    async def start_new_thread(self, row: InboxRow, first: QueuedMessage | None = None) -> str:
        """Start a new thread for all messages after a command. Return the thread's ID.

        `first` is the new thread's first message.

        Raises:
            StoreError: The conversation keeps its thread.
        """
        fresh = str(uuid.uuid4())
        # Exchange the queues before awaiting anything, so that later messages get the new queue.
        former, present = self._exchange(row, fresh, first)
        try:
            old = await self._rebind(row, fresh)
            if former is not None:
                former.thread_id = former.thread_id or old
        except StoreError:
            present.thread_id = None
            raise
        finally:
            if former is not None:
                former.released.set()
            present.is_kept = False
            self._forget_idle(row.key)
        return fresh

    async def start_bootstrap(self, row: InboxRow, inbound: InboundMessage, text: str) -> None:
        """Start a bootstrap turn. In a busy conversation, start it at once in a new thread."""
        message = QueuedMessage(row=row, inbound=inbound, text=text, bootstrap=True)
        queue = self._queue_of(row.key)
        if queue.is_busy and row.thread_id is None:
            await self.start_new_thread(row, message)
        else:
            self._enqueue(queue, message)

    @contextmanager
    def reserve(self, row: InboxRow) -> Iterator[ConversationQueue | None]:
        """Keep turns from beginning in a command's conversation inside the block.

        Yield the conversation's queue, or None if earlier messages wait or run there.
        """
        queue = self._queue_of(row.key)
        earlier = any(message.row.seq < row.seq for message in queue.waiting)
        if queue.turn is not None or earlier or not queue.released.is_set():
            yield None
            return
        reserved = queue.released = anyio.Event()
        was_idle = queue not in self._active
        self._active.add(queue)
        try:
            yield queue
        finally:
            reserved.set()
            if was_idle and queue.waiting and not self._closed:
                self._tasks.start_soon(self._work, queue)
            elif was_idle:
                self._leave(queue)

    def enqueue_first(
        self, queue: ConversationQueue, row: InboxRow, inbound: InboundMessage, text: str
    ) -> None:
        """Make a command's turn the next one of a reserved queue."""
        self._row_ids.add(row.id)
        queue.waiting.appendleft(QueuedMessage(row=row, inbound=inbound, text=text))

    def hand_over(self) -> None:
        """Start no further turns. Let another node continue the turns whose runs are stopped from now on."""
        self._closed = True
        for queue in self._active:
            if queue.turn is not None:
                queue.turn.control.hand_over()

    async def close(self) -> None:
        """Start no further turns.

        Wait, without a time limit, until each running turn has ended or another node continues it.
        """
        self._closed = True
        while not all(queue.is_left for queue in self._active):  # noqa: ASYNC110 - only when stopping: 20 ms are short
            await anyio.sleep(0.02)

    def _find(self, row_id: int) -> tuple[ConversationQueue, QueuedMessage] | None:
        for queue in self._active:
            message = queue.find(row_id)
            if message is not None:
                return queue, message
        return None

    def _queue_of(self, key: ConversationKey) -> ConversationQueue:
        if key not in self._present:
            self._present[key] = ConversationQueue(key)
        return self._present[key]

    def _queue_at(self, row: InboxRow) -> ConversationQueue:
        """Return the queue of a row. A row from before the last `/new` belongs to the former queue."""
        queue = self._queue_of(row.key)
        while row.seq < queue.first_seq and queue.former in self._active:
            queue = queue.former
        return queue

    def _exchange(
        self, row: InboxRow, fresh: str, first: QueuedMessage | None
    ) -> tuple[ConversationQueue | None, ConversationQueue]:
        """Replace the current queue with a new one, and move the messages after `row` there."""
        former = self._present.pop(row.key, None)
        present = self._present[row.key] = ConversationQueue(row.key, fresh)
        present.first_seq, present.is_kept = row.seq, True
        present.former = former if former in self._active else None
        if first is not None:
            self._enqueue(present, first)
        if former is not None:
            if former.turn is not None:
                former.turn.control.leave_thread()
            former.released = anyio.Event()
            for message in former.take_after(row.seq):
                self._enqueue(present, message)
        return former, present

    async def _rebind(self, row: InboxRow, fresh: str) -> str:
        """Make `fresh` the conversation's thread. Waiting rows keep the old one, which is returned."""
        found = await self._conversations.find(row.key)
        old = found.thread_id if found is not None else None
        while True:
            # If there is no old thread, the waiting messages get a separate new thread.
            theirs = old or str(uuid.uuid4())
            await self._inbox.assign_thread(row.id, thread_id=theirs)
            bound = await self._conversations.bind_thread(row.key, fresh, instead_of=old)
            if bound == fresh:
                return theirs
            old = bound

    def _enqueue(self, queue: ConversationQueue, message: QueuedMessage) -> None:
        self._row_ids.add(message.row.id)
        queue.waiting.append(message)
        if queue not in self._active:
            self._active.add(queue)
            self._tasks.start_soon(self._work, queue)
        elif queue.turn is None or message.inbound.origin:
            return  # A message that no person sent is not injected. It waits for its own turn.
        elif self._sessions.busy_mode(message.inbound) == "interrupt":
            queue.turn.control.cancel(CancelReason.INTERRUPTED)
        elif not queue.turn.message.inbound.origin:
            self._steer(queue.turn, message)

    def _steer(self, turn: Turn, message: QueuedMessage) -> None:
        """Inject a message into the running turn if the turn answers the same sender, who has chosen to steer."""
        inbound = message.inbound
        is_plain = not (
            message.bootstrap or inbound.answers_row or inbound.rewind_point is not None
        )
        is_askers = inbound.sender.user_id == turn.message.inbound.sender.user_id
        may_steer = is_plain and message.row.kind == "chat" and is_askers
        if may_steer and self._sessions.busy_mode(inbound) == "steer":
            turn.control.steer(message)

    async def _work(self, queue: ConversationQueue) -> None:
        """Run the turns of a queue, one by one, until it is empty."""
        leave_commands()
        try:
            while queue.waiting and not self._closed:
                while not queue.released.is_set():
                    await queue.released.wait()
                if queue.waiting:
                    await self._take(queue, queue.waiting.popleft())
        finally:
            self._leave(queue)

    async def _take(self, queue: ConversationQueue, message: QueuedMessage) -> None:
        """Run one turn. Errors of the turn end here."""
        row = message.row
        bind_conversation(row.key.channel, row.conversation_id, row.thread_id)
        turn = queue.turn = self._turn(queue, message)
        if self._present.get(queue.key) is not queue:
            turn.control.leave_thread()
        for following in queue.waiting:
            self._steer(turn, following)
        if not row.run_id:
            self._tracer.record_wait(row, ended_at=self._now())
        try:
            await turn.run()
            self._record_end(turn)
        except Exception:
            # The live reply failed. The row stays unfinished, and the dispatcher resumes it.
            log.exception("turn %s ended unexpectedly", row.id)
        finally:
            self._row_ids.discard(row.id)
        self._row_ids -= queue.finish_turn(turn)

    def _record_end(self, turn: Turn) -> None:
        now, outcome = self._now(), str(turn.control.reason or turn.stage)
        reply = turn.outcome.reply
        if reply is not None and reply.silent:
            self._stats.record(turn.message.inbound, Disposition.DECLINED)
        self._tracer.record_end(turn.row, outcome=outcome, ended_at=now)
        for message in turn.outcome.taken:
            if message.row.id != turn.row.id:
                self._tracer.record_end(
                    message.row, outcome=outcome, ended_at=now, answered_by=turn.row
                )

    def _turn(self, queue: ConversationQueue, message: QueuedMessage) -> Turn:
        inbound = message.inbound
        session: SessionConfig | None = None
        failure_text = message.failure_text
        try:
            session = self._sessions.resolve(inbound)
        except InvalidSession as error:
            failure_text = inbound.reply_target.texts.agent_name_invalid.format(name=error.agent)
        return Turn(
            message,
            self._steps,
            session=session,
            thread_id=queue.thread_id,
            is_admin=self._sessions.is_admin(inbound),
            failure_text=failure_text,
        )

    def _leave(self, queue: ConversationQueue) -> None:
        """Forget a queue that is empty or whose task ends."""
        self._active.discard(queue)
        self._row_ids.difference_update(message.row.id for message in queue.waiting)
        self._forget_idle(queue.key)
        if self._former.get((queue.key, queue.thread_id or "")) is queue:
            del self._former[queue.key, queue.thread_id or ""]

    def _forget_idle(self, key: ConversationKey) -> None:
        """Forget a conversation's current queue unless it is kept, or it or the former one is active."""
        present = self._present.get(key)
        if present is None or present.is_kept or {present, present.former} & self._active:
            return
        del self._present[key]


def _is_near(turn: Turn, key: ConversationKey, inbound: InboundMessage) -> bool:
    sender = turn.message.inbound.sender
    is_same_chat = replace(turn.row.key, topic="") == replace(key, topic="")
    return is_same_chat and sender.user_id == inbound.sender.user_id
