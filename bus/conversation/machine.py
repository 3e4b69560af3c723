"""A turn: one message being answered, and the loop that takes it through the table of `bus.conversation.states`."""

import logging
import math
from collections import deque
from collections.abc import Awaitable, Callable, Mapping
from contextlib import AsyncExitStack
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any

import anyio
from anyio.abc import TaskGroup

from bus.config import LEAD_AGENT, SessionConfig
from bus.conversation.approvals import OpenQuestion
from bus.conversation.states import (
    FINAL,
    INTERRUPTIBLE,
    Effect,
    TurnEvent,
    TurnState,
    next_step,
)
from bus.errors import is_store_outage, unwrapped
from bus.history.versions import message_ids
from bus.locales import Messages
from bus.messages import InboundMessage
from bus.outbound.live_reply import LiveReply
from bus.retry import Backoff
from bus.runs.replies import Reply, ReplyFold
from bus.runs.uploads import AttachmentUploadResult
from store.inbox import InboxRow

log = logging.getLogger(__name__)

START_PATIENCE_S = 2.0
"""How long a run's id is waited for when the turn is cancelled while the run starts, seconds."""

STORE_BACKOFF = Backoff(first_s=0.25, cap_s=5.0)
"""The pauses of a turn while the journal cannot be read or written."""


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


class RunAttempt:
    """What is known of the run that answers one version of a message.

    Attributes:
        ids: The ids in the thread of the message's versions; `message_id` is that of this one.
        is_requested: Whether the server was asked to start the run; `is_over`: whether it ended.
        may_exist: Whether an earlier process may have started the run: then it is looked up first.
        thread_exists: Whether the thread is at the server. Only a new one is created first; one that the server
            lost is created again when the server says so.
        attachments: Files that are not uploaded yet.
        resume: The answer to what the thread is interrupted by; None = the message starts a run.
        tries: How often the run could not be started or followed, since `began_at` (anyio's clock); `wait_s` is
            the pause before the next try.
    """

    def __init__(self, message: QueuedMessage, row: InboxRow, *, thread_exists: bool) -> None:
        inbound = message.inbound
        self.message = message
        self.thread_id = row.thread_id or ""
        self.ids = message_ids(inbound)
        self.message_id = self.ids[-1]
        self.run_id = row.run_id
        self.is_requested = False
        self.is_over = False
        self.may_exist = row.attempts > 1 or inbound.edit_count > 0
        self.thread_exists = thread_exists
        self.attachments = inbound.attachments
        self.uploads = AttachmentUploadResult(
            files=inbound.rewind_point.files if inbound.rewind_point else ()
        )
        self.question: OpenQuestion | None = None
        self.resume: object = None
        self.fold = ReplyFold(self.message_id)
        self.tries = 0
        self.wait_s = 0.0
        self.began_at = anyio.current_time()

    @property
    def prompt(self) -> str:
        """The text for the agent, with a line for each file that needs one."""
        return self.uploads.prompt(self.message.prompt, self.message.inbound.reply_target.texts)

    def take_uploads(self, former: "RunAttempt") -> None:
        """Keep the files of an earlier version of the message, if they are the same: they are in the thread."""
        inbound = former.message.inbound
        has_files = bool(former.uploads.files or former.uploads.problems)
        if has_files and inbound.attachments == self.attachments:
            self.uploads, self.attachments = former.uploads, ()


