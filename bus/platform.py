"""What the bus asks of a platform: a tiny required protocol, optional ones one method wide, a record of numbers."""

from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Protocol, runtime_checkable

from anyio.abc import TaskStatus

from bus.messages import (
    Attachment,
    Button,
    ButtonPress,
    ConversationKey,
    InboundMessage,
    MessageDeletion,
    MessageEdit,
    MessageId,
    PressResponse,
    ReplyTarget,
    Sender,
)


class Disposition(StrEnum):
    """Why a message was accepted or not; logged, counted, shown to admins. Silence is never unexplained."""

    ACCEPTED = "accepted"
    DUPLICATE = "duplicate"
    NOT_ADDRESSED = "not_addressed"
    NOT_ALLOWED = "not_allowed"
    EXTERNAL = "external"
    PAIRING = "pairing"
    GROUP_PAIRING = "group_pairing"
    DISABLED = "disabled"
    FROM_BOT = "from_bot"
    EMPTY = "empty"
    QUEUE_FULL = "queue_full"
    RATE_LIMITED = "rate_limited"
    UNSUPPORTED = "unsupported"
    UNCHANGED = "unchanged"
    TOO_LATE = "too_late"


class Intake(Protocol):
    """Where adapters hand messages over."""

    async def receive(self, inbound: InboundMessage) -> Disposition:
        """Decide on and commit one message. When this returns, the platform may be acknowledged.

        Raises:
            IntakeFull, IntakeClosed: nothing was kept: do not acknowledge, so that the platform redelivers.
            StoreError: nothing was kept: likewise.
        """
        ...

    async def handle_button_press(self, press: ButtonPress) -> PressResponse:
        """Act on a pressed button; when this returns, what it means is kept. Takes well under a second.

        Raises:
            IntakeFull, IntakeClosed, StoreError: nothing was kept: as for `receive`, or tell the presser.
        """
        ...

    async def handle_edit(self, edit: MessageEdit) -> Disposition:
        """Act on a message that was edited after it was sent. Raises as `receive` does."""
        ...

    async def handle_deletion(self, deletion: MessageDeletion) -> Disposition:
        """Act on a message that was deleted after it was sent. Raises as `receive` does."""
        ...

    async def handle_bot_added(self, key: ConversationKey, added_by: Sender) -> None:
        """Record that somebody added the bot to a group: who may use the bot approves the group by adding it.

        Raises:
            StoreError: nothing was kept, as for `receive`.
        """
        ...

    async def migrate_chat(
        self, channel: str, workspace: str, old_chat: str, new_chat: str
    ) -> None:
        """Let a chat that got another id go on; when this returns, that is kept. Telling it again does nothing.

        Raises:
            StoreError: nothing was kept: as for `receive`.
        """
        ...

    def report_ignored(self, channel: str, reason: Disposition, detail: str = "") -> None:
        """Count and log an event that the adapter itself found not to be a message for us."""
        ...


class ConnectionState(StrEnum):
    """The true state of a platform connection."""

    CONNECTING = "connecting"
    CONNECTED = "connected"
    RECONNECTING = "reconnecting"
    FAILED = "failed"
    STOPPED = "stopped"


@dataclass(frozen=True, slots=True, kw_only=True)
class ChannelHealth:
    """What an adapter knows of its connection.

    Attributes:
        state: `connected` only while events can really arrive.
        detail: One line for the admin: what is wrong and what to do; "" when all is well.
        since: When `state` last changed (Unix seconds).
        last_event_at: When the platform last sent anything (Unix seconds), or None.
        awaiting_first_event: Everything is set up here, but the platform, which calls us, has not called yet.
    """

    state: ConnectionState
    detail: str = ""
    since: float = 0.0
    last_event_at: float | None = None
    awaiting_first_event: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Capabilities:
    """What a platform can do, with its numbers. Each adapter's `capabilities.py` names their sources.

    Attributes:
        streaming: Whether answers grow in place while the agent works (then the adapter is a `SupportsStreaming`). A
            platform where streaming is an option says so only where it is switched on.
        stream_interval_s: Least time between two patches of one message.
        send_interval_s: Least time between two sends to one chat in the long run.
        send_burst: Sends that may follow each other at once in a chat that was quiet.
        idempotent_send_s: For how long the platform drops a repeated send with the same key; 0 = never.
        indicator_refresh_s: How often a working sign must be repeated; 0 = it stays until taken away.
        max_file_bytes: Largest file that can be sent.
        max_queue: Chat messages that may wait in one conversation.
        command_prefix: What people write before a command's name, where the platform keeps "/" for itself.
        shows_progress: Whether a growing answer may have lines below it that go again: tools, plan, subagents.
        draft_interval_s: Least time between two previews (then the adapter is a `SupportsDrafts`).
        progress_notice_after_s: After so much work a turn that shows nothing else gets a working message with a stop
            button, deleted when the answer comes (then the adapter is `SupportsButtons` and
            `SupportsDeletion`); 0 = never.
    """

    streaming: bool
    stream_interval_s: float = 1.0
    send_interval_s: float = 1.0
    send_burst: int = 3
    idempotent_send_s: float = 0.0
    indicator_refresh_s: float = 0.0
    max_file_bytes: int = 50_000_000
    max_queue: int = 20
    command_prefix: str = "/"
    shows_progress: bool = True
    draft_interval_s: float = 1.0
    progress_notice_after_s: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class OutgoingFile:
    """A file on this machine's disk, about to be sent."""

    path: Path
    name: str
    mime: str
    size_bytes: int


