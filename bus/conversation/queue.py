"""The queue of one conversation: what waits and what runs in one of its threads."""

from collections import deque
from dataclasses import replace

import anyio

from bus.conversation.control import CancelReason, QueuedMessage
from bus.conversation.turn import Turn
from bus.messages import ConversationKey
from store.inbox import InboxRow


class ConversationQueue:
    """What waits and what runs in one thread of a conversation.

    Attributes:
        thread_id: The thread of all its turns; None = the conversation's present one.
        turn: The turn that runs; None = none.
        released: Set, unless a command decides on the thread: no turn begins meanwhile.
        first_seq: The place in the conversation's order where its thread begins.
        former: Has what came before that, if it was at work then.
        is_kept: It is not to be forgotten, though it may have nothing to do: a command decides on the thread.
    """

    def __init__(self, key: ConversationKey, thread_id: str | None = None) -> None:
        self.key = key
        self.thread_id = thread_id
        self.first_seq = 0
        self.former: ConversationQueue | None = None
        self.is_kept = False
        self.waiting: deque[QueuedMessage] = deque()
        self.turn: Turn | None = None
        self.released = anyio.Event()
        self.released.set()

    @property
    def is_busy(self) -> bool:
        """Whether a turn runs or waits."""
        return self.turn is not None or bool(self.waiting)

    @property
    def is_left(self) -> bool:
        """Whether another node continues the turn that runs."""
        return self.turn is not None and self.turn.control.is_left

    @property
    def row_ids(self) -> frozenset[int]:
        """The rows of the messages that run or wait here."""
        running = [self.turn.row.id] if self.turn is not None else []
        return frozenset([*running, *(message.row.id for message in self.waiting)])

    def find(self, row_id: int) -> QueuedMessage | None:
        """Return the message of a row, if it runs or waits here."""
        running = [self.turn.message] if self.turn is not None else []
        return next((one for one in (*running, *self.waiting) if one.row.id == row_id), None)

    def is_running(self, row_id: int) -> bool:
        """Return whether the turn that runs is that of a row."""
        return self.turn is not None and self.turn.row.id == row_id

    def edit(self, message: QueuedMessage, *, steers: bool) -> None:
        """Let a message that runs or waits here be what it was edited to.

        One that runs is injected into its run (`steers`), or run again. Once its answer is decided, the edit is found
        by the transaction that stores the answer.
        """
        turn, row_id = self.turn, message.row.id
        if turn is None or turn.row.id != row_id:
            self._replace(message)
        if turn is None or turn.control.is_closed:
            return
        if turn.row.id == row_id:
            (turn.control.steer if steers else turn.control.edit)(message)
        elif turn.control.has_injected(row_id):
            turn.control.steer(message)

    def delete(self, message: QueuedMessage) -> bool:
        """Give a message that was deleted no turn, or cancel the one that it has; return whether it waited."""
        turn, row_id = self.turn, message.row.id
        if turn is not None and turn.row.id == row_id:
            turn.control.cancel(CancelReason.DELETED)
            return False
        self._replace(message)
        if turn is not None:
            turn.control.withdraw(row_id)
        return True

    def take_after(self, seq: int) -> list[QueuedMessage]:
        """Remove and return what came after a place in the conversation's order and was not injected yet."""
        injected = self.turn.control.injected if self.turn is not None else {}
        moved = [one for one in self.waiting if one.row.seq > seq and one.row.id not in injected]
        self.waiting = deque(one for one in self.waiting if one not in moved)
        if self.turn is not None:
            for message in moved:
                self.turn.control.withdraw(message.row.id)
        return moved

    def finish_turn(self, turn: Turn) -> frozenset[int]:
        """Forget the turn that is over; return the rows that ended with it.

        What was injected and not taken by the run waits for a turn of its own.
        """
        taken = frozenset(message.row.id for message in turn.outcome.taken)
        self.turn = None
        self.waiting = deque(
            replace(one, row=_row_after(turn, one))
            if turn.control.has_injected(one.row.id)
            else one
            for one in self.waiting
            if one.row.id not in taken
        )
        return taken

    def _replace(self, message: QueuedMessage) -> None:
        row_id = message.row.id
        self.waiting = deque(message if one.row.id == row_id else one for one in self.waiting)


def _row_after(turn: Turn, message: QueuedMessage) -> InboxRow:
    """Return the row of a message that was injected into a turn that is over, or was to be, as the journal has it."""
    row = turn.control.injected.get(message.row.id, message).row
    is_released = (
        turn.outcome.released_run_id is not None and row.run_id == turn.outcome.released_run_id
    )
    return replace(row, run_id=None) if is_released else row
