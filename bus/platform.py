"""The interfaces between the bus and platforms: `Adapter`, its optional `Supports...` protocols, and `Intake`."""

from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, nullcontext
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path

from anyio.abc import TaskStatus
from typing_extensions import Protocol, runtime_checkable

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
    ToolStep,
    Transcript,
)


class Disposition(StrEnum):
    """Whether an event was accepted, or why not. It is logged, counted, and shown to administrators."""

    ACCEPTED = "accepted"
    DUPLICATE = "duplicate"
    NOT_ADDRESSED = "not_addressed"
    DECLINED = "declined"
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
    TAKEN_OVER = "taken_over"


class Intake(Protocol):
    """Receives the events of adapters."""

    def divide_limit(self, limit: int) -> int:
        """Return this process's share of an account's limit, which all processes of the service share. Cheap."""
        return limit

    def exclusive(
        self,
        name: str,  # noqa: ARG002 - for overrides
        on_wait: Callable[[], None] | None = None,  # noqa: ARG002
    ) -> AbstractAsyncContextManager[None]:
        """Run the block while no other process of the service runs a block with this name.

        If another process may have entered, the block is canceled and ends without an error. In that case, enter it
        again.

        Args:
            name: Up to 100 characters.
            on_wait: Called once if another process is inside.
        """
        return nullcontext()

    async def has_conversation(self, key: ConversationKey) -> bool:
        """Return whether a conversation has had messages since it began, or since /new. Raises StoreError."""
        ...

    async def receive(self, inbound: InboundMessage) -> Disposition:
        """Decide on one message and commit it. When this returns, the event may be acknowledged.

        Raises:
            IntakeFull, IntakeClosed, StoreError: Nothing was stored. Do not acknowledge, so that the platform
                redelivers.
        """
        ...

    async def handle_button_press(self, press: ButtonPress) -> PressResponse:
        """Act on a button press. When this returns, the effect is stored. Takes well under a second.

        Raises:
            IntakeFull, IntakeClosed, StoreError: Nothing was stored. Proceed as for `receive`, or tell the presser.
        """
        ...

    async def handle_edit(self, edit: MessageEdit) -> Disposition:
        """Act on an edited message. Raises like `receive`."""
        ...

    async def handle_deletion(self, deletion: MessageDeletion) -> Disposition:
        """Act on a deleted message. Raises like `receive`."""
        ...

    async def handle_bot_added(self, key: ConversationKey, added_by: Sender) -> None:
        """Record who added the bot to a group. If that person may use the bot, the group is approved.

        Raises:
            StoreError: nothing was stored, as for `receive`.
        """
        ...

    async def migrate_chat(
        self, channel: str, workspace: str, old_chat: str, new_chat: str
    ) -> None:
        """Move everything stored under a chat's old ID to its new ID. Repeating a migration has no effect.

        Raises:
            StoreError: nothing was stored, as for `receive`.
        """
        ...

    def report_ignored(self, channel: str, reason: Disposition, detail: str = "") -> None:
        """Count and log an event that the adapter ignored."""
        ...


class ConnectionState(StrEnum):
    """The state of a platform connection."""

    CONNECTING = "connecting"
    CONNECTED = "connected"
    RECONNECTING = "reconnecting"
    FAILED = "failed"
    STOPPED = "stopped"


