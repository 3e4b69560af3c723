"""One conversation = one mailbox: its messages are answered one by one, in order, whatever others do.

A mailbox and its task exist while something waits or runs in it. `/new` retires the present mailbox: it
finishes what it has, in the old thread, while new messages get a fresh mailbox and thread.
"""

import logging
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

import anyio
from anyio.abc import TaskGroup

from bus.conversation.attempt import CancelReason, QueuedMessage, TurnControl, TurnPlan
from bus.conversation.turn import Turns
from bus.conversation.worker import ConversationWorker, QueueState
from bus.log_context import bind_conversation
from bus.messages import ConversationKey, InboundMessage, encode_inbound
from bus.settings.sessions import InvalidSession, SessionResolver
from store.conversations import ConversationStore
from store.errors import StoreError
from store.inbox import InboxRow, InboxStore

log = logging.getLogger(__name__)


class ConversationWorkers:
    """All conversations in which something waits or runs.

    Args:
        tasks: Owns the mailboxes' tasks.
    """

    def __init__(
        self,
        *,
        tasks: TaskGroup,
        turns: Turns,
        sessions: SessionResolver,
        inbox: InboxStore,
        conversations: ConversationStore,
    ) -> None:
        self._tasks = tasks
        self._turns = turns
        self._sessions = sessions
        self._inbox = inbox
        self._conversations = conversations
        self._present: dict[ConversationKey, ConversationWorker] = {}
        self._former: dict[tuple[ConversationKey, str], ConversationWorker] = {}
        self._working: set[ConversationWorker] = set()
        self._held: set[int] = set()
        self._closed = False
        self._idle = anyio.Event()

    @property
    def row_ids(self) -> frozenset[int]:
        """The ids of the rows that wait or run here."""
        return frozenset(self._held)

    @property
    def load(self) -> tuple[int, int]:
        """How many conversations have a turn at work, and how many messages wait behind these."""
        return len(self._working), sum(len(box.waiting) for box in self._working)

    def enqueue(
        self, row: InboxRow, inbound: InboundMessage, *, former_thread: str | None = None
    ) -> None:
        """Put a message into its conversation's mailbox; returns at once.

        `former_thread`: it was written for that thread, which the conversation has left since.
        """
        letter = QueuedMessage(row=row, inbound=inbound, text=inbound.text)
        if former_thread is None:
            self._deliver(self._present_box(row.key), letter)
            return
        lane = (row.key, former_thread)
        if lane not in self._former:
            self._former[lane] = ConversationWorker(row.key, former_thread)
        self._deliver(self._former[lane], letter)

    def stop(self, row: InboxRow, inbound: InboundMessage) -> bool:
        """End the turns that run in the conversation of a command; return whether there were any.

        In a group where the command stands outside the conversation (a slash command, a message of its
        own), the turns of the same sender in the same chat are meant.
        """
        running = [box for box in self._working if box.current is not None]
        here = [box for box in running if box.key == row.key]
        if not here and not inbound.private:
            here = [box for box in running if _is_near(box, row.key, inbound)]
        for box in here:
            box.control.stop()
        return bool(here)

    def edit(self, row_id: int, inbound: InboundMessage) -> QueueState:
        """Let a message be what it was edited to; one that runs is told so, or run anew."""
        found = self._box_of(row_id)
        if found is None:
            return QueueState.FINISHED
        box, letter = found
        steers = self._sessions.busy_mode(inbound) == "steer"
        return box.revise(replace(letter, inbound=inbound, text=inbound.text), steers=steers)

    async def wait_finished(self, row_id: int) -> None:
        """Wait until the turn that a message has is over."""
        found = self._box_of(row_id)
        if found is not None and found[0].current is found[1]:
            await found[0].control.over.wait()

    def delete(self, row_id: int, inbound: InboundMessage) -> QueueState:
        """Let a message that was deleted have no turn, or end the one that it has."""
        found = self._box_of(row_id)
        if found is None:
            return QueueState.FINISHED
        box, letter = found
        return box.withdraw(replace(letter, inbound=inbound))

    async def stop_message(self, row_id: int) -> bool:
        """End the turn of a message, whether it runs or waits; return whether there was one. Raises StoreError."""
        found = self._box_of(row_id)
        if found is None:
            return False
        # Noted first: a restart does not take it up.
        stopped = replace(found[1].inbound, stopped=True)
        if not await self._inbox.update_body(row_id, encode_inbound(stopped)):
            return False
        found = self._box_of(row_id)
        if found is None:
            return False
        box, letter = found
        waits = letter is not box.current
        box.end(replace(letter, inbound=replace(letter.inbound, stopped=True)))
        if waits:
            await self._inbox.finish(row_id, [])
        return True

    async def start_new_thread(self, row: InboxRow, first: QueuedMessage | None = None) -> str:
        """Give the conversation of a command a fresh thread for all that came after it; return its id.

        `first` is what the new thread begins with.

        Raises:
            StoreError: the thread was not changed.
        """
        fresh = str(uuid.uuid4())
        # Nothing is awaited before the mailboxes are exchanged: messages sent after the command find the new one.
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
                former.settled.set()
            if present not in self._working and self._present.get(row.key) is present:
                del self._present[row.key]
        return fresh

    async def start_bootstrap(self, row: InboxRow, inbound: InboundMessage, text: str) -> None:
        """Start a bootstrap turn; in a busy conversation it gets a fresh thread and starts there at once."""
        letter = QueuedMessage(row=row, inbound=inbound, text=text, bootstrap=True)
        box = self._present_box(row.key)
        if box.busy and row.thread_id is None:
            await self.start_new_thread(row, letter)
        else:
            self._deliver(box, letter)

    @contextmanager
    def reserve(self, row: InboxRow) -> Iterator[ConversationWorker | None]:
        """Let no turn begin in the conversation of a command; None if one runs or waits that came before it."""
        box = self._present_box(row.key)
        earlier = any(letter.row.seq < row.seq for letter in box.waiting)
        if box.current is not None or earlier or not box.settled.is_set():
            yield None
            return
        claimed = box.settled = anyio.Event()
        was_idle = box not in self._working
        self._working.add(box)
        try:
            yield box
        finally:
            claimed.set()
            if was_idle and box.waiting and not self._closed:
                self._tasks.start_soon(self._work, box)
            elif was_idle:
                self._leave(box)

    def enqueue_first(
        self, box: ConversationWorker, row: InboxRow, inbound: InboundMessage, text: str
    ) -> None:
        """Let a command's turn be the next one of a claimed mailbox."""
        self._held.add(row.id)
        box.waiting.appendleft(QueuedMessage(row=row, inbound=inbound, text=text))

    async def close(self) -> None:
        """Start no further turn and wait until those that run are over. The caller bounds it."""
        self._closed = True
        while self._working:
            self._idle = anyio.Event()
            await self._idle.wait()

    def _box_of(self, row_id: int) -> tuple[ConversationWorker, QueuedMessage] | None:
        """Return the mailbox in which a message waits or runs, and the message."""
        for box in self._working:
            letter = box.letter_of(row_id)
            if letter is not None:
                return box, letter
        return None

    def _present_box(self, key: ConversationKey) -> ConversationWorker:
        if key not in self._present:
            self._present[key] = ConversationWorker(key)
        return self._present[key]

    def _exchange(
        self, row: InboxRow, fresh: str, first: QueuedMessage | None
    ) -> tuple[ConversationWorker | None, ConversationWorker]:
        """Put a new mailbox in place of the present one; what came after `row` moves into it."""
        former = self._present.pop(row.key, None)
        present = self._present[row.key] = ConversationWorker(row.key, fresh)
        if first is not None:
            self._deliver(present, first)
        if former is not None:
            former.settled = anyio.Event()
            for letter in former.cut(row.seq):
                self._deliver(present, letter)
        return former, present

    async def _rebind(self, row: InboxRow, fresh: str) -> str:
        """Make `fresh` the conversation's thread, waiting rows staying with the old one; return the old one."""
        found = await self._conversations.find(row.key)
        old = found.thread_id if found is not None else None
        while True:
            # Messages of a conversation that had no thread yet get one to themselves.
            theirs = old or str(uuid.uuid4())
            await self._inbox.assign_thread(
                row.conversation_id, before_seq=row.seq, thread_id=theirs
            )
            holds = await self._conversations.bind_thread(row.key, fresh, instead_of=old)
            if holds == fresh:
                return theirs
            old = holds

    def _deliver(self, box: ConversationWorker, letter: QueuedMessage) -> None:
        self._held.add(letter.row.id)
        box.waiting.append(letter)
        if box not in self._working:
            self._working.add(box)
            self._tasks.start_soon(self._work, box)
        elif box.current is not None and self._sessions.busy_mode(letter.inbound) == "interrupt":
            box.control.stop(CancelReason.INTERRUPTED)
        else:
            self._hint(box, letter)

    def _hint(self, box: ConversationWorker, letter: QueuedMessage) -> None:
        """Have a message said to the turn that runs before it, where its sender steers and asked for that turn."""
        inbound = letter.inbound
        is_plain = not (letter.bootstrap or inbound.answers_row or inbound.rewind_point is not None)
        asker = box.current.inbound.sender.user_id if box.current is not None else None
        if not is_plain or letter.row.kind != "chat" or inbound.sender.user_id != asker:
            return
        if self._sessions.busy_mode(letter.inbound) == "steer":
            box.control.tell(letter)

    async def _work(self, box: ConversationWorker) -> None:
        try:
            while box.waiting and not self._closed:
                while not box.settled.is_set():
                    await box.settled.wait()
                if box.waiting:
                    box.current = box.waiting.popleft()
                    box.control = TurnControl()
                    for letter in box.waiting:
                        self._hint(box, letter)
                    await self._turn(box, box.current)
                    self._held -= box.tidy()
        finally:
            self._leave(box)

    def _leave(self, box: ConversationWorker) -> None:
        """Forget a mailbox that has nothing left, or whose task ends."""
        self._working.discard(box)
        self._held.difference_update(letter.row.id for letter in box.waiting)
        if self._present.get(box.key) is box:
            del self._present[box.key]
        if self._former.get((box.key, box.thread_id or "")) is box:
            del self._former[(box.key, box.thread_id or "")]
        if not self._working:
            self._idle.set()

    async def _turn(self, box: ConversationWorker, letter: QueuedMessage) -> None:
        """Run one turn; the boundary at which whatever goes wrong in it ends."""
        row, inbound = letter.row, letter.inbound
        bind_conversation(row.key.channel, row.conversation_id, row.thread_id)
        try:
            await self._run(box, letter)
        except InvalidSession as error:
            texts = inbound.reply_target.texts
            await self._fail(row, inbound, texts.agent_name_invalid.format(name=error.agent))
        except StoreError:
            # The row stays unfinished; the router takes it up again.
            log.exception("turn %s could not be recorded", row.id)
        except Exception:
            log.exception("turn %s failed unexpectedly", row.id)
            await self._fail(row, inbound, None)
        finally:
            self._held.discard(row.id)

    async def _run(self, box: ConversationWorker, letter: QueuedMessage) -> None:
        if letter.inbound.stopped:
            box.control.stop()
        if box.control.stopped and letter.row.attempts == 0:
            # Stopped before it began: nothing of it is visible anywhere.
            await self._inbox.finish(letter.row.id, [])
            return
        plan = TurnPlan(
            text=letter.text,
            session=self._sessions.resolve(letter.inbound),
            bootstrap=letter.bootstrap,
            thread_id=box.thread_id,
            again=letter.inbound.rewind_point,
            is_admin=self._sessions.is_admin(letter.inbound),
            is_press=bool(letter.inbound.answers_row),
            texts=letter.inbound.reply_target.texts,
        )
        await self._turns.run(letter.row, letter.inbound, plan, box.control)

    async def _fail(self, row: InboxRow, inbound: InboundMessage, text: str | None) -> None:
        try:
            if text is None:
                await self._turns.fail(row, inbound)
            else:
                await self._turns.fail(row, inbound, text=text)
        except Exception:
            log.exception("the failure of turn %s could not be told", row.id)


def _is_near(box: ConversationWorker, key: ConversationKey, inbound: InboundMessage) -> bool:
    return (
        box.current is not None
        and replace(box.key, topic="") == replace(key, topic="")
        and box.current.inbound.sender.user_id == inbound.sender.user_id
    )
