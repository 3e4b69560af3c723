"""One mailbox: what waits and what runs in one thread of a conversation."""

from collections import deque
from dataclasses import replace
from enum import Enum, auto

import anyio

from bus.conversation.attempt import CancelReason, QueuedMessage, TurnControl
from bus.messages import ConversationKey


class QueueState(Enum):
    """Where a message is that was accepted."""

    WAITING = auto()
    RUNNING = auto()
    FINISHING = auto()
    """Its turn says what it says, and is about to be written down."""
    FINISHED = auto()


class ConversationWorker:
    """What waits and what runs in one thread of a conversation.

    Attributes:
        thread_id: The thread of all its turns; None = the conversation's present one.
        settled: Set, unless the thread is being decided just now.
    """

    def __init__(self, key: ConversationKey, thread_id: str | None = None) -> None:
        self.key = key
        self.thread_id = thread_id
        self.waiting: deque[QueuedMessage] = deque()
        self.current: QueuedMessage | None = None
        self.control = TurnControl()
        self.settled = anyio.Event()
        self.settled.set()

    @property
    def busy(self) -> bool:
        """Whether a turn runs or waits."""
        return self.current is not None or bool(self.waiting)

    def letter_of(self, row_id: int) -> QueuedMessage | None:
        """Return the message of a row, if it runs or waits here."""
        current = [self.current] if self.current is not None else []
        return next((one for one in (*current, *self.waiting) if one.row.id == row_id), None)

    def put(self, letter: QueuedMessage) -> None:
        """Put a letter in the place of the one that waits with the same row."""
        self.waiting = deque(letter if one.row.id == letter.row.id else one for one in self.waiting)

    def revise(self, letter: QueuedMessage, *, steers: bool) -> QueueState:
        """Let a message that runs or waits here be what it was edited to; one that runs is told so, or run anew."""
        control, row_id = self.control, letter.row.id
        if self.current is not None and self.current.row.id == row_id:
            if control.is_decided:
                return QueueState.FINISHING
            (control.tell if steers else control.revise)(letter)
            return QueueState.RUNNING
        self.put(letter)
        if row_id in control.said or row_id in {one.row.id for one in control.hints}:
            control.tell(letter)
        return QueueState.WAITING

    def end(self, letter: QueuedMessage) -> None:
        """Let a message that waits have no turn, and end the one that runs."""
        if self.current is not None and self.current.row.id == letter.row.id:
            self.control.stop()
        else:
            self.withdraw(letter)

    def withdraw(self, letter: QueuedMessage) -> QueueState:
        """Let a message that was deleted have no turn, or end the one that it has."""
        control, row_id = self.control, letter.row.id
        if self.current is not None and self.current.row.id == row_id:
            control.stop(CancelReason.WITHDRAWN)
            return QueueState.RUNNING
        self.put(letter)
        control.hints = deque(one for one in control.hints if one.row.id != row_id)
        return QueueState.WAITING

    def cut(self, seq: int) -> list[QueuedMessage]:
        """Take out and return what came after a place in the conversation's order and was not said to a run yet."""
        said = self.control.said
        moves = [one for one in self.waiting if one.row.seq > seq and one.row.id not in said]
        gone = {one.row.id for one in moves}
        self.waiting = deque(one for one in self.waiting if one.row.id not in gone)
        self.control.hints = deque(one for one in self.control.hints if one.row.id not in gone)
        return moves

    def tidy(self) -> frozenset[int]:
        """Forget what ended with the turn that is over, and return its rows.

        What was said in vain to the turn's run waits for a turn of its own.
        """
        said, settled = self.control.said, self.control.settled
        self.current = None
        self.control.over.set()
        self.waiting = deque(
            replace(one, row=said[one.row.id].row) if one.row.id in said else one
            for one in self.waiting
            if one.row.id not in settled
        )
        return settled