@runtime_checkable
class Adapter(Protocol):
    """A chat platform. Everything else is optional: the protocols below."""

    @property
    def name(self) -> str:
        """The channel's name in configuration and store."""
        ...

    @property
    def capabilities(self) -> Capabilities:
        """The platform's numbers."""
        ...

    async def run(self, intake: Intake, *, task_status: TaskStatus[None]) -> None:
        """Connect, receive and reconnect until cancelled.

        Calls `task_status.started()` at once; the connection's progress shows in `health`. Returns only
        for a reason that will not mend itself (revoked token), with `health().link` FAILED and a detail.
        """
        ...

    def health(self) -> ChannelHealth:
        """Return the true state of the connection."""
        ...

    def split(self, markdown: str) -> Sequence[str]:
        """Cut a reply into messages within the platform's limit, each renderable by itself. Pure; at least one."""
        ...

    async def send(self, place: ReplyTarget, markdown: str, *, key: str) -> MessageId:
        """Send one message. `key` is the idempotency key where the platform has one. Raises DeliveryError."""
        ...

    async def send_file(self, place: ReplyTarget, file: OutgoingFile, *, key: str) -> MessageId:
        """Send one file. Raises DeliveryError."""
        ...


@runtime_checkable
class SupportsStreaming(Protocol):
    """A platform whose messages can grow in place."""

    async def start_streaming(
        self, place: ReplyTarget, markdown: str, *, key: str, buttons: Sequence[Button] = ()
    ) -> MessageId:
        """Send a message that `patch` can change, showing that work began. Raises DeliveryError."""
        ...

    async def update_streaming(
        self,
        place: ReplyTarget,
        message: MessageId,
        markdown: str,
        *,
        final: bool,
        buttons: Sequence[Button] = (),
    ) -> None:
        """Replace a card's text and buttons; not final = still working, possibly unclosed Markdown.

        Raises DeliveryError.
        """
        ...


@runtime_checkable
class SupportsDrafts(Protocol):
    """A platform that can show what is being written without sending it: it vanishes by itself."""

    def uses_drafts(self, place: ReplyTarget) -> bool:
        """Return whether answers to this place are previewed; then no card is opened there."""
        ...

    async def send_draft(
        self, place: ReplyTarget, markdown: str, *, key: str, stop: Button
    ) -> None:
        """Show the text so far, possibly unclosed Markdown; repeated at least every 20 s.

        `key` is equal for all previews of a turn; `stop` is what to press instead of waiting on.
        Raises DeliveryError: it was not shown, which does not harm the answer.
        """
        ...


@runtime_checkable
class SupportsButtons(Protocol):
    """A platform whose messages can carry buttons. Presses come in by `Intake.press`."""

    async def send_with_buttons(
        self, place: ReplyTarget, markdown: str, buttons: Sequence[Button], *, key: str
    ) -> MessageId:
        """Send one message with buttons below it, otherwise as `send`. Raises DeliveryError."""
        ...


@runtime_checkable
class SupportsEditing(Protocol):
    """A platform where a message that was sent can be changed."""

    async def edit_message(
        self,
        place: ReplyTarget,
        message: MessageId,
        markdown: str,
        *,
        buttons: Sequence[Button] = (),
    ) -> None:
        """Replace a message's text and buttons; no buttons = those it has are taken away. Raises DeliveryError."""
        ...


@runtime_checkable
class SupportsDeletion(Protocol):
    """A platform where a message that was sent can be taken away."""

    async def delete_message(self, place: ReplyTarget, message: MessageId) -> None:
        """Take a message away; one that is gone already is fine. Raises DeliveryError."""
        ...


@runtime_checkable
class SupportsMessageLookup(Protocol):
    """A platform where a sent message can be looked up by the key it was sent with."""

    async def find_message(self, place: ReplyTarget, *, key: str, since: float) -> MessageId | None:
        """Return the message sent with `key` after `since` (Unix seconds), if there is one. Raises DeliveryError."""
        ...


@runtime_checkable
class SupportsIndicators(Protocol):
    """A platform that can show that work goes on (reaction, status, typing). Failures are logged, never fatal."""

    async def show_working(self, place: ReplyTarget) -> None:
        """Show, or refresh, the sign. Raises DeliveryError."""
        ...

    async def show_finished(self, place: ReplyTarget, *, ok: bool) -> None:
        """Take the sign away, or turn it into a done sign. Raises DeliveryError."""
        ...


@runtime_checkable
class SupportsDownloads(Protocol):
    """A platform whose attachments can be fetched."""

    def download(
        self, attachment: Attachment, *, max_bytes: int
    ) -> AbstractAsyncContextManager[AsyncIterator[bytes]]:
        """Stream an attachment's bytes. Raises DeliveryError with a reason the user may read."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class CommandInfo:
    """A command as platforms list it.

    Attributes:
        name: Without slash, [a-z0-9_].
        help: One line of English, at most 256 characters.
        translations: The same by other languages' codes (keys of `bus.locales.LANGUAGES`).
    """

    name: str
    help: str
    translations: Mapping[str, str] = field(default_factory=dict)


Clock = Callable[[], float]
"""The wall clock: Unix seconds. Steerable in tests."""
