"""Control: others leave an intervention, which changes nothing by itself, and wake the turn."""

import math
from collections import deque
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import TypeVar

import anyio
import anyio.lowlevel

from bus.messages import InboundMessage
from store.inbox import InboxRow

T = TypeVar("T")

START_S = 2.0
"""How long a run that is being started is waited for once somebody ends the turn, seconds."""

QUIET_S = 0.5
"""How long no further edit of a message may come before it is run again: people correct themselves twice."""


class CancelReason(StrEnum):
    """Why a turn is cancelled from outside."""

    STOPPED = "stopped"
    """Somebody asked for it."""
    INTERRUPTED = "interrupted"
    """A newer message is to be answered instead."""
    DELETED = "deleted"
    """The message was deleted."""
    EDITED = "edited"
    """The message was edited: it is run again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class QueuedMessage:
    """A message that waits for its turn, or has it.

    Attributes:
        text: The person's own words, or those that a command repeats.
        bootstrap: Whether the turn sets the agent up.
        failure_text: What the turn fails with, instead of a run; "" = it runs.
    """

    row: InboxRow
    inbound: InboundMessage
    text: str
    bootstrap: bool = False
    failure_text: str = ""

    @property
    def prompt(self) -> str:
        """The text for the agent: the words, then what the message quotes."""
        return replace(self.inbound, text=self.text).prompt


class Control:
    """What others want of a turn: they leave an intervention, which changes nothing by itself, and wake the turn.

    Once it `is_closed`, the answer is decided and no intervention counts any more.

    Attributes:
        reason: Why the turn is cancelled; None = it is not.
        stopped_seq: A stop means messages up to this place in the conversation's order.
        steered: Further messages for the run, first to last.
        injected: Messages that were injected, or are being injected, by row id; of two versions the later counts.
            The queue asks for them also when the turn is over.
        is_former: Whether its conversation goes on in another thread (`/new`).
        is_handed_over, is_left: Another node continues it if its run is stopped; that has happened.
        finished: Set when the turn is over.
    """

    def __init__(self, row: InboxRow) -> None:
        self.reason: CancelReason | None = None
        self.stopped_seq: float = math.inf
        self.steered: deque[QueuedMessage] = deque()
        self.injected: dict[int, QueuedMessage] = {}
        self.is_former = self.is_handed_over = self.is_left = self.is_closed = False
        self.finished = anyio.Event()
        self._row = row
        self._edited: QueuedMessage | None = None
        self._edited_at = 0.0
        self._scope: anyio.CancelScope | None = None
        self._is_starting = False
        self._changed = anyio.Event()

    def cancel(self, reason: CancelReason = CancelReason.STOPPED) -> None:
        """End the turn; safe at any time and twice. The first reason counts, except that of an edit."""
        if self.is_closed:
            return
        if self.reason in (None, CancelReason.EDITED):
            self.reason = reason
        self._wake()
        if self._scope is not None:
            # A run that is being started has no id yet: left alone, it would go on for nobody.
            patience_s = START_S if self._is_starting else 0.0
            self._scope.deadline = min(self._scope.deadline, anyio.current_time() + patience_s)

    def stop(self, *, before: int | None = None) -> None:
        """Cancel the turn, and what was to be injected into its run; `before` = up to this place in the order."""
        known = [self._row, *(one.row for one in (*self.injected.values(), *self.steered))]
        last = max(row.seq for row in known)
        self.stopped_seq = last if before is None else min(last, before)
        self.cancel(CancelReason.STOPPED)

    def edit(self, message: QueuedMessage) -> None:
        """Run the turn again with the message as it was edited."""
        if self.is_closed:
            return
        self._edited, self._edited_at = message, anyio.current_time()
        self.cancel(self.reason or CancelReason.EDITED)

    def steer(self, message: QueuedMessage) -> None:
        """Inject a message into the run as soon as it listens; another version that waits for that is replaced."""
        self.withdraw(message.row.id)
        self.steered.append(message)
        self._wake()

    def withdraw(self, row_id: int) -> None:
        """Do not inject a message that was not injected yet."""
        self.steered = deque(one for one in self.steered if one.row.id != row_id)

    def leave_thread(self) -> None:
        """Note that the conversation goes on in another thread."""
        self.is_former = True

    def hand_over(self) -> None:
        """Leave the turn to another node if its run is stopped from now on."""
        self.is_handed_over = True

    def has_injected(self, row_id: int) -> bool:
        """Return whether a message was injected, or is to be."""
        return row_id in self.injected or any(one.row.id == row_id for one in self.steered)

    def newest(self, message: QueuedMessage) -> QueuedMessage:
        """Return the version of a message that waits to be injected, or to be run again, if there is one."""
        waiting = [*self.steered, *([self._edited] if self._edited else [])]
        return next((one for one in waiting if one.row.id == message.row.id), message)

    def close(self) -> bool:
        """Decide the answer, unless an intervention waits. Nothing is awaited between the question and the decision."""
        self.is_closed = self.is_closed or self.reason is None
        return self.is_closed

    def close_answered(self) -> None:
        """Decide the answer: the newer message, or version, came too late."""
        if self.reason in (CancelReason.INTERRUPTED, CancelReason.EDITED):
            self.reason = None
        self.is_closed = True

    def close_cancelled(self) -> None:
        """Decide that the turn ends for the reason that it has."""
        self.is_closed = True

    async def until_cut(self, work: Callable[[], Awaitable[T]]) -> T | None:
        """Do the only part of a turn that an intervention cuts short, or keeps from beginning; None = it did."""
        if self.reason is not None:
            return None
        with anyio.CancelScope() as scope:
            self._scope = scope
            try:
                return await work()
            finally:
                self._scope = None
        return None

    async def starting(self, start: Callable[[], Awaitable[T]]) -> T:
        """Start a run: an intervention waits `START_S` for its id. The process's end does not."""
        # An intervention may stand since the last call that waited.
        await anyio.lowlevel.checkpoint_if_cancelled()
        self._is_starting = True
        try:
            return await start()
        finally:
            self._is_starting = False
            if self.reason is not None and self._scope is not None:
                self._scope.cancel()

    def inject_again(self) -> None:
        """Inject again what is rewound with the run; a version that still waits is newer than one that was injected.

        The message's own corrections are not among them: it is run as it reads now.
        """
        again = {one.row.id: one for one in (*self.injected.values(), *self.steered)}
        again.pop(self._row.id, None)
        self.injected, self.steered = {}, deque(again.values())

    async def next_steered(self) -> QueuedMessage:
        """Wait for a message to inject; return the first."""
        while not self.steered:
            await self._changed.wait()
        return self.steered[0]

    async def last_edit(self) -> QueuedMessage | None:
        """Wait until no edit came for `QUIET_S`; return the last one. None = the turn is not to be run again."""
        while self.reason is CancelReason.EDITED:
            with anyio.CancelScope(deadline=self._edited_at + QUIET_S) as quiet:
                await self._changed.wait()
            if quiet.cancelled_caught and self.reason is CancelReason.EDITED:
                found, self.reason, self._edited = self._edited, None, None
                # What still waits to be injected is newer than what had the turn run again.
                return self.newest(found) if found is not None else None
        return None

    async def pause(self, wait_s: float) -> None:
        """Wait, but no longer than until somebody wants something of the turn."""
        with anyio.move_on_after(wait_s):
            await self._changed.wait()

    def _wake(self) -> None:
        self._changed.set()
        self._changed = anyio.Event()
