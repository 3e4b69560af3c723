"""What a turn knows: its message, its row, the attempts to answer it, and how it ended. Its steps read it."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from bus.config import LEAD_AGENT, SessionConfig
from bus.conversation.control import CancelReason, Control, QueuedMessage
from bus.conversation.open_questions import OpenQuestion
from bus.history.versions import message_ids
from bus.locales import Messages
from bus.outbound.live_reply import LiveReply
from bus.runs.replies import Reply, ReplyFold
from bus.runs.uploads import AttachmentUploadResult


class TurnStage(StrEnum):
    """Where a turn is, for logs and traces. Nothing is decided by it."""

    QUEUED = "queued"
    """It waits for the turns before it in its conversation."""
    RUNNING = "running"
    """The agent works on it, or what it needs is being prepared."""
    CANCELLING = "cancelling"
    """Its run is being cancelled: stopped, interrupted, deleted, or edited."""
    DELIVERING = "delivering"
    """Its answer is decided and being stored."""
    WAITING_FOR_APPROVAL = "waiting_for_approval"
    """It ended with a question of the agent's; the answer is a turn of its own."""
    DONE = "done"
    """It is answered, or needs no answer."""
    FAILED = "failed"
    """It was given up with a visible message."""


@dataclass(slots=True, kw_only=True)
class Attempt:
    """One version of the message, and its run: an edit makes another one.

    Attributes:
        message_id: The id of this version in the thread.
        is_again: Whether an earlier process, or version, may have left something in the thread.
        thread_exists: Whether the thread is at the server; set back when the server says that it lost it.
        is_asked: Whether the server may have the run: its question is closed, its run cancelled by its key.
        is_over: Whether the run has ended.
        run_id: The run, once it is known; "" = not yet.
        seen: The position after the last event that was read: a cut stream is read on from here. "" = the start.
        uploads: Its files, once the thread has them.
        question: What the thread waits for, if the message may answer it; `resume` is that answer.
        fold: What was read of the run so far.
        reply: How the run ended; None = it has not, or there is nothing to say.
    """

    message: QueuedMessage
    thread_id: str
    message_id: str
    is_again: bool
    thread_exists: bool
    run_id: str = ""
    seen: str = ""
    is_asked: bool = False
    is_over: bool = False
    uploads: AttachmentUploadResult | None = None
    question: OpenQuestion | None = None
    resume: object = None
    fold: ReplyFold = field(default_factory=lambda: ReplyFold(""))
    reply: Reply | None = None

    @property
    def ids(self) -> tuple[str, ...]:
        """The ids of the message's versions in the thread, oldest first."""
        return message_ids(self.message.inbound)

    @property
    def files(self) -> AttachmentUploadResult:
        """Its files, as far as the thread has them."""
        return self.uploads or AttachmentUploadResult()

    def again(self, message: QueuedMessage) -> "Attempt":
        """Return the attempt of an edited version. The same files are in the thread already."""
        is_same = message.inbound.attachments == self.message.inbound.attachments
        return Attempt(
            message=message,
            thread_id=self.thread_id,
            message_id=message_ids(message.inbound)[-1],
            is_again=True,
            thread_exists=self.thread_exists,
            uploads=self.uploads if is_same else None,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """How a turn ended.

    Attributes:
        reply: What the run brought; None = nothing.
        taken: Further messages that end with the turn: its run took them, or they were stopped with it.
        outdated: Those of them that were edited too late for the run.
        late: A correction of the turn's own message that came too late for the run; None = there is none.
        released_run_id: The run that answers nothing any more, because its message was deleted; None = there is none.
    """

    reply: Reply | None = None
    taken: tuple[QueuedMessage, ...] = ()
    outdated: tuple[QueuedMessage, ...] = ()
    late: QueuedMessage | None = None
    released_run_id: str | None = None


class TurnRecord:
    """What a turn knows. Only `bus.conversation.turn` changes it.

    Args:
        session: The merged session of the sender; None = it cannot be used, and `failure_text` says why.
        thread_id: The thread to use; None = the conversation's present one.
        is_admin: Whether the sender may decide for others.

    Attributes:
        message: The message, as it was last edited.
        row: Its inbox row, as the turn knows it.
        control: What others want of it.
        attempt: The version that is run.
        outcome: What the queue reads when `run` is over: the rows that the run took must not run again.
        live: What people see of it while it runs; None = nothing.
    """

    attempt: Attempt

    def __init__(
        self,
        message: QueuedMessage,
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
        self.control = Control(message.row)
        self.outcome = Outcome()
        self.live: LiveReply | None = None
        self.stage = TurnStage.QUEUED

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
    def takes_parts(self) -> bool:
        """Whether it may run again with further parts of its message: no words of its answer were shown."""
        is_open = not self.control.is_closed and self.control.reason in (None, CancelReason.EDITED)
        return is_open and not (self.live is not None and self.live.shows_answer)
