"""All conversations: each answers its messages one by one, in order, whatever others do.

A queue and its task exist while something waits or runs. `/new` retires the present queue: it finishes what it has,
in the old thread, while new messages get another queue and thread. A stop, an edit or a deletion finds its turn here.
"""

import logging
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

import anyio
from anyio.abc import TaskGroup

from bus.config import SessionConfig
from bus.conversation.control import CancelReason, QueuedMessage
from bus.conversation.queue import ConversationQueue
from bus.conversation.steps import TurnSteps
from bus.conversation.turn import Turn
from bus.log_context import bind_conversation
from bus.messages import ConversationKey, InboundMessage, ReplyTarget, Sender, encode_inbound
from bus.platform import Clock
from bus.settings.sessions import InvalidSession, SessionResolver
from bus.tracing import NO_TRACER, MessageTracer
from store.conversations import ConversationStore
from store.errors import StoreError
from store.inbox import InboxRow, InboxStore
from store.work_group import leave_commands

log = logging.getLogger(__name__)


class Conversations:
    """All conversations in which something waits or runs.

    Args:
        tasks: Owns the queues' tasks.
        steps: What turns do.
    """

    def __init__(
        self,
        *,
        tasks: TaskGroup,
        steps: TurnSteps,
        sessions: SessionResolver,
        inbox: InboxStore,
        conversations: ConversationStore,
        tracer: MessageTracer = NO_TRACER,
        now: Clock = time.time,
    ) -> None:
        self._tasks = tasks
        self._tracer, self._now = tracer, now
        self._steps = steps
        self._sessions = sessions
        self._inbox = inbox
        self._conversations = conversations
        self._present: dict[ConversationKey, ConversationQueue] = {}
        self._former: dict[tuple[ConversationKey, str], ConversationQueue] = {}
        self._active: set[ConversationQueue] = set()
        self._row_ids: set[int] = set()
        self._closed = False

    @property
    def row_ids(self) -> frozenset[int]:
        """The ids of the rows that wait or run here."""
        return frozenset(self._row_ids)

    @property
    def load(self) -> tuple[int, int]:
        """How many conversations have a turn at work, and how many messages wait behind these."""
        return len(self._active), sum(len(queue.waiting) for queue in self._active)

    def enqueue(
        self, row: InboxRow, inbound: InboundMessage, *, former_thread: str | None = None
    ) -> None:
        """Put a message into its conversation's queue; returns at once.

        `former_thread`: it was written for that thread, which the conversation has left since.
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
        """Finish a message that cannot be decoded as failed, in its turn, and tell where its answer was to go."""
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
        """Cancel the turns that run in the conversation of a command; return them.

        In a group where the command stands outside every conversation (a slash command, a message of its
        own), the turns of the same sender in the same chat are meant; in a topic or thread, only those in it.
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
        """Let a message be what it was edited to; a turn that runs is steered, if that is allowed, or run again."""
        if (found := self._find(row_id)) is not None:
            queue, message = found
            steers = may_steer and self._sessions.busy_mode(inbound) == "steer"
            queue.edit(replace(message, inbound=inbound, text=inbound.text), steers=steers)

    def takes_parts(self, row_id: int) -> bool:
        """Return whether a message may get further parts: it waits, or no words of its answer were shown."""
        found = self._find(row_id)
        if found is None:
            return False
        turn = found[0].turn
        if turn is None or turn.row.id != row_id:
            return turn is None or not turn.control.has_injected(row_id)
        return turn.takes_parts

    def delete(self, row_id: int, inbound: InboundMessage) -> bool:
        """Give a message that was deleted no turn, or cancel the one that it has; return whether it waited."""
        found = self._find(row_id)
        if found is None:
            return False
        queue, message = found
        return queue.delete(replace(message, inbound=inbound))

    async def stop_message(self, row_id: int) -> bool:
        """Cancel the turn of a message, whether it runs or waits; return whether there was one. Raises StoreError."""
        found = self._find(row_id)
        if found is None:
            return False
        # Noted first: a restart does not take it up.
        stopped = replace(found[1].inbound, is_stopped=True)
        if not await self._inbox.update_body(row_id, encode_inbound(stopped)):
            return False
        found = self._find(row_id)
        if found is None:
            return False
        queue, message = found
        if queue.turn is not None and queue.is_running(row_id):
            queue.turn.control.stop()
        else:
            stopped = replace(message.inbound, is_stopped=True)
            queue.delete(replace(message, inbound=stopped))
            await self._inbox.finish(row_id, [])
        return True

    async def start_new_thread(self, row: InboxRow, first: QueuedMessage | None = None) -> str:
        """Give the conversation of a command a fresh thread for all that came after it; return its id.

        `first` is what the new thread begins with.

        Raises:
            StoreError: the thread was not changed.
        """
        fresh = str(uuid.uuid4())
        # Nothing is awaited before the queues are exchanged: messages sent after the command find the new one.
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
        """Start a bootstrap turn; in a busy conversation it gets a fresh thread and starts there at once."""
        message = QueuedMessage(row=row, inbound=inbound, text=text, bootstrap=True)
        queue = self._queue_of(row.key)
        if queue.is_busy and row.thread_id is None:
            await self.start_new_thread(row, message)
        else:
            self._enqueue(queue, message)

    @contextmanager
    def reserve(self, row: InboxRow) -> Iterator[ConversationQueue | None]:
        """Let no turn begin in the conversation of a command; None if one runs or waits that came before it."""
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
        """Let a command's turn be the next one of a reserved queue."""
        self._row_ids.add(row.id)
        queue.waiting.appendleft(QueuedMessage(row=row, inbound=inbound, text=text))

    def hand_over(self) -> None:
        """Start no further turn; leave those to another node whose runs are stopped from now on."""
        self._closed = True
        for queue in self._active:
            if queue.turn is not None:
                queue.turn.control.hand_over()

    async def close(self) -> None:
        """Start no further turn and wait until those that run are over, or left. The caller bounds it."""
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
        """Return the queue of a row's place: `/new` may have run before what was accepted before it came here."""
        queue = self._queue_of(row.key)
        while row.seq < queue.first_seq and queue.former in self._active:
            queue = queue.former
        return queue

    def _exchange(
        self, row: InboxRow, fresh: str, first: QueuedMessage | None
    ) -> tuple[ConversationQueue | None, ConversationQueue]:
        """Put a new queue in place of the present one; what came after `row` moves into it."""
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
        """Make `fresh` the conversation's thread, waiting rows staying with the old one; return the old one."""
        found = await self._conversations.find(row.key)
        old = found.thread_id if found is not None else None
        while True:
            # Messages of a conversation that had no thread yet get one to themselves.
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
        elif queue.turn is not None and self._sessions.busy_mode(message.inbound) == "interrupt":
            queue.turn.control.cancel(CancelReason.INTERRUPTED)
        elif queue.turn is not None:
            self._steer(queue.turn, message)

    def _steer(self, turn: Turn, message: QueuedMessage) -> None:
        """Have a message injected into the run before it, where its sender steers and asked for that run."""
        inbound = message.inbound
        is_plain = not (
            message.bootstrap or inbound.answers_row or inbound.rewind_point is not None
        )
        is_askers = inbound.sender.user_id == turn.message.inbound.sender.user_id
        may_steer = is_plain and message.row.kind == "chat" and is_askers
        if may_steer and self._sessions.busy_mode(inbound) == "steer":
            turn.control.steer(message)

    async def _work(self, queue: ConversationQueue) -> None:
        """Take the turns of a queue, one by one, until nothing waits."""
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
        """Run one turn; the boundary at which whatever goes wrong in it ends."""
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
            self._trace_end(turn)
        except Exception:
            # What a turn shows broke. The row stays unfinished: the router takes it up again.
            log.exception("turn %s ended unexpectedly", row.id)
        finally:
            self._row_ids.discard(row.id)
        self._row_ids -= queue.finish_turn(turn)

    def _trace_end(self, turn: Turn) -> None:
        now, outcome = self._now(), str(turn.control.reason or turn.stage)
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
        """Forget a queue that has nothing left, or whose task ends."""
        self._active.discard(queue)
        self._row_ids.difference_update(message.row.id for message in queue.waiting)
        self._forget_idle(queue.key)
        if self._former.get((queue.key, queue.thread_id or "")) is queue:
            del self._former[queue.key, queue.thread_id or ""]

    def _forget_idle(self, key: ConversationKey) -> None:
        """Forget a conversation's present queue, unless it or the former one is at work, or it is kept."""
        present = self._present.get(key)
        if present is None or present.is_kept or {present, present.former} & self._active:
            return
        del self._present[key]


def _is_near(turn: Turn, key: ConversationKey, inbound: InboundMessage) -> bool:
    sender = turn.message.inbound.sender
    is_same_chat = replace(turn.row.key, topic="") == replace(key, topic="")
    return is_same_chat and sender.user_id == inbound.sender.user_id
