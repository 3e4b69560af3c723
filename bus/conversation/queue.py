"""The queue of a conversation: the running turn and the waiting messages of one of its threads."""

from collections import deque
from dataclasses import replace

import anyio

from bus.conversation.control import CancelReason, QueuedMessage
from bus.conversation.turn import Turn
from bus.messages import ConversationKey
from store.inbox import InboxRow


class ConversationQueue:
    """The running turn and the waiting messages of one thread of a conversation.

    Attributes:
        thread_id: The thread of all its turns; None = the conversation's current thread.
        turn: The running turn; None = none.
        released: Not set while a command changes the thread, so that no turn begins.
        first_seq: The sequence number at which its thread begins.
        former: The queue with earlier messages, if it was active when this one was created.
        is_kept: Whether the queue must be kept even if it is empty, because a command changes the thread.
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
        """Whether a message runs or waits."""
        return self.turn is not None or bool(self.waiting)

    @property
    def is_left(self) -> bool:
        """Whether another node continues the running turn."""
        return self.turn is not None and self.turn.control.is_left

    @property
    def row_ids(self) -> frozenset[int]:
        """The rows of the messages that run or wait here."""
        running = [self.turn.row.id] if self.turn is not None else []
        return frozenset([*running, *(message.row.id for message in self.waiting)])

    def find(self, row_id: int) -> QueuedMessage | None:
        """Return the message of a row if it runs or waits here."""
        running = [self.turn.message] if self.turn is not None else []
        return next((one for one in (*running, *self.waiting) if one.row.id == row_id), None)

    def is_running(self, row_id: int) -> bool:
        """Return whether the running turn answers a row."""
        return self.turn is not None and self.turn.row.id == row_id

    def edit(self, message: QueuedMessage, *, steers: bool) -> None:
        """Replace a message that runs or waits here with its edited version.

        The edit of a running message is injected into its run (`steers`), or the message is run again. If the turn is
        closed, the transaction that stores the answer finds the edit.
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
        """Cancel the turn of a deleted message, or keep it from starting. Return whether the message was waiting."""
        turn, row_id = self.turn, message.row.id
        if turn is not None and turn.row.id == row_id:
            turn.control.cancel(CancelReason.DELETED)
            return False
        self._replace(message)
        if turn is not None:
            turn.control.withdraw(row_id)
        return True

    def take_after(self, seq: int) -> list[QueuedMessage]:
        """Remove and return the messages after a sequence number that were not injected."""
        injected = self.turn.control.injected if self.turn is not None else {}
        moved = [one for one in self.waiting if one.row.seq > seq and one.row.id not in injected]
        self.waiting = deque(one for one in self.waiting if one not in moved)
        if self.turn is not None:
            for message in moved:
                self.turn.control.withdraw(message.row.id)
        return moved

    def finish_turn(self, turn: Turn) -> frozenset[int]:
        """Forget the turn, which has ended. Return the IDs of further rows that ended with it.

        Injected messages that the run did not take wait for their own turns.
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
    """Return the stored row of a message that was or should have been injected into a turn that has ended."""
    row = turn.control.injected.get(message.row.id, message).row
    is_released = (
        turn.outcome.released_run_id is not None and row.run_id == turn.outcome.released_run_id
    )
    return replace(row, run_id=None) if is_released else row
