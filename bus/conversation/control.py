"""Control: the part of a turn through which other tasks stop it, edit its message, or inject further messages."""

import math
from collections import deque
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from enum import StrEnum
from typing import TypeVar

import anyio
import anyio.lowlevel

from bus.messages import InboundMessage, prompt_of
from store.inbox import InboxRow

T = TypeVar("T")

START_S = 2.0
"""How long to wait for the ID of a run that is being started when its turn is canceled, seconds."""

QUIET_S = 0.5
"""How long to wait for further edits of a message before running it again, seconds. People often correct twice."""


class CancelReason(StrEnum):
    """Why another task canceled a turn."""

    STOPPED = "stopped"
    """A person stopped it."""
    INTERRUPTED = "interrupted"
    """The bot answers a newer message instead."""
    DELETED = "deleted"
    """The message was deleted."""
    EDITED = "edited"
    """The message was edited, so it is run again."""
    TAKEN_OVER = "taken_over"
    """A person answers in the conversation instead."""


@dataclass(frozen=True, slots=True, kw_only=True)
class QueuedMessage:
    """A message that is queued or being answered.

    Attributes:
        text: The person's own words, or the message that a command repeats.
        bootstrap: Whether the turn lets the agent set itself up (/bootstrap).
        failure_text: If not "", no run starts, and the turn fails with this text.
    """

    row: InboxRow
    inbound: InboundMessage
    text: str
    bootstrap: bool = False
    failure_text: str = ""

    @property
    def prompt(self) -> str:
        """The text for the agent: the words, then the quotations."""
        return prompt_of(self.text, self.inbound.quoted)


class Control:
    """Interventions of other tasks in a turn.

    Each method records an intervention and wakes the turn, which acts on it. Once `is_closed` is set, the answer is
    decided and interventions have no effect.

    Attributes:
        reason: Why the turn is canceled; None = it is not canceled.
        by_operator: Whether an operator stopped it. The people in its chat do not know about that.
        stopped_seq: A stop includes injected messages up to this sequence number.
        steered: Messages to inject into the run, in order.
        injected: Messages that were or are being injected, by row ID, each in its latest version. The queue reads them
            after the turn has ended, too.
        is_former: Whether its conversation has moved to another thread (`/new`).
        is_handed_over: Whether another node continues the turn if this node stops its run.
        is_left: Whether this node has stopped the run, so that another node continues the turn.
        finished: Set when the turn has ended.
    """

    def __init__(self, row: InboxRow) -> None:
        self.reason: CancelReason | None = None
        self.by_operator = False
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
        """Cancel the turn.

        May be called at any time, and more than once. The first reason counts, but any other reason replaces EDITED.
        """
        if self.is_closed:
            return
        if self.reason in (None, CancelReason.EDITED):
            self.reason = reason
        self._wake()
        if self._scope is not None:
            # A run that is being started cannot be canceled before its ID is known.
            patience_s = START_S if self._is_starting else 0.0
            self._scope.deadline = min(self._scope.deadline, anyio.current_time() + patience_s)

    def stop(self, *, before: int | None = None, by_operator: bool = False) -> None:
        """Cancel the turn and its injected messages, sent or not.

        `before`: only messages up to this sequence number are canceled.
        """
        known = [self._row, *(one.row for one in (*self.injected.values(), *self.steered))]
        last = max(row.seq for row in known)
        self.stopped_seq = last if before is None else min(last, before)
        if self.reason in (None, CancelReason.EDITED):
            self.by_operator = by_operator
        self.cancel(CancelReason.STOPPED)

    def edit(self, message: QueuedMessage) -> None:
        """Run the turn again with the edited message."""
        if self.is_closed:
            return
        self._edited, self._edited_at = message, anyio.current_time()
        self.cancel(self.reason or CancelReason.EDITED)

    def steer(self, message: QueuedMessage) -> None:
        """Inject a message into the run as soon as the run accepts messages. Replaces a waiting version of it."""
        self.withdraw(message.row.id)
        self.steered.append(message)
        self._wake()

    def withdraw(self, row_id: int) -> None:
        """Do not inject a message, unless it has been injected already."""
        self.steered = deque(one for one in self.steered if one.row.id != row_id)

    def leave_thread(self) -> None:
        """Record that the conversation has moved to another thread."""
        self.is_former = True

    def hand_over(self) -> None:
        """From now on, let another node continue the turn if its run is stopped."""
        self.is_handed_over = True

    def has_injected(self, row_id: int) -> bool:
        """Return whether a message has been injected or waits to be injected."""
        return row_id in self.injected or any(one.row.id == row_id for one in self.steered)

    def newest(self, message: QueuedMessage) -> QueuedMessage:
        """Return the version of a message that waits to be injected or run again, or else the given version."""
        waiting = [*self.steered, *([self._edited] if self._edited else [])]
        return next((one for one in waiting if one.row.id == message.row.id), message)

    def close(self) -> bool:
        """Close the turn unless it is canceled.

        Return whether it is closed. Does not await, so that nothing can happen in between.
        """
        self.is_closed = self.is_closed or self.reason is None
        return self.is_closed

    def close_answered(self) -> None:
        """Close the turn with its answer, because the newer message or edit came too late."""
        if self.reason in (CancelReason.INTERRUPTED, CancelReason.EDITED):
            self.reason = None
        self.is_closed = True

    def close_canceled(self) -> None:
        """Close the turn with its current reason."""
        self.is_closed = True

    async def until_cut(self, work: Callable[[], Awaitable[T]]) -> T | None:
        """Await `work`, the only part of a turn that a cancellation interrupts.

        Return None if it was interrupted or did not begin.
        """
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
        """Await `start`, which starts a run.

        A canceled turn waits up to `START_S` for the run's ID. If the process ends, it does not wait.
        """
        # The turn may have been canceled since the last await.
        await anyio.lowlevel.checkpoint_if_cancelled()
        self._is_starting = True
        try:
            return await start()
        finally:
            self._is_starting = False
            if self.reason is not None and self._scope is not None:
                self._scope.cancel()

    def inject_again(self) -> None:
        """Inject messages again that were removed from the thread with the run, each in its newest version.

        Edits of the turn's own message are not injected, because the new run begins with its current text.
        """
        again = {one.row.id: one for one in (*self.injected.values(), *self.steered)}
        again.pop(self._row.id, None)
        self.injected, self.steered = {}, deque(again.values())

    async def next_steered(self) -> QueuedMessage:
        """Wait for a message to inject. Return the first one without removing it."""
        while not self.steered:
            await self._changed.wait()
        return self.steered[0]

    async def last_edit(self) -> QueuedMessage | None:
        """Wait until no edit has come for `QUIET_S` and return the last one. None = the turn must not run again."""
        while self.reason is CancelReason.EDITED:
            with anyio.CancelScope(deadline=self._edited_at + QUIET_S) as quiet:
                await self._changed.wait()
            if quiet.cancelled_caught and self.reason is CancelReason.EDITED:
                found, self.reason, self._edited = self._edited, None, None
                # A version that waits to be injected is newer than the edit.
                return self.newest(found) if found is not None else None
        return None

    async def pause(self, wait_s: float) -> None:
        """Wait for the given time, or until the next intervention."""
        with anyio.move_on_after(wait_s):
            await self._changed.wait()

    def _wake(self) -> None:
        self._changed.set()
        self._changed = anyio.Event()
