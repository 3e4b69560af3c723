"""TurnRecord: the data of a turn that its steps read: message, row, attempts and outcome."""

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
    """The stage of a turn, for logs and traces only."""

    QUEUED = "queued"
    """It waits for earlier turns of its conversation."""
    RUNNING = "running"
    """The agent works on it, or its run is being prepared."""
    CANCELING = "canceling"
    """Its run is being canceled because of a stop, a newer message, a deletion or an edit."""
    DELIVERING = "delivering"
    """The answer is decided and is being stored."""
    WAITING_FOR_APPROVAL = "waiting_for_approval"
    """It ended with a request for approval. The answer to that is another turn."""
    DONE = "done"
    """It is finished, with or without an answer."""
    FAILED = "failed"
    """It failed, and a message reports the failure."""


@dataclass(slots=True, kw_only=True)
class Attempt:
    """One version of the message and its run. An edit starts another attempt.

    Attributes:
        message_id: ID of this version in the thread.
        is_again: Whether an earlier process, or an earlier version of the message, may have left messages in the
            thread.
        thread_exists: Whether the server has the thread. Reset if the server reports that it does not.
        is_asked: Whether the server may have received the run. In that case, a canceled turn also cancels the run and
            closes its question.
        is_over: Whether the run has ended.
        run_id: The run; "" = not known yet.
        seen: Position of the last event read, from which a broken stream continues; "" = the start.
        uploads: Its uploaded files; None = not uploaded yet.
        question: The question that the message may answer.
        resume: The answer to this question.
        fold: The events of the run so far.
        reply: The answer; None = not yet, or there is nothing to say.
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
        """IDs of the message's versions in the thread, oldest first."""
        return message_ids(self.message.inbound)

    @property
    def files(self) -> AttachmentUploadResult:
        """Its uploaded files; empty before the upload."""
        return self.uploads or AttachmentUploadResult()

    def again(self, message: QueuedMessage) -> "Attempt":
        """Return the attempt for an edited version. Does not upload the same files again."""
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
        reply: The answer; None = none.
        taken: Further messages that end with the turn, because its run took them or they were stopped with it.
        outdated: The messages among them whose last edit came too late for the run.
        late: An edit of the turn's own message that came too late for the run; None = none.
        released_run_id: The run that no longer answers a message, because its message was deleted; None = none.
    """

    reply: Reply | None = None
    taken: tuple[QueuedMessage, ...] = ()
    outdated: tuple[QueuedMessage, ...] = ()
    late: QueuedMessage | None = None
    released_run_id: str | None = None


class TurnRecord:
    """The data of a turn. Only `bus.conversation.turn` changes it.

    Args:
        session: The merged session of the sender; None = it is invalid, and `failure_text` says why.
        thread_id: The thread to use; None = the conversation's current thread.
        is_admin: Whether the sender may approve and deny for others.

    Attributes:
        message: The message in its latest version.
        row: Its inbox row, as last read or written.
        control: Interventions of other tasks.
        attempt: The current attempt.
        outcome: Read by the queue after `run`: messages that the run took must not run again.
        live: What people see while the turn runs; None = nothing.
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
        """The bot's own messages in the sender's language."""
        return self.message.inbound.reply_target.texts

    @property
    def agent(self) -> str:
        """The custom agent that answers; "" = the lead agent."""
        return str(self.session.context.get("agent_name") or "")

    @property
    def assistant_id(self) -> str:
        """The assistant that answers: the lead agent, or another graph."""
        return self.session.assistant_id or LEAD_AGENT

    @property
    def context(self) -> Mapping[str, Any]:
        """The run's context: the session's, then the thread and the channel."""
        context = {
            **self.session.context,
            "thread_id": self.attempt.thread_id,
            "channel_name": self.row.key.channel,
        }
        return {**context, "is_bootstrap": True} if self.message.bootstrap else context

    @property
    def takes_parts(self) -> bool:
        """Whether further parts can join its message, because people have seen no words of its answer."""
        is_open = not self.control.is_closed and self.control.reason in (None, CancelReason.EDITED)
        return is_open and not (self.live is not None and self.live.shows_answer)
