"""The terminal: the smallest complete adapter, and the file to copy for a new platform.

A session is a chat with one person. Terminals attach to it, in this process or over the gateway's REST API. Lines reach
the bus as an `InboundMessage`. Messages of the bus reach every attached terminal as a `TerminalEvent`.
"""

import time
import uuid
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import AbstractAsyncContextManager, contextmanager, suppress
from dataclasses import asdict, replace
from functools import partial
from itertools import takewhile
from pathlib import Path

import anyio
from anyio.abc import TaskStatus
from anyio.streams.memory import MemoryObjectSendStream

from bots.terminal.received_files import ReceivedFiles
from bots.terminal.session import (
    OtherTerminals,
    ShowResult,
    TerminalButton,
    TerminalEvent,
    TerminalFile,
    TerminalIndicator,
    TerminalLine,
    TerminalMessage,
    TerminalSession,
    TerminalToolStep,
    check_session,
    save_file,
)
from bus.errors import DeliveryError
from bus.messages import (
    Attachment,
    Button,
    ButtonPress,
    ConversationKey,
    InboundMessage,
    MessageId,
    PressResponse,
    ReplyTarget,
    Sender,
    ToolStep,
)
from bus.platform import (
    Capabilities,
    ChannelHealth,
    Clock,
    ConnectionState,
    Disposition,
    Intake,
    OutgoingFile,
    WorkShown,
)

TERMINAL = "terminal"
WORKSPACE = "local"
CAPABILITIES = Capabilities(
    streaming=True,
    stream_interval_s=0.05,
    send_interval_s=0.0,
    idempotent_send_s=3600.0,
)
"""A terminal has no rate limits, and shows only one message for each idempotency key."""

MAX_FILE_BYTES = 50_000_000
"""Maximum size of an attached file, bytes. The gateway accepts no larger files for the agent."""

BUFFERED_EVENTS = 1000
"""Number of events that a slow terminal may lag behind.

Beyond that, updates are skipped, because the next update contains their text too.
"""


