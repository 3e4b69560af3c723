"""A turn in progress: how a message is to be run, what is known of its run, the handle that ends it."""

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any

import anyio

from bus.config import SessionConfig
from bus.conversation.approvals import OpenQuestion
from bus.history.versions import message_ids
from bus.locales import Messages
from bus.locales.en import ENGLISH
from bus.messages import InboundMessage, RewindPoint
from bus.runs.replies import Reply, ReplyFold
from bus.runs.uploads import UploadResult
from store.inbox import InboxRow


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnPlan:
    """How a message is to be run.

    Attributes:
        text: What the agent is told.
        session: The merged session of this sender, channel and conversation.
        bootstrap: Whether this turn sets the agent up.
        thread_id: The thread to use; None = the conversation's present one.
        again: What was said before and is said anew, in place of it.
        is_admin: Whether the sender may decide for others.
        is_press: Whether it was a button that said it.
        texts: What the bot itself says to the sender.
    """

    text: str
    session: SessionConfig
    bootstrap: bool = False
    thread_id: str | None = None
    again: RewindPoint | None = None
    is_admin: bool = False
    is_press: bool = False
    texts: Messages = ENGLISH


@dataclass(frozen=True, slots=True, kw_only=True)
class QueuedMessage:
    """A message that waits for its turn, or has it."""

    row: InboxRow
    inbound: InboundMessage
    text: str
    bootstrap: bool = False


class CancelReason(StrEnum):
    """Why a running turn is ended from outside."""

    STOPPED = "stopped"
    """Somebody asked for it."""
    INTERRUPTED = "interrupted"
    """A newer message is to be answered instead."""
    WITHDRAWN = "withdrawn"
    """The message was deleted."""
    REVISED = "revised"
    """The message was edited: it is run anew."""


class TurnControl:
    """The handle by which others end a running turn, or say something to it.

    Attributes:
        why: Why the turn is to end; None = it is not.
        hints: What is yet to be said to the run, first to last.
        said: What was said to it, or is being said; of two letters of one row the later counts.
        settled: The ids of the rows that were finished together with the turn's own.
        revision: The message as it was edited, for a turn that is run anew.
        over: Set when the turn is written down, or broke off.
    """

    def __init__(self) -> None:
        self.why: CancelReason | None = None
        self.hints: deque[QueuedMessage] = deque()
        self.said: dict[int, QueuedMessage] = {}
        self.settled: frozenset[int] = frozenset()
        self.revision: QueuedMessage | None = None
        self.over = anyio.Event()
        self._is_decided = False
        self._stop = anyio.Event()
        self._news = anyio.Event()
        self._quiet_since = 0.0

    @property
    def stopped(self) -> bool:
        """Whether the turn is to end."""
        return self._stop.is_set()

    @property
    def is_decided(self) -> bool:
        """Whether what the turn says stands: it cannot be run anew any more."""
        return self._is_decided

    def stop(self, why: CancelReason = CancelReason.STOPPED) -> None:
        """End the turn's run now; safe to call at any time and twice. The first reason counts, but for an edit's."""
        if self.why is None or self.why is CancelReason.REVISED:
            self.why = why
        self._stop.set()
        self._news.set()

    def revise(self, letter: QueuedMessage) -> None:
        """Have the turn run anew with a message as it was edited."""
        self.revision, self._quiet_since = letter, anyio.current_time()
        if self.why is None:
            self.stop(CancelReason.REVISED)

    def tell(self, letter: QueuedMessage) -> None:
        """Say a message to the run as soon as it listens; one that waits for that already is replaced."""
        waiting = [one for one in self.hints if one.row.id != letter.row.id]
        self.hints = deque([*waiting, letter])
        self._news.set()

    async def next_hint(self) -> QueuedMessage:
        """Return what is to be said next, when there is something; it stays there until it is dropped."""
        while not self.hints:
            self._news = anyio.Event()
            await self._news.wait()
        return self.hints[0]

    def drop(self, letter: QueuedMessage) -> None:
        """Let a letter be said no more."""
        self.hints = deque(one for one in self.hints if one is not letter)

    async def revised(self, row_id: int, quiet_s: float) -> QueuedMessage | None:
        """Return the message of a row to run the turn anew with; None if it is not to be run anew.

        Waits until no edit came for `quiet_s` seconds: people correct themselves twice. What was said to the
        run is to be said again: it is taken out of the thread with the message.
        """
        unsaid = next((one for one in self.hints if one.row.id == row_id), None)
        if unsaid is not None and self.why is None:
            self.revise(unsaid)
        while self.why is CancelReason.REVISED and not self._is_quiet(quiet_s):
            with anyio.CancelScope(deadline=self._quiet_since + quiet_s):
                self._news = anyio.Event()
                await self._news.wait()
        if self.why is not CancelReason.REVISED or self.revision is None:
            self._is_decided = True
            return None
        letter, self.revision, self.why = self.revision, None, None
        self._stop = anyio.Event()
        again = [*self.said.values(), *self.hints]
        self.hints, self.said = deque(one for one in again if one.row.id != row_id), {}
        return letter

    def _is_quiet(self, quiet_s: float) -> bool:
        return anyio.current_time() >= self._quiet_since + quiet_s

    async def wait(self) -> None:
        """Return when `stop` is called."""
        await self._stop.wait()


class Attempt:
    """What a turn in progress knows: which run answers which message."""

    def __init__(
        self, row: InboxRow, plan: TurnPlan, inbound: InboundMessage, *, is_new: bool
    ) -> None:
        self.row = row
        self.plan = plan
        self.sender = inbound.sender
        self.asked: OpenQuestion | None = None
        self.resume: object = None
        self.texts = plan.texts
        self.attachments = self._files = inbound.attachments
        self.brought = UploadResult(files=plan.again.files if plan.again else ())
        self.thread_id = row.thread_id or ""
        self.ids = message_ids(inbound)
        self.message_id = self.ids[-1]
        self.run_id = row.run_id
        self.is_asked = False
        self.started = anyio.Event()
        self.check = row.attempts > 1 or inbound.edit_count > 0
        # Only a new thread is made first; one that the server lost is made again when it says so.
        self.known = not is_new
        self.fold = ReplyFold(self.message_id)
        self.reply: Reply | None = None

    def renewed(self, letter: QueuedMessage) -> "Attempt":
        """Return the attempt at the message as it was edited; files that the thread has are not brought again."""
        plan = replace(self.plan, text=letter.text)
        attempt = Attempt(self.row, plan, letter.inbound, is_new=not self.known)
        has_files = bool(self.brought.files or self.brought.problems)
        if has_files and self._files == letter.inbound.attachments:
            attempt.brought, attempt.attachments = self.brought, ()
        return attempt

    @property
    def agent(self) -> str:
        """The custom agent that is to answer; "" for the lead agent."""
        return str(self.plan.session.context.get("agent_name") or "")

    def context(self) -> Mapping[str, Any]:
        """Return the run's context: the session's, then what the platform knows."""
        context: dict[str, Any] = {
            **self.plan.session.context,
            "thread_id": self.thread_id,
            "channel_name": self.row.key.channel,
        }
        if self.plan.bootstrap:
            context["is_bootstrap"] = True
        return context