class Turn:
    """One message being answered.

    `cancel`, `edit`, `steer` and `withdraw` may be called from any task at any time; all else belongs to the task of
    `run`. Only that task changes `state`, except that `steer` and the injection it starts change RUNNING to STEERING
    and back.

    Args:
        handlers: What carries out each effect.
        session: The merged session of the sender; None = it cannot be used, and `failure_text` says why.
        thread_id: The thread to use; None = the conversation's present one.

    Attributes:
        message: The message, as it was last edited.
        is_admin: Whether the sender may decide for others.
        row: The message's inbox row, as the turn knows it.
        reason: Why the turn is cancelled; None = it is not.
        to_inject: Further messages for the run, first to last.
        injected: Messages that were injected, or are being injected, by row id; of two versions the later counts.
        consumed: Messages that end with this turn.
        outdated: Those of them that were edited too late for the run.
        released_run_id: The run that answers nothing any more, because the message was deleted; None = there is none.
        stopped_seq: A stop means messages up to this place in the conversation's order.
        is_former: Whether its conversation goes on in another thread (`/new`).
        is_handed_over, is_left: Another node continues it if its run is stopped; that has happened.
        finished: Set when the turn is over.
        stack: Holds what is shown while the turn runs; closed before the answer is committed.
        run_tasks: Tasks beside the run's stream; None = nothing is read.
    """

    attempt: RunAttempt

    def __init__(
        self,
        message: QueuedMessage,
        handlers: "Handlers",
        *,
        session: SessionConfig | None,
        thread_id: str | None = None,
        is_admin: bool = False,
        failure_text: str = "",
    ) -> None:
        self.message = message
        self.row = message.row
        self.session = session or SessionConfig()
        self.thread_id = thread_id
        self.is_admin = is_admin
        self.failure_text = failure_text
        self.state = TurnState.QUEUED
        self.reason: CancelReason | None = None
        self.to_inject: deque[QueuedMessage] = deque()
        self.injected: dict[int, QueuedMessage] = {}
        self.consumed: list[QueuedMessage] = []
        self.is_former = False
        self.is_handed_over = False
        self.is_left = False
        self.finished = anyio.Event()
        self.stack = AsyncExitStack()
        self.live_reply: LiveReply | None = None
        self.reply: Reply | None = None
        self.run_tasks: TaskGroup | None = None
        self._handlers = handlers
        self.outdated: list[QueuedMessage] = []
        self.released_run_id: str | None = None
        self.stopped_seq: float = math.inf
        self._edited: QueuedMessage | None = None
        self._edited_at = 0.0
        self._is_signalled = False
        self._changed = anyio.Event()
        self._scope: anyio.CancelScope | None = None

    @property
    def texts(self) -> Messages:
        """What the bot itself says to the sender."""
        return self.message.inbound.reply_target.texts

    @property
    def agent(self) -> str:
        """The custom agent that is to answer; "" for the lead agent."""
        return str(self.session.context.get("agent_name") or "")

    @property
    def assistant_id(self) -> str:
        """The assistant that is to answer: the lead agent, or a graph of one's own."""
        return self.session.assistant_id or LEAD_AGENT

    @property
    def context(self) -> Mapping[str, Any]:
        """The run's context: the session's, then what the platform knows."""
        context = {
            **self.session.context,
            "thread_id": self.attempt.thread_id,
            "channel_name": self.row.key.channel,
        }
        return {**context, "is_bootstrap": True} if self.message.bootstrap else context

    @property
    def is_decided(self) -> bool:
        """Whether its answer is final: it can be neither cancelled nor edited any more."""
        return self.state is TurnState.DELIVERING or self.state in FINAL

    @property
    def takes_parts(self) -> bool:
        """Whether it may run again with further parts of its message: no words of its answer were shown."""
        is_open = not self.is_decided and self.reason in (None, CancelReason.EDITED)
        return is_open and not (self.live_reply is not None and self.live_reply.shows_answer)

    @property
    def has_answer(self) -> bool:
        """Whether its run ended with an answer, which no newer message interrupts any more."""
        reply = self.reply
        return reply is not None and not (reply.failed or reply.question.interrupts)

    def cancel(self, reason: CancelReason = CancelReason.STOPPED) -> None:
        """Cancel the turn; safe at any time and twice. The first reason counts, except that of an edit."""
        if self.is_decided or (reason is CancelReason.INTERRUPTED and self.has_answer):
            return
        if self.reason is None or self.reason is CancelReason.EDITED:
            self.reason = reason
        self._changed.set()
        self._changed = anyio.Event()
        if self.state is TurnState.CANCELLING:
            return
        self._is_signalled = True
        if self._scope is not None:
            # A run that the server is starting has no id yet: left alone, it would go on for nobody.
            is_starting = self.run_tasks is not None and self.attempt.is_requested
            patience_s = START_PATIENCE_S if is_starting and self.attempt.run_id is None else 0.0
            self._scope.deadline = anyio.current_time() + patience_s

    def stop(self, *, before: int | None = None) -> None:
        """Cancel the turn, and what was to be injected into its run; `before` = up to this place in the order."""
        known = [self.row, *(one.row for one in (*self.injected.values(), *self.to_inject))]
        last = max(row.seq for row in known)
        self.stopped_seq = last if before is None else min(last, before)
        self.cancel(CancelReason.STOPPED)

    def edit(self, message: QueuedMessage) -> None:
        """Run the turn again with the message as it was edited."""
        self._edited, self._edited_at = message, anyio.current_time()
        if self.reason is None:
            self.cancel(CancelReason.EDITED)

    def steer(self, message: QueuedMessage) -> None:
        """Inject a message into the run as soon as it listens; another version that waits for that is replaced."""
        self.withdraw(message.row.id)
        self.to_inject.append(message)
        self.inject()

    def has_injected(self, row_id: int) -> bool:
        """Return whether a message was injected, or is to be."""
        return row_id in self.injected or any(one.row.id == row_id for one in self.to_inject)

    def newest(self, message: QueuedMessage) -> QueuedMessage:
        """Return the version of a message that waits to be injected, or to be run again, if there is one."""
        waiting = [*self.to_inject, *([self._edited] if self._edited else [])]
        return next((one for one in waiting if one.row.id == message.row.id), message)

    def withdraw(self, row_id: int) -> None:
        """Do not inject a message that was not injected yet."""
        self.to_inject = deque(one for one in self.to_inject if one.row.id != row_id)

    def injection_done(self, message: QueuedMessage) -> None:
        """Go on with the next message to inject; a newer version of this one stays."""
        self.to_inject = deque(one for one in self.to_inject if one is not message)

    def inject(self) -> None:
        """Have what waits for it injected, if the run listens now."""
        if self.to_inject and self.state is TurnState.RUNNING and self.run_tasks is not None:
            self.run_tasks.start_soon(self._handle_beside, self._move(TurnEvent.STEER))

    def restart(self) -> None:
        """Go on with the message as it was last edited. What was injected is injected again: it is rewound with it."""
        # What still waits to be injected is newer than what had the turn run again.
        if self._edited is not None:
            self.message, self._edited = self.newest(self._edited), None
        if self.reason is CancelReason.EDITED:
            self.reason = None
        again = [*self.injected.values(), *self.to_inject]
        self.injected, self.outdated = {}, []
        self.to_inject = deque(one for one in again if one.row.id != self.row.id)
        former, self.reply = self.attempt, None
        self.attempt = RunAttempt(self.message, self.row, thread_exists=former.thread_exists)
        self.attempt.take_uploads(former)

    async def wait_for_last_edit(self, quiet_s: float) -> bool:
        """Wait until no edit came for `quiet_s` seconds; return whether the turn is still to be run again."""
        while self.reason is CancelReason.EDITED:
            with anyio.CancelScope(deadline=self._edited_at + quiet_s) as scope:
                await self._changed.wait()
            if scope.cancelled_caught and anyio.current_time() >= self._edited_at + quiet_s:
                return True
        return False

    async def pause(self, wait_s: float) -> None:
        """Wait, but no longer than until somebody cancels the turn."""
        with anyio.move_on_after(wait_s):
            await self._changed.wait()

    async def leave(self) -> None:
        """Do nothing more until the process ends: another node continues the turn from the state of its thread."""
        self.is_left = True
        await anyio.sleep_forever()

    async def run(self) -> None:
        """Take the turn to its end. Raises nothing but cancellation, after which a restart takes it up again."""
        event: TurnEvent | None = self._first_event()
        failures = 0
        try:
            async with self.stack:
                while event is not None:
                    before = self.state
                    try:
                        with unwrapped():
                            event = await self._step(event)
                        failures = 0
                    except Exception as error:
                        self.state = before
                        if is_store_outage(error):
                            # The transition did not happen: it is applied again; a run that went on is joined.
                            failures += 1
                            log.warning("turn %s waits for the journal: %s", self.row.id, error)
                            await self.pause(STORE_BACKOFF.wait_s(failures))
                            continue
                        log.exception("turn %s failed in state %s", self.row.id, before)
                        if event is TurnEvent.CRASHED:
                            return
                        event = TurnEvent.CRASHED
        finally:
            self.finished.set()

    async def apply(self, event: TurnEvent) -> None:
        """Apply an event that happens inside an effect."""
        await self._handlers[self._move(event)](self)
        if self._is_signalled and self._scope is not None:
            self._scope.cancel()

    def _first_event(self) -> TurnEvent:
        if self.failure_text:
            return TurnEvent.GIVE_UP
        if self.message.inbound.is_deleted:
            self.cancel(CancelReason.DELETED)
        elif self.message.inbound.is_stopped:
            # Stopped before a restart: of other messages, it meant what the run consumed; later ones are answered.
            self.stopped_seq = self.row.seq
            self.cancel()
        if self.row.state == "running" and self.row.start is None:
            return TurnEvent.TAKE
        if self._is_signalled:
            return TurnEvent.CANCEL
        return TurnEvent.TAKE if self.row.run_id is None else TurnEvent.CHECK

    def _move(self, event: TurnEvent) -> Effect:
        """Change the state as the table says; return the effect that belongs to it."""
        transition = next_step(self.state, event)
        log.debug("turn %s: %s, %s -> %s", self.row.id, self.state, event, transition.target)
        self.state = transition.target
        return transition.effect

    async def _step(self, event: TurnEvent) -> TurnEvent | None:
        """Apply an event; return the one that follows, None at the end."""
        effect = self._move(event)
        handler = self._handlers[effect]
        if effect not in INTERRUPTIBLE:
            return await handler(self)
        outcome = None
        if not self._is_signalled:
            try:
                with anyio.CancelScope() as self._scope:
                    outcome = await handler(self)
            finally:
                self._scope = None
        if self._is_signalled:
            self._is_signalled = False
            return TurnEvent.CANCEL
        return outcome

    async def _handle_beside(self, effect: Effect) -> None:
        event = await self._handlers[effect](self)
        if event is not None:
            self._move(event)


EffectHandler = Callable[[Turn], Awaitable[TurnEvent | None]]
"""Carries out an effect; returns the event that follows, None at the end or beside a run."""

Handlers = Mapping[Effect, EffectHandler]
