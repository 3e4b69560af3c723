"""The workers of all conversations: each answers its messages one by one, in order, whatever others do.

A worker and its task exist while something waits or runs. `/new` retires the present worker: it finishes what it has,
in the old thread, while new messages get another worker and thread.
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
from bus.conversation.machine import CancelReason, Handlers, QueuedMessage, Turn
from bus.conversation.worker import ConversationWorker
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


class ConversationWorkers:
    """All conversations in which something waits or runs.

    Args:
        tasks: Owns the workers' tasks.
        handlers: What carries out the effects of turns.
    """

    def __init__(
        self,
        *,
        tasks: TaskGroup,
        handlers: Handlers,
        sessions: SessionResolver,
        inbox: InboxStore,
        conversations: ConversationStore,
        tracer: MessageTracer = NO_TRACER,
        now: Clock = time.time,
    ) -> None:
        self._tasks = tasks
        self._tracer, self._now = tracer, now
        self._handlers = handlers
        self._sessions = sessions
        self._inbox = inbox
        self._conversations = conversations
        self._present: dict[ConversationKey, ConversationWorker] = {}
        self._former: dict[tuple[ConversationKey, str], ConversationWorker] = {}
        self._active: set[ConversationWorker] = set()
        self._row_ids: set[int] = set()
        self._closed = False

    @property
    def row_ids(self) -> frozenset[int]:
        """The ids of the rows that wait or run here."""
        return frozenset(self._row_ids)

    @property
    def load(self) -> tuple[int, int]:
        """How many conversations have a turn at work, and how many messages wait behind these."""
        return len(self._active), sum(len(worker.waiting) for worker in self._active)

    def enqueue(
        self, row: InboxRow, inbound: InboundMessage, *, former_thread: str | None = None
    ) -> None:
        """Put a message into its conversation's queue; returns at once.

        `former_thread`: it was written for that thread, which the conversation has left since.
        """
        message = QueuedMessage(row=row, inbound=inbound, text=inbound.text)
        if former_thread is None:
            self._enqueue(self._worker_at(row), message)
            return
        former = (row.key, former_thread)
        if former not in self._former:
            self._former[former] = ConversationWorker(row.key, former_thread)
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
        self._enqueue(self._worker_of(row.key), failed)

    def stop(self, row: InboxRow, inbound: InboundMessage) -> list[Turn]:
        """Cancel the turns that run in the conversation of a command; return them.

        In a group where the command stands outside every conversation (a slash command, a message of its
        own), the turns of the same sender in the same chat are meant; in a topic or thread, only those in it.
        """
        running = [worker.turn for worker in self._active if worker.turn is not None]
        here = [turn for turn in running if turn.row.key == row.key]
        is_outside = row.key.topic in ("", inbound.message_id)
        if not here and is_outside and not inbound.is_private:
            here = [turn for turn in running if _is_near(turn, row.key, inbound)]
        for turn in here:
            turn.stop(before=row.seq if turn.row.key == row.key else None)
        return here

    def edit(self, row_id: int, inbound: InboundMessage, *, may_steer: bool = True) -> None:
        """Let a message be what it was edited to; a turn that runs is steered, if that is allowed, or run again."""
        if (found := self._find(row_id)) is not None:
            worker, message = found
            steers = may_steer and self._sessions.busy_mode(inbound) == "steer"
            worker.edit(replace(message, inbound=inbound, text=inbound.text), steers=steers)

    def takes_parts(self, row_id: int) -> bool:
        """Return whether a message may get further parts: it waits, or no words of its answer were shown."""
        found = self._find(row_id)
        if found is None:
            return False
        turn = found[0].turn
        if turn is None or turn.row.id != row_id:
            return turn is None or not turn.has_injected(row_id)
        return turn.takes_parts

    def delete(self, row_id: int, inbound: InboundMessage) -> bool:
        """Give a message that was deleted no turn, or cancel the one that it has; return whether it waited."""
        found = self._find(row_id)
        if found is None:
            return False
        worker, message = found
        return worker.delete(replace(message, inbound=inbound))

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
        worker, message = found
        if worker.turn is not None and worker.is_running(row_id):
            worker.turn.stop()
        else:
            stopped = replace(message.inbound, is_stopped=True)
            worker.delete(replace(message, inbound=stopped))
            await self._inbox.finish(row_id, [])
        return True

    async def start_new_thread(self, row: InboxRow, first: QueuedMessage | None = None) -> str:
        """Give the conversation of a command a fresh thread for all that came after it; return its id.

        `first` is what the new thread begins with.

        Raises:
            StoreError: the thread was not changed.
        """
        fresh = str(uuid.uuid4())
        # Nothing is awaited before the workers are exchanged: messages sent after the command find the new one.
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
        worker = self._worker_of(row.key)
        if worker.is_busy and row.thread_id is None:
            await self.start_new_thread(row, message)
        else:
            self._enqueue(worker, message)

    @contextmanager
    def reserve(self, row: InboxRow) -> Iterator[ConversationWorker | None]:
        """Let no turn begin in the conversation of a command; None if one runs or waits that came before it."""
        worker = self._worker_of(row.key)
        earlier = any(message.row.seq < row.seq for message in worker.waiting)
        if worker.turn is not None or earlier or not worker.released.is_set():
            yield None
            return
        reserved = worker.released = anyio.Event()
        was_idle = worker not in self._active
        self._active.add(worker)
        try:
            yield worker
        finally:
            reserved.set()
            if was_idle and worker.waiting and not self._closed:
                self._tasks.start_soon(self._work, worker)
            elif was_idle:
                self._leave(worker)

    def enqueue_first(
        self, worker: ConversationWorker, row: InboxRow, inbound: InboundMessage, text: str
    ) -> None:
        """Let a command's turn be the next one of a reserved worker."""
        self._row_ids.add(row.id)
        worker.waiting.appendleft(QueuedMessage(row=row, inbound=inbound, text=text))

    def hand_over(self) -> None:
        """Start no further turn; leave those to another node whose runs are stopped from now on."""
        self._closed = True
        for worker in self._active:
            if worker.turn is not None:
                worker.turn.is_handed_over = True

    async def close(self) -> None:
        """Start no further turn and wait until those that run are over, or left. The caller bounds it."""
        self._closed = True
        while not all(worker.is_left for worker in self._active):  # noqa: ASYNC110 - only when stopping: 20 ms are short
            await anyio.sleep(0.02)

    def _find(self, row_id: int) -> tuple[ConversationWorker, QueuedMessage] | None:
        for worker in self._active:
            message = worker.find(row_id)
            if message is not None:
                return worker, message
        return None

    def _worker_of(self, key: ConversationKey) -> ConversationWorker:
        if key not in self._present:
            self._present[key] = ConversationWorker(key)
        return self._present[key]

    def _worker_at(self, row: InboxRow) -> ConversationWorker:
        """Return the worker of a row's place: `/new` may have run before what was accepted before it came here."""
        worker = self._worker_of(row.key)
        while row.seq < worker.first_seq and worker.former in self._active:
            worker = worker.former
        return worker

    def _exchange(
        self, row: InboxRow, fresh: str, first: QueuedMessage | None
    ) -> tuple[ConversationWorker | None, ConversationWorker]:
        """Put a new worker in place of the present one; what came after `row` moves into it."""
        former = self._present.pop(row.key, None)
        present = self._present[row.key] = ConversationWorker(row.key, fresh)
        present.first_seq, present.is_kept = row.seq, True
        present.former = former if former in self._active else None
        if first is not None:
            self._enqueue(present, first)
        if former is not None:
            if former.turn is not None:
                former.turn.is_former = True
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

    def _enqueue(self, worker: ConversationWorker, message: QueuedMessage) -> None:
        self._row_ids.add(message.row.id)
        worker.waiting.append(message)
        if worker not in self._active:
            self._active.add(worker)
            self._tasks.start_soon(self._work, worker)
        elif worker.turn is not None and self._sessions.busy_mode(message.inbound) == "interrupt":
            worker.turn.cancel(CancelReason.INTERRUPTED)
        elif worker.turn is not None:
            self._steer(worker.turn, message)

    def _steer(self, turn: Turn, message: QueuedMessage) -> None:
        """Have a message injected into the run before it, where its sender steers and asked for that run."""
        inbound = message.inbound
        is_plain = not (
            message.bootstrap or inbound.answers_row or inbound.rewind_point is not None
        )
        is_askers = inbound.sender.user_id == turn.message.inbound.sender.user_id
        may_steer = is_plain and message.row.kind == "chat" and is_askers
        if may_steer and self._sessions.busy_mode(inbound) == "steer":
            turn.steer(message)

    async def _work(self, worker: ConversationWorker) -> None:
        """Take the turns of a worker, one by one, until nothing waits."""
        leave_commands()
        try:
            while worker.waiting and not self._closed:
                while not worker.released.is_set():
                    await worker.released.wait()
                if worker.waiting:
                    await self._take(worker, worker.waiting.popleft())
        finally:
            self._leave(worker)

    async def _take(self, worker: ConversationWorker, message: QueuedMessage) -> None:
        """Run one turn; the boundary at which whatever goes wrong in it ends."""
        row = message.row
        bind_conversation(row.key.channel, row.conversation_id, row.thread_id)
        turn = worker.turn = self._turn(worker, message)
        turn.is_former = self._present.get(worker.key) is not worker
        for following in worker.waiting:
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
        self._row_ids -= worker.finish_turn(turn)

    def _trace_end(self, turn: Turn) -> None:
        now, outcome = self._now(), str(turn.reason or turn.state)
        self._tracer.record_end(turn.row, outcome=outcome, ended_at=now)
        for message in turn.consumed:
            if message.row.id != turn.row.id:
                self._tracer.record_end(
                    message.row, outcome=outcome, ended_at=now, answered_by=turn.row
                )

    def _turn(self, worker: ConversationWorker, message: QueuedMessage) -> Turn:
        inbound = message.inbound
        session: SessionConfig | None = None
        failure_text = message.failure_text
        try:
            session = self._sessions.resolve(inbound)
        except InvalidSession as error:
            failure_text = inbound.reply_target.texts.agent_name_invalid.format(name=error.agent)
        return Turn(
            message,
            self._handlers,
            session=session,
            thread_id=worker.thread_id,
            is_admin=self._sessions.is_admin(inbound),
            failure_text=failure_text,
        )

    def _leave(self, worker: ConversationWorker) -> None:
        """Forget a worker that has nothing left, or whose task ends."""
        self._active.discard(worker)
        self._row_ids.difference_update(message.row.id for message in worker.waiting)
        self._forget_idle(worker.key)
        if self._former.get((worker.key, worker.thread_id or "")) is worker:
            del self._former[worker.key, worker.thread_id or ""]

    def _forget_idle(self, key: ConversationKey) -> None:
        """Forget a conversation's present worker, unless it or the former one is at work, or it is kept."""
        present = self._present.get(key)
        if present is None or present.is_kept or {present, present.former} & self._active:
            return
        del self._present[key]


def _is_near(turn: Turn, key: ConversationKey, inbound: InboundMessage) -> bool:
    sender = turn.message.inbound.sender
    is_same_chat = replace(turn.row.key, topic="") == replace(key, topic="")
    return is_same_chat and sender.user_id == inbound.sender.user_id
