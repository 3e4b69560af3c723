"""A turn in progress: how a message is to be run, what is known of its run, the handle that ends it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import anyio

from bus.config import SessionConfig
from bus.messages import Attachment, Exchange
from bus.replies import Fold, Reply
from bus.texts import Texts
from bus.texts.english import ENGLISH
from bus.uploads import Brought
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
        texts: What the bot itself says to the sender.
    """

    text: str
    session: SessionConfig
    bootstrap: bool = False
    thread_id: str | None = None
    again: Exchange | None = None
    texts: Texts = ENGLISH


class TurnControl:
    """The handle by which others end a running turn."""

    def __init__(self) -> None:
        self._stop = anyio.Event()

    @property
    def stopped(self) -> bool:
        """Whether `stop` was called."""
        return self._stop.is_set()

    def stop(self) -> None:
        """End the turn's run now; safe to call at any time and twice."""
        self._stop.set()

    async def wait(self) -> None:
        """Return when `stop` is called."""
        await self._stop.wait()


class Attempt:
    """What a turn in progress knows: which run answers which message."""

    def __init__(
        self, row: InboxRow, plan: TurnPlan, attachments: Sequence[Attachment], *, is_new: bool
    ) -> None:
        self.row = row
        self.plan = plan
        self.texts = plan.texts
        self.attachments = attachments
        self.brought = Brought(files=plan.again.files if plan.again else ())
        self.thread_id = row.thread_id or ""
        self.message_id = f"{row.key.channel}:{row.event_id}"
        self.run_id = row.run_id
        self.is_asked = False
        self.started = anyio.Event()
        self.check = row.attempts > 1
        # Only a new thread is made first; one that the server lost is made again when it says so.
        self.known = not is_new
        self.fold = Fold(self.message_id)
        self.reply: Reply | None = None

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