class TerminalAdapter:
    """The adapter of the channel `terminal`, for `parley chat` and the REST API.

    Args:
        files: The folder for files from and to people, with one subfolder for each session.
        grace_s: How long messages for a session are retried after its last terminal left (or after the start, if none
            was attached), seconds.
        retry_s: Delay before a message for an absent terminal is sent again, seconds. It grows with the length of the
            absence, up to tenfold.
        patience_s: How long a line waits for the channel to start, seconds.

    Attributes:
        other_terminals: The terminals on other nodes; None = there are no other nodes.
    """

    def __init__(
        self,
        *,
        files: Path,
        grace_s: float = 600.0,
        retry_s: float = 1.0,
        patience_s: float = 5.0,
        now: Clock = time.time,
    ) -> None:
        self._files = files
        self._grace_s = grace_s
        self._retry_s = retry_s
        self._patience_s = patience_s
        self._now = now
        self._intake: Intake | None = None
        self._ready = anyio.Event()
        self._health = ChannelHealth(state=ConnectionState.CONNECTING, since=now())
        self._started_at = now()
        self._left_at: dict[str, float] = {}
        self._attached: dict[str, list[MemoryObjectSendStream[TerminalEvent]]] = {}
        self.other_terminals: OtherTerminals | None = None

    @property
    def name(self) -> str:
        """The channel's name. There is only one terminal channel."""
        return TERMINAL

    @property
    def capabilities(self) -> Capabilities:
        """The capabilities of a terminal."""
        return CAPABILITIES

    async def run(self, intake: Intake, *, task_status: TaskStatus[None]) -> None:
        """Stay connected until canceled."""
        self._intake = intake
        self._health = ChannelHealth(state=ConnectionState.CONNECTED, since=self._now())
        self._ready.set()
        task_status.started()
        try:
            await anyio.sleep_forever()
        finally:
            self._intake, self._ready = None, anyio.Event()
            self._health = ChannelHealth(state=ConnectionState.STOPPED, since=self._now())

    def health(self) -> ChannelHealth:
        """Return whether messages can arrive."""
        return self._health

    @contextmanager
    def attach(self, session: str) -> Iterator[TerminalSession]:
        """Attach a terminal to a session. Raises ValueError if `session` is not a valid name."""
        check_session(session)
        send, receive = anyio.create_memory_object_stream[TerminalEvent](BUFFERED_EVENTS)
        self._attached.setdefault(session, []).append(send)
        try:
            with send, receive:
                yield TerminalSession(
                    partial(self.say, session), receive, partial(self.receive_file, session)
                )
        finally:
            self._attached[session].remove(send)
            if not self._attached[session]:
                del self._attached[session]
                self._leave(session)

    def count_attached(self, session: str) -> int:
        """Return the number of this process's terminals that are attached to a session."""
        return len(self._attached.get(session, ()))

    async def receive_file(self, session: str, name: str, chunks: AsyncIterator[bytes]) -> str:
        """Store a file for a message. Return its reference. Raises DeliveryError."""
        check_session(session)
        return await self._received(session).save(name, chunks, max_bytes=MAX_FILE_BYTES)

    def download(
        self, attachment: Attachment, *, max_bytes: int
    ) -> AbstractAsyncContextManager[AsyncIterator[bytes]]:
        """Stream the bytes of a message's file."""
        session, _, ref = attachment.ref.partition("/")
        check_session(session)
        return self._received(session).open(ref, max_bytes=max_bytes)

    async def say(
        self, session: str, text: str, *, event_id: str = "", files: Sequence[str] = ()
    ) -> Disposition:
        """Pass a line to the bus. A repeated `event_id` has no effect.

        Args:
            session: The session of the line.
            text: The line.
            event_id: "" = a new one.
            files: References that `receive_file` returned for the line's files.

        Raises:
            DeliveryError: A file is missing, or the channel does not run. Also raises what `Intake.receive` raises.
        """
        check_session(session)
        received = self._received(session)
        attachments = [await received.attachment(ref) for ref in files]
        intake = await self._running_intake()
        event_id = event_id or uuid.uuid4().hex
        inbound = InboundMessage(
            event_id=event_id,
            message_id=event_id,
            key=ConversationKey(channel=TERMINAL, workspace=WORKSPACE, chat=session),
            reply_target=ReplyTarget(chat=session),
            sender=Sender(user_id=WORKSPACE),
            text=text,
            attachments=tuple(replace(file, ref=f"{session}/{file.ref}") for file in attachments),
            is_private=True,
            is_addressed=True,
            sent_at=self._now(),
        )
        # Show the line before the answer can arrive. Terminals know its ID, so they show a repeated line only once.
        self.show_here(session, TerminalLine(id=event_id, text=text))
        reason = await intake.receive(inbound)
        self._health = ChannelHealth(
            state=ConnectionState.CONNECTED, since=self._health.since, last_event_at=self._now()
        )
        return reason

    async def press(
        self, session: str, token: str, *, message: str, event_id: str = ""
    ) -> PressResponse:
        """Press a button of a message. A repeated `event_id` has no effect.

        Raises:
            DeliveryError: The channel does not run. Also raises what `Intake.handle_button_press` raises.
        """
        check_session(session)
        intake = await self._running_intake()
        return await intake.handle_button_press(
            ButtonPress(
                event_id=event_id or uuid.uuid4().hex,
                key=ConversationKey(channel=TERMINAL, workspace=WORKSPACE, chat=session),
                reply_target=ReplyTarget(chat=session),
                message_id=message,
                token=token,
                sender=Sender(user_id=WORKSPACE),
                is_private=True,
            )
        )

    async def _running_intake(self) -> Intake:
        with anyio.move_on_after(self._patience_s):
            await self._ready.wait()
        if self._intake is None:
            raise DeliveryError("The terminal channel is not running.", retryable=True)
        return self._intake

    def split(self, markdown: str) -> Sequence[str]:
        """Return the reply as one message, because a terminal has no limit."""
        return [markdown]

    async def send(self, target: ReplyTarget, markdown: str, *, key: str) -> MessageId:
        """Show a finished message."""
        await self._show(target, TerminalMessage(id=key, text=markdown, final=True))
        return MessageId(key)

    async def send_with_buttons(
        self, target: ReplyTarget, markdown: str, buttons: Sequence[Button], *, key: str
    ) -> MessageId:
        """Show a finished message with buttons."""
        await self._show(target, _finished(key, markdown, buttons))
        return MessageId(key)

    async def show_tool_step(self, target: ReplyTarget, step: ToolStep) -> None:
        """Show a finished tool call, if a terminal is attached."""
        await self._show_anywhere(target.chat, TerminalToolStep(**asdict(step)))

    async def start_streaming(
        self,
        target: ReplyTarget,
        markdown: str,
        *,
        key: str,
        buttons: Sequence[Button] = (),  # noqa: ARG002 - Ctrl-C replaces Stop
    ) -> MessageId:
        """Show a message that grows."""
        await self._show(target, TerminalMessage(id=key, text=markdown, final=False))
        return MessageId(key)

    async def update_streaming(
        self,
        target: ReplyTarget,
        message: MessageId,
        markdown: str,
        *,
        final: bool,
        buttons: Sequence[Button] = (),
    ) -> None:
        """Show the text of a growing message. Only a finished message has buttons, because Ctrl-C replaces Stop."""
        growing = TerminalMessage(id=message, text=markdown, final=False)
        await self._show(target, _finished(message, markdown, buttons) if final else growing)

    async def send_file(self, target: ReplyTarget, file: OutgoingFile, *, key: str) -> MessageId:
        """Save a copy of the file and show its path."""
        kept = await anyio.to_thread.run_sync(save_file, file, self._files, target.chat)
        try:
            await self._show(target, TerminalFile(id=key, name=file.name, path=kept))
        except DeliveryError:
            await anyio.Path(self._files / kept).unlink(missing_ok=True)  # A retry saves it again.
            raise
        return MessageId(key)

    async def show_working(self, target: ReplyTarget) -> None:
        """Show that a message is being answered, if a terminal is attached."""
        await self._show_anywhere(target.chat, TerminalIndicator(state="working"))

    async def show_finished(
        self,
        target: ReplyTarget,
        *,
        ok: bool,
        was_shown: WorkShown = WorkShown.UNKNOWN,  # noqa: ARG002 - terminals show every outcome
    ) -> None:
        """Show that a message was answered, or that answering failed, if a terminal is attached."""
        await self._show_anywhere(target.chat, TerminalIndicator(state="ok" if ok else "failed"))

    def _received(self, session: str) -> ReceivedFiles:
        return ReceivedFiles(self._files / session)

    def show_here(self, session: str, event: TerminalEvent) -> ShowResult:
        """Show an event on this process's terminals. Raises nothing."""
        terminals, taken = self._attached.get(session, ()), 0
        for terminal in terminals:
            with suppress(anyio.WouldBlock):
                terminal.send_nowait(event)
                taken += 1
        left_at = self._left_at.get(session)
        absent_s = None if left_at is None else self._now() - left_at
        return ShowResult(len(terminals), taken, absent_s)

    async def _show_anywhere(self, session: str, event: TerminalEvent) -> ShowResult:
        here = self.show_here(session, event)
        return (
            here
            if self.other_terminals is None
            else here + await self.other_terminals.show(session, event)
        )

    async def _show(self, target: ReplyTarget, event: TerminalEvent) -> None:
        result = await self._show_anywhere(target.chat, event)
        if not result.attached:
            absent_s = self._now() - self._started_at
            if result.absent_s is not None:
                absent_s = result.absent_s
            raise DeliveryError(
                f"No terminal is attached to the session {target.chat}: run `parley chat`.",
                retryable=absent_s < self._grace_s,
                retry_after_s=min(max(self._retry_s, absent_s / 2), 10 * self._retry_s),
            )
        must_arrive = isinstance(event, TerminalFile) or (
            isinstance(event, TerminalMessage) and event.final
        )
        if must_arrive and not result.taken:
            raise DeliveryError(
                "The terminal is not reading.", retryable=True, retry_after_s=self._retry_s
            )

    def _leave(self, session: str) -> None:
        now = self._now()
        self._left_at.pop(session, None)
        self._left_at[session] = now
        gone = takewhile(lambda item: now - item[1] >= self._grace_s, self._left_at.items())
        for name, _ in list(gone):
            del self._left_at[name]


def _finished(key: str, markdown: str, buttons: Sequence[Button]) -> TerminalMessage:
    shown = tuple(TerminalButton(label=one.label, token=one.token) for one in buttons)
    return TerminalMessage(id=key, text=markdown, final=True, buttons=shown)