@dataclass(frozen=True, slots=True, kw_only=True)
class ChannelHealth:
    """The health of a channel's connection.

    Attributes:
        state: `connected` only while events can arrive.
        detail: One line for the administrator with the problem and its solution; "" = no problem.
        since: When `state` last changed (Unix seconds).
        last_event_at: When the platform last sent anything (Unix seconds); None = never.
        awaiting_first_event: Whether the platform, which calls us, has not called yet even though everything is set up
            here.
    """

    state: ConnectionState
    detail: str = ""
    since: float = 0.0
    last_event_at: float | None = None
    awaiting_first_event: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Capabilities:
    """The abilities and limits of a platform. Each adapter's `capabilities.py` names their sources.

    Attributes:
        streaming: Whether answers grow in place while the agent works. The adapter is then a `SupportsStreaming`. If
            streaming is an option of the platform, whether it is enabled.
        stream_interval_s: Minimum seconds between two updates of one message.
        send_interval_s: Minimum seconds between two sends to one chat, on average.
        send_burst: Number of sends to a quiet chat that do not have to wait.
        idempotent_send_s: How long the platform drops repeated sends with the same key, seconds; 0 = never.
        edits_can_overtake: Whether the platform may carry out an edit after a later edit. If so, an answer that follows
            an edit with an unknown outcome is repeated.
        indicator_refresh_s: How often to repeat a working indicator, seconds; 0 = never.
        max_file_bytes: Maximum size of a file to send, bytes.
        has_replies: Whether people can reply to a message in a group. Otherwise they write in the message's thread,
            which does not show whom they address.
        command_prefix: The beginning of commands if the platform reserves "/" for itself.
        shows_progress: Whether a growing answer can have temporary lines about tools, plan and subagents.
        draft_interval_s: Minimum seconds between two drafts. The adapter is then a `SupportsDrafts`.
        progress_notice_after_s: Seconds after which a turn that shows nothing else gets a notice with a stop button.
            The answer deletes the notice. The adapter is then a `SupportsButtons` and `SupportsDeletion`. 0 = never.
    """

    streaming: bool
    stream_interval_s: float = 1.0
    send_interval_s: float = 1.0
    send_burst: int = 3
    idempotent_send_s: float = 0.0
    edits_can_overtake: bool = False
    indicator_refresh_s: float = 0.0
    max_file_bytes: int = 50_000_000
    has_replies: bool = True
    command_prefix: str = "/"
    shows_progress: bool = True
    draft_interval_s: float = 1.0
    progress_notice_after_s: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class OutgoingFile:
    """A local file to send."""

    path: Path
    name: str
    mime: str
    size_bytes: int


@runtime_checkable
class Adapter(Protocol):
    """One bot account on a chat platform. The protocols below are optional abilities."""

    @property
    def name(self) -> str:
        """The channel's name: its key under `channels` in the configuration."""
        ...

    @property
    def capabilities(self) -> Capabilities:
        """The platform's abilities and limits."""
        ...

    async def run(self, intake: Intake, *, task_status: TaskStatus[None]) -> None:
        """Connect, receive and reconnect until canceled.

        Calls `task_status.started()` at once. `health` shows the progress of the connection. Returns only after a
        permanent failure, such as a revoked token, with state FAILED and a detail in `health`.
        """
        ...

    def health(self) -> ChannelHealth:
        """Return the state of the connection."""
        ...

    def split(self, markdown: str) -> Sequence[str]:
        """Split a reply into one or more messages. Each is within the platform's limit and renders on its own. Pure."""
        ...

    async def send(self, target: ReplyTarget, markdown: str, *, key: str) -> MessageId:
        """Send one message. `key` is its idempotency key, if the platform has them. Raises DeliveryError."""
        ...

    async def send_file(self, target: ReplyTarget, file: OutgoingFile, *, key: str) -> MessageId:
        """Send one file. Raises DeliveryError."""
        ...


@runtime_checkable
class SupportsStreaming(Protocol):
    """A platform whose messages can grow in place."""

    async def start_streaming(
        self, target: ReplyTarget, markdown: str, *, key: str, buttons: Sequence[Button] = ()
    ) -> MessageId:
        """Send a message that `update_streaming` can change. It shows that work has begun. Raises DeliveryError."""
        ...

    async def update_streaming(
        self,
        target: ReplyTarget,
        message: MessageId,
        markdown: str,
        *,
        final: bool,
        buttons: Sequence[Button] = (),
    ) -> None:
        """Replace the text and buttons. If not `final`, Markdown may be unclosed. Raises DeliveryError."""
        ...


@runtime_checkable
class SupportsDrafts(Protocol):
    """A platform that can show a draft, which is not sent and disappears by itself."""

    def uses_drafts(self, target: ReplyTarget) -> bool:
        """Return whether answers to this target are shown as drafts instead of growing messages."""
        ...

    async def send_draft(
        self, target: ReplyTarget, markdown: str, *, key: str, stop: Button
    ) -> None:
        """Show the text so far.

        Markdown may be unclosed. Called at least every 20 s. `key` is the same for all drafts of a turn. `stop` is the
        button that stops it. Raises DeliveryError if the draft is not shown, which does not affect the answer.
        """
        ...


@runtime_checkable
class SupportsButtons(Protocol):
    """A platform whose messages can have buttons. Presses go to `Intake.handle_button_press`."""

    async def send_with_buttons(
        self, target: ReplyTarget, markdown: str, buttons: Sequence[Button], *, key: str
    ) -> MessageId:
        """Send one message with buttons. Otherwise like `send`. Raises DeliveryError."""
        ...


