"""A Telegram adapter at work against a Telegram server, for tests."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial

import anyio
from typing_extensions import override

from bots.config import TelegramConfig
from bots.telegram.adapter import TelegramAdapter
from bots.telegram.api import TelegramTimeouts
from bus.messages import (
    ButtonPress,
    ConversationKey,
    InboundMessage,
    MessageDeletion,
    MessageEdit,
    PressResponse,
    Sender,
)
from bus.platform import CommandInfo, ConnectionState, Disposition, Intake
from tests.eventually import eventually
from tests.fakes.telegram import TelegramServer

COMMANDS = (
    CommandInfo(name="help", help="Show this help"),
    CommandInfo(name="new", help="Start a new conversation"),
)

FAST = TelegramTimeouts(
    poll_s=2,
    connect_s=2.0,
    answer_s=1.0,
    upload_s=4.0,
    retry_min_s=0.01,
    retry_max_s=0.05,
    refused_s=0.05,
)
"""Short waits; long polls are ended by what happens, not by time."""


class Recorder(Intake):
    """An intake that remembers, and refuses on demand.

    Attributes:
        got: What was accepted.
        offered: Event ids that were offered, accepted or not.
        pressed, changed: What else was told.
        added: Group and person, when the bot was added to a group.
        moves: Workspace, old and new chat of groups that moved.
        answer: What pressing a button is answered with.
        dropped: What the adapter itself ignored.
        refusals: Raised by the next calls, first first.
    """

    def __init__(self) -> None:
        self.got: list[InboundMessage] = []
        self.offered: list[str] = []
        self.dropped: list[tuple[str, Disposition, str]] = []
        self.pressed: list[ButtonPress] = []
        self.changed: list[MessageEdit | MessageDeletion] = []
        self.moves: list[tuple[str, str, str]] = []
        self.added: list[tuple[str, str]] = []
        self.answer = PressResponse(text="pressed")
        self.refusals: list[Exception] = []

    @override
    async def receive(self, inbound: InboundMessage) -> Disposition:
        self.offered.append(inbound.event_id)
        if self.refusals:
            raise self.refusals.pop(0)
        self.got.append(inbound)
        return Disposition.ACCEPTED

    @override
    async def handle_button_press(self, press: ButtonPress) -> PressResponse:
        self.offered.append(press.event_id)
        if self.refusals:
            raise self.refusals.pop(0)
        self.pressed.append(press)
        return self.answer

    @override
    async def handle_edit(self, edit: MessageEdit) -> Disposition:
        self.changed.append(edit)
        return Disposition.ACCEPTED

    @override
    async def handle_deletion(self, deletion: MessageDeletion) -> Disposition:
        self.changed.append(deletion)
        return Disposition.ACCEPTED

    @override
    async def handle_bot_added(self, key: ConversationKey, added_by: Sender) -> None:
        self.added.append((key.chat, added_by.user_id))

    @override
    async def migrate_chat(
        self, channel: str, workspace: str, old_chat: str, new_chat: str
    ) -> None:
        if self.refusals:
            raise self.refusals.pop(0)
        self.moves.append((workspace, old_chat, new_chat))

    @override
    def report_ignored(self, channel: str, reason: Disposition, detail: str = "") -> None:
        self.dropped.append((channel, reason, detail))

    @property
    def texts(self) -> list[str]:
        return [inbound.text for inbound in self.got]


def config_for(
    telegram: TelegramServer, *, token: str | None = None, streaming: bool = False
) -> TelegramConfig:
    """Return the section that points at the server."""
    return TelegramConfig(
        enabled=True,
        streaming=streaming,
        bot_token=telegram.token if token is None else token,
        base_url=telegram.base_url,
        base_file_url=telegram.base_file_url,
    )


def adapter_for(
    telegram: TelegramServer, *, timing: TelegramTimeouts = FAST, streaming: bool = False
) -> TelegramAdapter:
    """Return an adapter that does not run."""
    return TelegramAdapter(config_for(telegram, streaming=streaming), COMMANDS, timing=timing)


@asynccontextmanager
async def running(adapter: TelegramAdapter, intake: Intake) -> AsyncIterator[None]:
    """Run an adapter; cancel it at the end."""
    async with anyio.create_task_group() as tasks:
        await tasks.start(partial(_run, adapter, intake))
        yield
        tasks.cancel_scope.cancel()


async def _run(
    adapter: TelegramAdapter, intake: Intake, *, task_status: anyio.abc.TaskStatus[None]
) -> None:
    await adapter.run(intake, task_status=task_status)


@asynccontextmanager
async def talking(
    telegram: TelegramServer, *, timing: TelegramTimeouts = FAST, streaming: bool = False
) -> AsyncIterator[tuple[TelegramAdapter, Recorder]]:
    """Run an adapter with a recording intake, connected."""
    adapter, recorder = adapter_for(telegram, timing=timing, streaming=streaming), Recorder()
    async with running(adapter, recorder):
        await linked(adapter, ConnectionState.CONNECTED)
        yield adapter, recorder


async def linked(adapter: TelegramAdapter, link: ConnectionState) -> str:
    """Wait for a state of the connection; return its detail."""
    await eventually(lambda: adapter.health().state is link)
    return adapter.health().detail