@runtime_checkable
class SupportsToolSteps(Protocol):
    """A platform that shows each finished tool call of a turn, and keeps it beside the answer."""

    async def show_tool_step(self, target: ReplyTarget, step: ToolStep) -> None:
        """Show a tool call before the answer. A turn that continues after a restart repeats this. Raises nothing."""
        ...


@runtime_checkable
class SupportsEditing(Protocol):
    """A platform where sent messages can be edited."""

    async def edit_message(
        self,
        target: ReplyTarget,
        message: MessageId,
        markdown: str,
        *,
        buttons: Sequence[Button] = (),
    ) -> None:
        """Replace a message's text and buttons. Without `buttons`, removes its buttons. Raises DeliveryError."""
        ...


@runtime_checkable
class SupportsDeletion(Protocol):
    """A platform where sent messages can be deleted."""

    async def delete_message(self, target: ReplyTarget, message: MessageId) -> None:
        """Delete a message. Does nothing if it is already deleted. Raises DeliveryError."""
        ...


@runtime_checkable
class SupportsPrivateChats(Protocol):
    """A platform where the bot may write privately to a person whom it answers in a group."""

    async def private_target(self, target: ReplyTarget) -> ReplyTarget | None:
        """Return the private chat with `target.user`; None if there is none. Raises DeliveryError, never ambiguous."""
        ...


@runtime_checkable
class SupportsMembership(Protocol):
    """A platform where the bot may ask whether a person is in a group."""

    async def is_member(self, target: ReplyTarget, person: str) -> bool | None:
        """Return whether a person is in the group `target.chat`; None = the platform does not say.

        Raises DeliveryError. `place_gone` is `chat` if the group is gone or the bot is no longer in it.
        """
        ...


@runtime_checkable
class SupportsMessageLookup(Protocol):
    """A platform where a sent message can be found by its key."""

    async def find_message(
        self, target: ReplyTarget, *, key: str, since: float
    ) -> MessageId | None:
        """Return the message sent with `key` after `since` (Unix seconds), if there is one. Raises DeliveryError."""
        ...


class WorkShown(StrEnum):
    """Whether a message may have a working indicator.

    `NO`: no process has shown one. `HERE`: only this process may have shown one. `UNKNOWN`: an earlier process may have
    shown one, too.
    """

    NO = "no"
    HERE = "here"
    UNKNOWN = "unknown"


@runtime_checkable
class SupportsIndicators(Protocol):
    """A platform that can show work in progress: a reaction, a status, typing. Failures are logged but never fatal."""

    async def show_working(self, target: ReplyTarget) -> None:
        """Show or refresh the working indicator. Raises DeliveryError."""
        ...

    async def show_finished(
        self, target: ReplyTarget, *, ok: bool, was_shown: WorkShown = WorkShown.UNKNOWN
    ) -> None:
        """Remove the indicator, or turn it into a done or failure indicator. Raises DeliveryError."""
        ...


@runtime_checkable
class SupportsRefusalIndicator(Protocol):
    """A platform that can mark a message as not accepted."""

    async def show_refused(self, target: ReplyTarget) -> None:
        """Mark the message `target.reply_to`. Indicators of other messages stay. Raises DeliveryError."""
        ...


@runtime_checkable
class SupportsDownloads(Protocol):
    """A platform whose attachments can be downloaded."""

    def download(
        self, attachment: Attachment, *, max_bytes: int
    ) -> AbstractAsyncContextManager[AsyncIterator[bytes]]:
        """Stream an attachment's bytes. Raises DeliveryError with a reason for the user."""
        ...


@runtime_checkable
class SupportsTranscripts(Protocol):
    """A platform that transcribes speech itself."""

    async def find_transcript(self, attachment: Attachment, audio: Path) -> Transcript | None:
        """Return the platform's transcript of a recording; None = it has none. Raises DeliveryError.

        `audio`: the downloaded recording.
        """
        ...


@runtime_checkable
class SupportsNotes(Protocol):
    """A platform that can show a text in small type."""

    async def send_note(self, target: ReplyTarget, text: str, *, key: str) -> MessageId:
        """Send a plain text (at most 2,100 characters) in small type. Otherwise like `Adapter.send`."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class CommandInfo:
    """A command in the command lists of platforms.

    Attributes:
        name: Without slash: [a-z0-9_].
        help: One line of English, at most 256 characters.
        translations: The help in other languages, by keys of `bus.locales.LANGUAGES`.
    """

    name: str
    help: str
    translations: Mapping[str, str] = field(default_factory=dict)


Clock = Callable[[], float]
"""A wall clock that returns Unix seconds."""
